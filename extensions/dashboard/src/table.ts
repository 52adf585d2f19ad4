// The node table: one row per node, changed cell by cell, so that a large cluster costs what has changed.

import { element, icon, setAttribute, setText } from "./dom";
import { LATE_S, formatElapsed } from "./format";
import type { Column, Row } from "./messages";
import { NODE_STATES } from "./states";
import type { Store } from "./store";

interface ShownRow {
  readonly row: HTMLTableRowElement;
  readonly cells: Map<string, HTMLTableCellElement>;
  readonly heartbeat: HTMLTableCellElement;
  bar: ProgressBar | null;
  detail: { readonly row: HTMLTableRowElement; readonly cell: HTMLTableCellElement } | null;
  state: string;
}

interface ProgressBar {
  readonly box: HTMLElement;
  readonly fill: HTMLElement;
  readonly text: HTMLElement;
}

export class NodeTable {
  private readonly head = element("tr");
  private readonly body = element("tbody");
  private readonly caption = element("caption", { class: "tfos-hidden" });
  readonly el = element(
    "div",
    { class: "tfos-table-box", role: "region", "aria-label": "Nodes", tabindex: "0" },
    element("table", { class: "tfos-table" }, this.caption, element("thead", {}, this.head), this.body),
  );
  private rows = new Map<string, ShownRow>();
  private shownColumns = "";
  private shownOrder = "";

  /** `openLog` is called when a node's name is pressed. */
  constructor(
    private readonly store: Store,
    private readonly openLog: (node: string) => void,
  ) {}

  update(): void {
    const { view } = this.store;
    setText(this.caption, `Nodes of ${view.name}`);
    const columns = [view.bar, ...view.columns.map((column) => column.key)].join();
    if (columns !== this.shownColumns || view.rows.length !== this.rows.size) {
      this.shownColumns = columns;
      this.rebuild();
    }
    this.reorder();
    for (const row of view.rows) this.updateRow(row);
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
    const { view } = this.store;
    const titles = view.columns.map((column) =>
      element("th", { scope: "col", class: columnClass(column) }, column.title),
    );
    this.head.replaceChildren(...titles, element("th", { scope: "col", class: "tfos-rank1" }, "Heartbeat"));
    this.rows = new Map(view.rows.map(({ node }) => [node, this.makeRow(node)]));
    this.body.replaceChildren();
    this.shownOrder = "";
  }

  /** Moves the rows where the view has them: the trials of a search come best first. */
  private reorder(): void {
    const order = this.store.view.rows.map((row) => row.node);
    if (order.join() === this.shownOrder) return;
    this.shownOrder = order.join();
    const focused = document.activeElement;
    this.body.append(...order.flatMap((node) => rowsOf(this.rows.get(node))));
    // A row that moves loses the focus.
    if (focused instanceof HTMLElement && this.body.contains(focused)) focused.focus({ preventScroll: true });
  }

  private makeRow(node: string): ShownRow {
    const row = element("tr", { class: `tfos-hue${this.store.hueOf(node)}` });
    const cells = new Map<string, HTMLTableCellElement>();
    for (const column of this.store.view.columns) {
      const isName = column.key === "node";
      const cell = element(isName ? "th" : "td", { class: columnClass(column), ...(isName && { scope: "row" }) });
      cells.set(column.key, cell);
      row.append(cell);
    }
    const link = element("button", { class: "tfos-node-link", type: "button", title: `Show the log of ${node}` }, node);
    link.addEventListener("click", () => this.openLog(node));
    cells.get("node")?.append(element("span", { class: "tfos-mark", "aria-hidden": "true" }), link);
    const heartbeat = element("td", { class: "tfos-rank1 tfos-heartbeat" });
    row.append(heartbeat);
    return { row, cells, heartbeat, bar: null, detail: null, state: "" };
  }

  private updateRow(row: Row): void {
    const shown = this.rows.get(row.node);
    if (!shown) return;
    for (const [key, cell] of shown.cells) {
      if (key === "state") this.updateState(shown, cell, row);
      else if (key === this.store.view.bar) this.updateProgress(shown, cell, row);
      else if (key !== "node") {
        setText(cell, row.cells[key] ?? "");
        setAttribute(cell, "title", row.cells[key] ?? "");
      }
    }
    this.updateDetail(shown, row);
  }

  private updateState(shown: ShownRow, cell: HTMLTableCellElement, row: Row): void {
    setAttribute(cell, "title", row.detail);
    if (shown.state === row.state) return;
    shown.state = row.state;
    setAttribute(shown.row, "data-state", row.state);
    const shape = NODE_STATES[row.state]?.shape ?? "waiting";
    cell.replaceChildren(element("span", { class: "tfos-state", "data-state": row.state }, icon(shape), row.state));
  }

  private updateProgress(shown: ShownRow, cell: HTMLTableCellElement, row: Row): void {
    const text = row.cells[this.store.view.bar] ?? "";
    if (row.progress === null) {
      shown.bar = null;
      setText(cell, text);
      return;
    }
    const bar = (shown.bar ??= makeProgressBar(cell, row.node));
    setText(bar.text, text);
    setAttribute(bar.box, "data-state", row.state);
    setAttribute(bar.box, "aria-valuenow", String(Math.round(row.progress * 100)));
    bar.fill.style.width = `${row.progress * 100}%`;
  }

  private updateDetail(shown: ShownRow, row: Row): void {
    if (!row.broken) {
      shown.detail?.row.remove();
      shown.detail = null;
      return;
    }
    if (!shown.detail) {
      const cell = element("td", { colspan: String(shown.cells.size + 1) });
      shown.detail = { row: element("tr", { class: "tfos-detail" }, cell), cell };
      shown.row.after(shown.detail.row);
    }
    setText(shown.detail.cell, row.broken);
  }
}

function rowsOf(shown: ShownRow | undefined): HTMLElement[] {
  if (!shown) return [];
  return shown.detail ? [shown.row, shown.detail.row] : [shown.row];
}

function makeProgressBar(cell: HTMLElement, node: string): ProgressBar {
  const [fill, text] = [element("div"), element("span")];
  const label = `Progress of ${node}`;
  const box = element("div", { class: "tfos-bar", role: "progressbar", "aria-label": label }, fill);
  cell.replaceChildren(element("div", { class: "tfos-progress" }, box, text));
  return { box, fill, text };
}

function columnClass(column: Column): string {
  return `tfos-rank${column.rank}${column.numeric ? " tfos-numeric" : ""}`;
}
