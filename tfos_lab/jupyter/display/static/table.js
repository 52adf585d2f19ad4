// The node table: one row per node, changed cell by cell, so that a large cluster costs what has changed.

import { element, icon, setAttribute, setText } from "./dom.js";
import { HEARTBEATING, ENDED, LATE_S, formatElapsed } from "./format.js";
import { NODE_STATES } from "./states.js";

/**
 * @typedef {{row: HTMLTableRowElement, cells: Map<string, HTMLTableCellElement>, beat: HTMLTableCellElement,
 *   bar: HTMLElement | null, detail: HTMLTableRowElement | null, state: string}} ShownRow
 */

export class NodeTable {
  /**
   * @param {Store} store
   * @param {(node: string) => void} openLog called when a node's name is pressed
   */
  constructor(store, openLog) {
    this.store = store;
    this.openLog = openLog;
    this.shownColumns = "";
    /** @type {Map<string, ShownRow>} */
    this.rows = new Map();
    this.head = element("tr");
    this.body = element("tbody");
    this.caption = element("caption", { class: "tfos-hidden" });
    this.el = element(
      "div",
      { class: "tfos-table-box", role: "region", "aria-label": "Nodes", tabindex: "0" },
      element("table", { class: "tfos-table" }, this.caption, element("thead", {}, this.head), this.body),
    );
  }

  update() {
    const { view } = this.store;
    setText(this.caption, `Nodes of ${view.name}`);
    const columns = [view.bar, ...view.columns.map((column) => column.key)].join();
    if (columns !== this.shownColumns || view.rows.length !== this.rows.size) {
      this.shownColumns = columns;
      this.rebuild();
    }
    for (const row of view.rows) this.updateRow(row);
    this.tick();
  }

  /** Once a second: the age of the heartbeats. */
  tick() {
    const now = this.store.nowS();
    const ended = ENDED.has(this.store.view.state);
    for (const { node, state, heartbeat_s } of this.store.view.rows) {
      const cell = this.rows.get(node)?.beat;
      if (!cell) continue;
      const age = heartbeat_s === null || ended || !HEARTBEATING.has(state) ? null : Math.max(0, now - heartbeat_s);
      setText(cell, age === null ? "" : age < LATE_S ? "now" : `${formatElapsed(age)} ago`);
      cell.classList.toggle("tfos-late", age !== null && age >= LATE_S);
    }
  }

  rebuild() {
    const { view } = this.store;
    const titles = view.columns.map((column) =>
      element("th", { scope: "col", class: columnClass(column) }, column.title),
    );
    this.head.replaceChildren(...titles, element("th", { scope: "col", class: "tfos-rank1" }, "Heartbeat"));
    this.rows = new Map(view.rows.map((row, index) => [row.node, this.makeRow(row.node, index)]));
    this.body.replaceChildren(...[...this.rows.values()].map((shown) => shown.row));
  }

  /**
   * @param {string} node
   * @param {number} index
   * @returns {ShownRow}
   */
  makeRow(node, index) {
    const row = element("tr", { class: `tfos-hue${index % 7}` });
    const cells = new Map();
    for (const column of this.store.view.columns) {
      const isName = column.key === "node";
      const cell = element(isName ? "th" : "td", { class: columnClass(column), ...(isName && { scope: "row" }) });
      cells.set(column.key, cell);
      row.append(cell);
    }
    const link = element("button", { class: "tfos-node-link", type: "button", title: `Show the log of ${node}` }, node);
    link.addEventListener("click", () => this.openLog(node));
    cells.get("node").append(element("span", { class: "tfos-mark", "aria-hidden": "true" }), link);
    const beat = element("td", { class: "tfos-rank1 tfos-heartbeat" });
    row.append(beat);
    return { row, cells, beat, bar: null, detail: null, state: "" };
  }

  /** @param {Row} row */
  updateRow(row) {
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

  /**
   * @param {ShownRow} shown
   * @param {HTMLTableCellElement} cell
   * @param {Row} row
   */
  updateState(shown, cell, row) {
    setAttribute(cell, "title", row.detail);
    if (shown.state === row.state) return;
    shown.state = row.state;
    setAttribute(shown.row, "data-state", row.state);
    const word = element("span", { class: "tfos-state", "data-state": row.state });
    word.append(icon(NODE_STATES[row.state]?.shape ?? "waiting"), row.state);
    cell.replaceChildren(word);
  }

  /**
   * @param {ShownRow} shown
   * @param {HTMLTableCellElement} cell
   * @param {Row} row
   */
  updateProgress(shown, cell, row) {
    const text = row.cells[this.store.view.bar] ?? "";
    if (row.progress === null) {
      shown.bar = null;
      setText(cell, text);
      return;
    }
    if (!shown.bar) {
      shown.bar = element("div", { class: "tfos-bar", role: "progressbar", "aria-label": `Progress of ${row.node}` });
      shown.bar.append(element("div"));
      cell.replaceChildren(element("div", { class: "tfos-progress" }, shown.bar, element("span")));
    }
    const percent = Math.round(row.progress * 100);
    setText(/** @type {Element} */ (cell.querySelector("span")), text);
    setAttribute(shown.bar, "data-state", row.state);
    setAttribute(shown.bar, "aria-valuenow", String(percent));
    /** @type {HTMLElement} */ (shown.bar.firstElementChild).style.width = `${row.progress * 100}%`;
  }

  /**
   * @param {ShownRow} shown
   * @param {Row} row
   */
  updateDetail(shown, row) {
    if (!row.broken) {
      shown.detail?.remove();
      shown.detail = null;
      return;
    }
    if (!shown.detail) {
      shown.detail = element("tr", { class: "tfos-detail" }, element("td", { colspan: String(shown.cells.size + 1) }));
      shown.row.after(shown.detail);
    }
    setText(/** @type {Element} */ (shown.detail.firstElementChild), row.broken);
  }
}

/** @param {Column} column */
function columnClass(column) {
  return `tfos-rank${column.rank}${column.numeric ? " tfos-numeric" : ""}`;
}
