// Draws the finished lines of a log: one block for each batch, one text node for each style.

import { appendRuns, element } from "./dom";
import type { Run } from "./model";
import type { KeptChunk, Store } from "./store";

/** The tab of all nodes. */
export const ALL = "all";

/** What is shown of the log. */
export interface LogSelection {
  /** A node, or all. */
  readonly tab: string;
  /** Only lines that contain it, in lower case; empty shows all. */
  readonly filter: string;
}

export class LogLines {
  readonly el = element("div");
  /** Lines that match the filter. */
  matches = 0;
  private readonly drawn = new Map<KeptChunk, HTMLElement>();
  private lastNode = "";

  constructor(
    private readonly store: Store,
    private readonly wholeFile: () => string,
  ) {}

  get isEmpty(): boolean {
    return this.drawn.size === 0;
  }

  drawAll(selection: LogSelection): void {
    this.drawn.clear();
    this.lastNode = "";
    this.matches = 0;
    this.el.replaceChildren();
    this.drawNew(this.store.chunks, selection);
  }

  drawNew(chunks: readonly KeptChunk[], selection: LogSelection): void {
    this.el.append(...chunks.flatMap((chunk) => this.drawChunk(chunk, selection) ?? []));
    for (const [chunk, block] of this.drawn) {
      if (!chunk.gone) continue;
      block.remove();
      this.drawn.delete(chunk);
    }
  }

  private drawChunk(chunk: KeptChunk, { tab, filter }: LogSelection): HTMLElement | null {
    if (chunk.gone || (tab !== ALL && chunk.node !== tab)) return null;
    const lines = linesOf(chunk.runs).filter((line) => !filter || textOf(line).toLowerCase().includes(filter));
    const note = filter ? "" : chunk.note;
    if (!lines.length && !note) return null;
    this.matches += lines.length;
    const block = element("div", { class: `tfos-chunk tfos-hue${this.store.hueOf(chunk.node)}` });
    if (tab === ALL && chunk.node !== this.lastNode) {
      block.append(element("span", { class: "tfos-who" }, chunk.node));
      this.lastNode = chunk.node;
    }
    if (note) block.append(element("div", { class: "tfos-notice" }, `${note}; ${this.wholeFile()}`));
    appendRuns(block, withoutLastNewline(filter ? lines.flat() : chunk.runs));
    // The browser does not lay out blocks that are out of sight; their height follows well enough from their lines.
    block.style.setProperty("--tfos-lines", String(Math.max(1, lines.length)));
    this.drawn.set(chunk, block);
    return block;
  }
}

function textOf(runs: readonly Run[]): string {
  return runs.map(([text]) => text).join("");
}

/** The block that holds the text ends its last line already; only an empty line needs its newline. */
function withoutLastNewline(runs: Run[]): Run[] {
  const [text, classes] = runs.at(-1) ?? ["", ""];
  if (!text.endsWith("\n")) return runs;
  const before = text.length > 1 ? text.at(-2) : runs.at(-2)?.[0].at(-1);
  if (before === undefined || before === "\n") return runs;
  return [...runs.slice(0, -1), [text.slice(0, -1), classes]];
}

/** The runs of each finished line, newlines included. */
function linesOf(runs: readonly Run[]): Run[][] {
  const lines: Run[][] = [];
  let line: Run[] = [];
  for (const [text, classes] of runs) {
    for (const piece of text.split(/(?<=\n)/)) {
      line.push([piece, classes]);
      if (!piece.endsWith("\n")) continue;
      lines.push(line);
      line = [];
    }
  }
  return lines;
}
