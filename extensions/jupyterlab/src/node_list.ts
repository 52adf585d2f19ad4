// The nodes of a card: a small square for each, and below, when it is opened, a row for each.

import { element, setAttribute, setText } from "./dom";
import { KeyedList } from "./keyed_list";
import type { NodeView } from "./messages";
import { summaryOf, lookOf } from "./node_facts";
import { NodeRow } from "./node_row";

/** More than that are folded until the user asks for them. */
const FEW_NODES = 6;

export class NodeList {
  private readonly summary = element("span");
  private readonly squares = element("span", { class: "tfos-lab-squares", "aria-hidden": "true" });
  private readonly rows = new KeyedList<NodeView>(
    element("ul", { class: "tfos-lab-nodes" }),
    ({ name }) => name,
    () => new NodeRow(),
  );
  readonly node = element("details", {}, element("summary", {}, this.summary, this.squares), this.rows.node);
  private wasShown = false;
  private nodes: readonly NodeView[] = [];

  constructor() {
    // Rows that nobody sees are not kept up to date.
    this.node.addEventListener("toggle", () => this.updateRows());
  }

  update(nodes: readonly NodeView[], of: string): void {
    if (!this.wasShown) this.node.open = nodes.length <= FEW_NODES;
    this.wasShown = true;
    this.nodes = nodes;
    setText(this.summary, summaryOf(nodes));
    setAttribute(this.rows.node, "aria-label", `Nodes of ${of}`);
    this.updateSquares();
    this.updateRows();
  }

  private updateRows(): void {
    if (this.node.open) this.rows.update(this.nodes);
  }

  private updateSquares(): void {
    const { children } = this.squares;
    if (children.length !== this.nodes.length) {
      this.squares.replaceChildren(...this.nodes.map(() => element("span")));
    }
    this.nodes.forEach((view, place) => {
      const square = children[place];
      if (!square) return;
      const { tone, says } = lookOf(view);
      setAttribute(square, "data-tone", tone);
      setAttribute(square, "data-state", view.state);
      setAttribute(square, "title", `${view.name}: ${says}`);
    });
  }
}
