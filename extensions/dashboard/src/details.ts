// The row below a node's own: what happened to a failed one, that one hangs, and on request what columns do not show, as
// others were chosen or there is no room for them.

import { element, setText } from "./dom";
import type { Row, View } from "./messages";
import { NODE_STATES } from "./states";
import type { Stacks } from "./stacks";

export class RowDetails {
  private readonly broken = element("div");
  private readonly hung = element("span");
  private readonly facts = element("dl", { class: "tfos-row-facts" });
  private readonly bar: HTMLElement;
  private readonly cell = element("td");
  private readonly button: HTMLElement | null;
  private readonly row = element("tr", { class: "tfos-detail" }, this.cell);
  isOpen = false;

  constructor(node: string, stacks: Stacks) {
    this.button = stacks.makeButton(node);
    this.bar = element("div", { class: "tfos-hung" }, this.hung, ...(this.button ? [this.button] : []));
  }

  /** The row, where there is something to show. */
  get rows(): HTMLElement[] {
    return this.cell.childElementCount ? [this.row] : [];
  }

  /** Returns whether the row has come or gone. */
  update(row: Row, view: View, isVisible: (key: string) => boolean, width: number): boolean {
    const before = this.rows.length;
    setText(this.broken, row.broken);
    setText(this.hung, row.hung);
    const canAsk = this.button !== null && (NODE_STATES[row.state]?.present ?? false);
    if (this.button) this.button.hidden = !canAsk;
    const parts = [
      ...(row.broken ? [this.broken] : []),
      ...(row.hung || (this.isOpen && canAsk) ? [this.bar] : []),
      ...(this.isOpen ? [this.facts] : []),
    ];
    if (parts.length !== this.cell.childElementCount || parts.some((part, index) => this.cell.children[index] !== part)) {
      this.cell.replaceChildren(...parts);
    }
    if (this.cell.colSpan !== width) this.cell.colSpan = width;
    if (this.isOpen) this.updateFacts(row, view, isVisible);
    return before !== this.rows.length;
  }

  private updateFacts(row: Row, view: View, isVisible: (key: string) => boolean): void {
    const told = view.columns.filter(({ key }) => !isVisible(key) && row.cells[key]);
    if (this.facts.childElementCount !== told.length) {
      this.facts.replaceChildren(...told.map(() => element("div", {}, element("dt"), element("dd"))));
    }
    told.forEach(({ key, title }, index) => {
      const [name, value] = this.facts.children[index]?.children ?? [];
      if (name) setText(name, title);
      if (value) setText(value, row.cells[key] ?? "");
    });
  }
}
