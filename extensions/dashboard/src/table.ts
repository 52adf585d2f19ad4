// The node table: one row per node, changed cell by cell, so that a large cluster costs what has changed.

import { ProgressCell, SharesCell, StateCell, StepTimeCell, TextCell, type Cell } from "./cells";
import { ColumnChoice } from "./columns";
import { RowDetails } from "./details";
import { element, setText } from "./dom";
import { LATE_S, formatElapsed } from "./format";
import type { Groups } from "./groups";
import { markAttributes } from "./marks";
import type { Column, Row } from "./messages";
import type { Stacks } from "./stacks";
import { NODE_STATES } from "./states";
import type { Store } from "./store";

interface ShownRow {
  readonly row: HTMLTableRowElement;
  readonly cells: Map<string, Cell>;
  readonly heartbeat: HTMLTableCellElement;
  readonly details: RowDetails;
}

/** Columns that are never made wider for their longest text: it is long, or does not change. */
const ANY_WIDTH = new Set(["node", "args", "host", "shares", "where"]);

export class NodeTable {
  private readonly head = element("tr");
  private readonly body = element("tbody");
  private readonly caption = element("caption", { class: "tfos-hidden" });
  private readonly choice = new ColumnChoice(() => this.update());
  readonly el = element(
    "div",
    { class: "tfos-nodes" },
    element(
      "div",
      { class: "tfos-table-box", role: "region", "aria-label": "Nodes", tabindex: "0" },
      element("table", { class: "tfos-table" }, this.caption, element("thead", {}, this.head), this.body),
    ),
    this.choice.el,
  );
  private rows = new Map<string, ShownRow>();
  private columns: Column[] = [];
  private shownColumns = "";
  private shownOrder = "";
  /** The longest text that each column has had: it keeps its width when texts get shorter. */
  private readonly widths = new Map<string, number>();

  /** `openLog` is called when a node's name is pressed. */
  constructor(
    private readonly store: Store,
    private readonly stacks: Stacks,
    private readonly openLog: (node: string) => void,
    private readonly groups: Groups,
  ) {
    this.el.prepend(groups.el);
  }

  update(): void {
    const { view } = this.store;
    setText(this.caption, `Nodes of ${view.name}`);
    this.choice.update(view.columns);
    this.columns = view.columns.filter((column) => this.choice.isShown(column));
    const shown = [view.bar, ...this.columns.map((column) => column.key + this.choice.classOf(column))].join();
    if (shown !== this.shownColumns) {
      this.shownColumns = shown;
      this.rebuild();
    }
    this.comeAndGo();
    let moved = false;
    for (const row of view.rows) moved = this.updateRow(row) || moved;
    this.reorder(moved);
    this.keepWidths();
    this.tick();
  }

  /** Once a second: the age of the heartbeats. */
  tick(): void {
    const now = this.store.nowS();
    const ended = this.store.hasEnded;
    for (const { node, state, heartbeat_s } of this.store.view.rows) {
      const cell = this.rows.get(node)?.heartbeat;
      if (!cell) continue;
      const shown = heartbeat_s !== null && !ended && NODE_STATES[state]?.present;
      const age = shown ? Math.max(0, now - heartbeat_s) : null;
      setText(cell, age === null ? "" : age < LATE_S ? "now" : `${formatElapsed(age)} ago`);
      cell.classList.toggle("tfos-late", age !== null && age >= LATE_S);
    }
  }

  private rebuild(): void {
    const titles = this.columns.map((column) =>
      element("th", { scope: "col", class: this.choice.classOf(column) }, column.title),
    );
    this.head.replaceChildren(...titles, element("th", { scope: "col", class: "tfos-rank1 tfos-heartbeat" }, "Heartbeat"));
    const before = this.rows;
    this.rows = new Map(this.store.view.rows.map(({ node }) => [node, this.makeRow(node, before.get(node)?.details)]));
    this.body.replaceChildren();
    this.shownOrder = "";
    for (const [key, length] of this.widths) this.setWidth(key, length);
  }

  /** Nodes of a large cluster get a row when they need attention, and lose it when all is well. */
  private comeAndGo(): void {
    const nodes = new Set(this.store.view.rows.map((row) => row.node));
    for (const node of this.rows.keys()) if (!nodes.has(node)) this.rows.delete(node);
    for (const node of nodes) if (!this.rows.has(node)) this.rows.set(node, this.makeRow(node, undefined));
  }

