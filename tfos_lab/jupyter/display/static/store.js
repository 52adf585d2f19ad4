// What the front end knows of one cluster: its view, the kernel's clock, the lines of its metrics, and a bounded history
// of log text.

import { HEARTBEATING, ENDED } from "./format.js";

/**
 * @typedef {[text: string, classes: string]} Run
 * @typedef {{node: string, runs: Run[], lines: number, note: string, gone?: boolean}} Chunk
 * @typedef {{node: string, state: string, detail: string, broken: string, cells: Record<string, string>,
 *   progress: number | null, heartbeat_s: number | null}} Row
 * @typedef {{key: string, title: string, numeric: boolean, rank: number}} Column
 * @typedef {{name: string, kind: string, start_s: number, end_s: number | null, track: number}} Span
 * @typedef {{older: string[], line: string, shares: string, progress: number | null, complete: boolean}} Feed
 * @typedef {{id: string, name: string, state: string, reason: string, notes: string[], headline: string,
 *   spans: Span[], feed: Feed | null, spark_ui: string, tensorboard: {state: string, reason: string} | null,
 *   started_s: number, ended_s: number | null, now_s: number, run_dir: string, bar: string, columns: Column[],
 *   rows: Row[]}} View
 * @typedef {{metric: string, node: string, fresh: boolean, points: Point[], last: Point | null}} SeriesPoints
 * @typedef {{version: number, kept: Map<string, Point[]>, nodes: Map<string, Point[]>}} Lines
 *   of one metric: the points that stay, and those to draw, with the newest at their end
 * @typedef {{viewChanged?: () => void, metricsChanged?: () => void, logsAdded?: (chunks: Chunk[]) => void,
 *   logsReplaced?: () => void}} Listener
 */

/** Lines kept in the browser: for one node, and for all nodes together. The files are whole. */
const KEEP_PER_NODE = 5000;
const KEEP_IN_ALL = 20000;

