// One node in the list of a card: its state and figures, and all that is known of it below, on a click.

import { button, element, joined, setAttribute, setText } from "./dom";
import { formatCount, formatFigure } from "./format";
import type { Item } from "./keyed_list";
import type { NodeView } from "./messages";
import { detailsOf, slownessOf } from "./node_details";
import { lookOf, mainMetric } from "./node_facts";

let count = 0;

export class NodeRow implements Item<NodeView> {
  private readonly sign = element("span", { class: "tfos-lab-sign", "aria-hidden": "true" });
  private readonly name = element("span", { class: "tfos-lab-node-name" });
  private readonly facts = element("span", { class: "tfos-lab-node-facts" });
  private readonly details = element("dl", { class: "tfos-lab-node-details", id: `tfos-lab-node-${(count += 1)}` });
  private readonly toggle = button("", () => this.open(this.details.hidden), {
    class: "tfos-lab-node-row",
    "aria-controls": this.details.id,
    "aria-expanded": "false",
  });
  readonly node = element("li", {}, this.toggle, this.details);
  private view: NodeView | undefined;

  constructor() {
    this.details.hidden = true;
    this.toggle.append(this.sign, this.name, this.facts);
  }

  update(view: NodeView): void {
    this.view = view;
    const { tone, sign, says } = lookOf(view);
    setAttribute(this.toggle, "data-tone", tone);
    setText(this.sign, sign);
    setText(this.name, view.name);
    setText(this.facts, says === "running" ? figuresOf(view) : joined(says, slownessOf(view)));
    if (!this.details.hidden) this.fillDetails(view);
  }

  private open(opens: boolean): void {
    if (opens && this.view) this.fillDetails(this.view);
    this.details.hidden = !opens;
    setAttribute(this.toggle, "aria-expanded", String(opens));
  }

  private fillDetails(view: NodeView): void {
    const facts = detailsOf(view);
    const entries = this.details.children;
    if (entries.length !== facts.length) {
      this.details.replaceChildren(...facts.map(() => element("div", {}, element("dt"), element("dd"))));
    }
    facts.forEach(([term, text], place) => {
      const [dt, dd] = entries[place]?.children ?? [];
      if (dt && dd) {
        setText(dt, term);
        setText(dd, text);
      }
    });
  }
}

/** What is said of a node that runs; a narrow panel has room for little. */
function figuresOf(view: NodeView): string {
  const figures = joined(slownessOf(view), formatCount(view.step, view.total_steps), formatFigure(mainMetric(view)));
  return figures || view.state;
}