  /** Moves the rows where the view has them: trials of a search come best first, groups below those on top. */
  private reorder(moved: boolean): void {
    const { rows, groups } = this.store.view;
    const heads = this.groups.update(this.store.view, this.columns.length + 1);
    const order = [...rows.map((row) => `${row.group} ${row.node}`), ...groups.map(({ key }) => key)].join();
    if (!moved && order === this.shownOrder) return;
    this.shownOrder = order;
    const focused = document.activeElement;
    const of = (group: string) =>
      rows.filter((row) => row.group === group).flatMap((row) => rowsOf(this.rows.get(row.node)));
    this.body.replaceChildren(...of(""), ...groups.flatMap(({ key }) => [heads.get(key) as HTMLElement, ...of(key)]));
    // A row that moves loses the focus.
    if (focused instanceof HTMLElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  private makeRow(node: string, kept: RowDetails | undefined): ShownRow {
    const row = element("tr", markAttributes(this.store.placeOf(node)));
    const cells = new Map<string, Cell>();
    const details = kept ?? new RowDetails(node, this.stacks);
    for (const column of this.columns) {
      const className = this.choice.classOf(column);
      if (column.key === "node") {
        const name = element("div", { class: "tfos-node" }, ...this.nameOf(node, details));
        row.append(element("th", { scope: "row", class: className }, name));
      } else {
        const cell = this.makeCell(column.key, element("td", { class: className, "data-key": column.key }));
        cells.set(column.key, cell);
        row.append(cell.el);
      }
    }
    const heartbeat = element("td", { class: "tfos-rank1 tfos-heartbeat" });
    row.append(heartbeat);
    return { row, cells, heartbeat, details };
  }

  private nameOf(node: string, details: RowDetails): HTMLElement[] {
    const link = element("button", { class: "tfos-node-link", type: "button", title: `Show the log of ${node}` }, node);
    link.addEventListener("click", () => this.openLog(node));
    const label = `Details of ${node}`;
    const more = element("details", { class: "tfos-more" }, element("summary", { "aria-label": label, title: label }));
    more.open = details.isOpen;
    more.addEventListener("toggle", () => {
      if (details.isOpen === more.open) return;
      details.isOpen = more.open;
      this.update();
    });
    return [more, element("span", { class: "tfos-mark", "aria-hidden": "true" }), link];
  }

  private makeCell(key: string, el: HTMLTableCellElement): Cell {
    if (key === "state") return new StateCell(el);
    if (key === "step_time") return new StepTimeCell(el);
    if (key === "shares") return new SharesCell(el, this.store.view.share_kinds);
    return key === this.store.view.bar ? new ProgressCell(el) : new TextCell(el);
  }

  /** Returns whether its details have come or gone. */
  private updateRow(row: Row): boolean {
    const shown = this.rows.get(row.node);
    if (!shown) return false;
    for (const [key, cell] of shown.cells) {
      const text = row.cells[key] ?? "";
      cell.update(row, text);
      if (text.length > (this.widths.get(key) ?? 0)) this.widths.set(key, text.length);
    }
    shown.row.classList.toggle("tfos-hangs", row.hung !== "");
    const isVisible = (key: string) => key === "node" || (shown.cells.get(key)?.el.offsetWidth ?? 0) > 0;
    return shown.details.update(row, this.store.view, isVisible, this.columns.length + 1);
  }

  /** Figures do not jump: a column stays as wide as its longest text was. */
  private keepWidths(): void {
    for (const [key, length] of this.widths) {
      if (!ANY_WIDTH.has(key)) this.setWidth(key, length);
    }
  }

  private setWidth(key: string, length: number): void {
    const index = this.columns.findIndex((column) => column.key === key);
    const title = this.head.children[index];
    if (title instanceof HTMLElement && !ANY_WIDTH.has(key)) {
      const width = `calc(${length} * var(--tfos-digit) + ${key === this.store.view.bar ? 64 : 12}px)`;
      if (title.style.minWidth !== width) title.style.minWidth = width;
    }
  }
}

function rowsOf(shown: ShownRow | undefined): HTMLElement[] {
  return shown ? [shown.row, ...shown.details.rows] : [];
}
