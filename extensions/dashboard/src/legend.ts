// The legend of the charts: each node with its line. Pointing at one shows its lines before the others; pressing it
// keeps them so.

import { element, setAttribute } from "./dom";
import { drawSample } from "./marks";
import type { Store } from "./store";

export class Legend {
  readonly el = element("div", { class: "tfos-legend", role: "group", "aria-label": "Lines of nodes" });
  private readonly chosen = new Set<string>();
  private pointedAt: string | null = null;
  private shownNodes = "";

  /** `changed` is called when other lines are to be drawn before the rest. */
  constructor(
    private readonly store: Store,
    private readonly changed: () => void,
  ) {
    this.el.addEventListener("pointerleave", () => this.pointAt(null));
  }

  /** Whether a node's lines are drawn before the others; null where none is. */
  isRaised(node: string): boolean | null {
    if (!this.chosen.size && this.pointedAt === null) return null;
    return this.chosen.has(node) || node === this.pointedAt;
  }

  update(nodes: readonly string[]): void {
    this.el.hidden = nodes.length < 2;
    if (this.el.hidden || nodes.join() === this.shownNodes) return;
    this.shownNodes = nodes.join();
    this.el.replaceChildren(...nodes.map((node) => this.makeItem(node)));
  }

  private makeItem(node: string): HTMLElement {
    const item = element(
      "button",
      { class: "tfos-legend-item", type: "button", "aria-pressed": String(this.chosen.has(node)), title: `Raise ${node}` },
      drawSample(this.store.placeOf(node)),
      node,
    );
    item.addEventListener("pointerenter", () => this.pointAt(node));
    item.addEventListener("focus", () => this.pointAt(node));
    item.addEventListener("blur", () => this.pointAt(null));
    item.addEventListener("click", () => this.toggle(node, item));
    return item;
  }

  private pointAt(node: string | null): void {
    if (node === this.pointedAt) return;
    this.pointedAt = node;
    this.changed();
  }

  private toggle(node: string, item: HTMLElement): void {
    if (!this.chosen.delete(node)) this.chosen.add(node);
    setAttribute(item, "aria-pressed", String(this.chosen.has(node)));
    this.changed();
  }
}
