// Which columns the node table has: those that are shown at first, until its reader chooses others.

import { element } from "./dom";
import type { Column } from "./messages";

export class ColumnChoice {
  private readonly boxes = element("div", { class: "tfos-choices", role: "group", "aria-label": "Columns" });
  readonly el = element(
    "details",
    { class: "tfos-columns" },
    element("summary", {}, "Columns"),
    this.boxes,
  );
  private readonly chosen = new Map<string, boolean>();
  private offered = "";

  constructor(private readonly changed: () => void) {}

  isShown(column: Column): boolean {
    return column.key === "node" || (this.chosen.get(column.key) ?? column.shown);
  }

  /** The class of a column's cells; those that were chosen stay when the table is narrow. */
  classOf(column: Column): string {
    const rank = this.chosen.get(column.key) ? 0 : column.rank;
    return `tfos-rank${rank}${column.numeric ? " tfos-numeric" : ""}`;
  }

  update(columns: readonly Column[]): void {
    const keys = columns.map(({ key }) => key).join();
    if (keys === this.offered) return;
    this.offered = keys;
    const offered = columns.filter(({ key }) => key !== "node");
    this.boxes.replaceChildren(...offered.map((column) => this.makeBox(column)));
  }

  private makeBox(column: Column): HTMLElement {
    const box = element("input", { type: "checkbox" });
    box.checked = this.isShown(column);
    box.addEventListener("change", () => {
      this.chosen.set(column.key, box.checked);
      this.changed();
    });
    return element("label", {}, box, column.title);
  }
}