export class Store {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    /** @type {Chunk[]} in order of arrival, without the ones that were forgotten */
    this.chunks = [];
    /** @type {Map<string, Run[]>} the unfinished line of each node */
    this.open = new Map();
    /** @type {Map<string, number>} lines that were forgotten, by node */
    this.forgotten = new Map();
    this.stopRequested = false;
    /** @type {Set<{take: (message: any, buffers: DataView[]) => void}>} */
    this.downloads = new Set();
    /** @type {Map<string, Chunk[]>} */
    this.byNode = new Map();
    /** @type {Map<string, number>} */
    this.kept = new Map();
    this.goneChunks = 0;
    /** @type {Map<string, Lines>} by metric */
    this.series = new Map();
    this.firstSeq = 0;
    this.clockOffsetS = 0;
    this.heardS = 0;
    /** @type {Set<Listener>} */
    this.listeners = new Set();
    this.setView(view);
  }

  /** @param {View} view */
  setView(view) {
    if (this.view.state === "lost") return;
    this.heard();
    this.clockOffsetS = Date.now() / 1000 - view.now_s;
    this.show(view);
  }

  /** @param {View} view */
  show(view) {
    this.view = view;
    for (const listener of this.listeners) listener.viewChanged?.();
  }

  /** The kernel has said something. */
  heard() {
    this.heardS = Date.now() / 1000;
  }

  /** Seconds since the kernel has said anything of a run that goes on. */
  silentS() {
    return ENDED.has(this.view.state) ? 0 : Date.now() / 1000 - this.heardS;
  }

  /**
   * The kernel has gone, and the nodes go with it: what is shown is how the run was.
   * @param {string} sentence what happened, and when
   * @returns {boolean} whether the run had not ended before
   */
  lose(sentence) {
    const { view } = this;
    if (ENDED.has(view.state)) return false;
    const ended_s = this.nowS();
    this.show({
      ...view,
      state: "lost",
      reason:
        `${sentence} This is how the run was then; its nodes end by themselves, and what they said until then is in ` +
        `${view.run_dir}.`,
      headline: `last seen with ${view.headline}`,
      ended_s,
      spans: view.spans.map((span) => ({ ...span, end_s: span.end_s ?? ended_s - view.started_s })),
      rows: view.rows.map((row) => (HEARTBEATING.has(row.state) || row.state === "waiting" ? lostRow(row) : row)),
    });
    return true;
  }

  /** The kernel's clock, in seconds since the epoch. */
  nowS() {
    return Date.now() / 1000 - this.clockOffsetS;
  }

  /**
   * A node's place in the table.
   * @param {string} node
   */
  placeOf(node) {
    return Math.max(0, this.view.rows.findIndex((row) => row.node === node));
  }

  /**
   * The number of a node's colour.
   * @param {string} node
   */
  hueOf(node) {
    return this.placeOf(node) % 7;
  }

  /** @param {{series: SeriesPoints[]}} message */
  addMetrics({ series }) {
    for (const { metric, node, fresh, points, last } of series) {
      const lines = this.series.get(metric) ?? { version: 0, kept: new Map(), nodes: new Map() };
      const kept = fresh ? points : [...(lines.kept.get(node) ?? []), ...points];
      lines.kept.set(node, kept);
      lines.nodes.set(node, last ? [...kept, last] : kept);
      lines.version += 1;
      this.series.set(metric, lines);
    }
    for (const listener of this.listeners) listener.metricsChanged?.();
  }

  /**
   * A piece of a log file that a download has asked for.
   * @param {any} message
   * @param {DataView[]} buffers
   */
  takeFile(message, buffers) {
    for (const download of this.downloads) download.take(message, buffers);
  }

  /** @param {{seq: number, chunks: Chunk[], open: Record<string, Run[]>}} message */
  addLogs({ seq, chunks, open }) {
    this.firstSeq ||= seq;
    for (const chunk of chunks) this.keep(chunk);
    this.setOpen(open);
    for (const listener of this.listeners) listener.logsAdded?.(chunks);
  }

  /** @param {{chunks: Chunk[], open: Record<string, Run[]>, forgotten: Record<string, number>}} message */
  replaceLogs({ chunks, open, forgotten }) {
    this.firstSeq = 1;
    this.chunks = [];
    this.byNode.clear();
    this.kept.clear();
    this.forgotten = new Map(Object.entries(forgotten));
    this.open.clear();
    for (const chunk of chunks) this.keep(chunk);
    this.setOpen(open);
    for (const listener of this.listeners) listener.logsReplaced?.();
  }

  /** Lets the text go: the static picture has taken over. */
  forgetLogs() {
    if (this.listeners.size === 0) this.replaceLogs({ chunks: [], open: {}, forgotten: {} });
  }

  /** @param {Record<string, Run[]>} open */
  setOpen(open) {
    for (const [node, runs] of Object.entries(open)) {
      if (runs.length) this.open.set(node, runs);
      else this.open.delete(node);
    }
  }

  /** @param {Chunk} chunk */
  keep(chunk) {
    this.chunks.push(chunk);
    const own = this.byNode.get(chunk.node) ?? [];
    own.push(chunk);
    this.byNode.set(chunk.node, own);
    let lines = (this.kept.get(chunk.node) ?? 0) + chunk.lines;
    const room = Math.max(500, Math.min(KEEP_PER_NODE, KEEP_IN_ALL / Math.max(1, this.view.rows.length)));
    while (lines > room && own.length > 1) {
      const oldest = /** @type {Chunk} */ (own.shift());
      oldest.gone = true;
      this.goneChunks += 1;
      lines -= oldest.lines;
      this.forgotten.set(chunk.node, (this.forgotten.get(chunk.node) ?? 0) + oldest.lines);
    }
    this.kept.set(chunk.node, lines);
    if (this.goneChunks > 200) {
      this.chunks = this.chunks.filter((kept) => !kept.gone);
      this.goneChunks = 0;
    }
  }

  /**
   * Lines that are no longer kept here, of one node or of all.
   * @param {string | null} node
   */
  forgottenLines(node) {
    if (node !== null) return this.forgotten.get(node) ?? 0;
    return [...this.forgotten.values()].reduce((sum, lines) => sum + lines, 0);
  }
}

/**
 * @param {Row} row
 * @returns {Row}
 */
function lostRow(row) {
  return { ...row, state: "lost", cells: { ...row.cells, state: "lost" } };
}
