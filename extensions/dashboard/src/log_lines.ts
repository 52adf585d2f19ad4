// Draws the finished lines of a log: one block for each batch, one text node for each style. Lines that repeat the one
// before are folded: shown once, with a count. Nothing is dropped: the counts add up to the lines.

import { appendRuns, element, setAttribute, setText } from "./dom";
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
  readonly fold: boolean;
}

/** The last line that was drawn, so that the next batch can continue its count. */
interface Tail {
  readonly text: string;
  readonly count: number;
  readonly line: HTMLElement;
  readonly block: HTMLElement;
  readonly chunk: KeptChunk;
}

export class LogLines {
  readonly el = element("div");
  /** Lines that match the filter. */
  matches = 0;
  private readonly drawn = new Map<KeptChunk, HTMLElement>();
  private tail: Tail | null = null;
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
    this.tail = null;
    this.matches = 0;
    this.el.replaceChildren(this.drawChunks(this.store.chunks, selection));
  }

  drawNew(chunks: readonly KeptChunk[], selection: LogSelection): void {
    this.el.append(this.drawChunks(chunks, selection));
    for (const [chunk, block] of this.drawn) {
      if (!chunk.gone) continue;
      block.remove();
      this.drawn.delete(chunk);
      if (this.tail?.chunk === chunk) this.tail = null;
    }
  }

  private drawChunks(chunks: readonly KeptChunk[], selection: LogSelection): DocumentFragment {
    const page = document.createDocumentFragment();
    for (const chunk of chunks) this.drawChunk(chunk, selection, page);
    return page;
  }

  private drawChunk(chunk: KeptChunk, { tab, filter, fold }: LogSelection, page: DocumentFragment): void {
    if (chunk.gone || (tab !== ALL && chunk.node !== tab)) return;
    const block = element("div", { class: `tfos-chunk tfos-hue${this.store.hueOf(chunk.node)}` });
    if (chunk.note && !filter) {
      block.append(element("div", { class: "tfos-notice" }, `${chunk.note}; ${this.wholeFile()}`));
    }
    const noted = block.firstChild !== null;
    const matchesBefore = this.matches;
    const runs = filter ? this.matchingRuns(chunk.runs, filter) : chunk.runs;
    const lines = filter ? this.matches - matchesBefore : chunk.lines;
    if (!runs.length && !noted) return;
    if (tab === ALL && chunk.node !== this.lastNode) {
      block.prepend(element("span", { class: "tfos-who" }, chunk.node));
      this.lastNode = chunk.node;
      this.tail = null;
    }
    if (noted) this.tail = null;
    const shown = fold ? this.drawFolded(chunk, runs, block) : lines;
    if (!fold) appendRuns(block, withoutLastNewline(runs));
    // The browser does not lay out blocks that are out of sight; their height follows well enough from their lines.
    block.style.setProperty("--tfos-lines", String(Math.max(1, shown)));
    this.drawn.set(chunk, block);
    page.append(block);
  }

  /** Draws lines with their repeats folded, going on with the count of the last batch; returns how many are shown. */
  private drawFolded(chunk: KeptChunk, runs: Run[], block: HTMLElement): number {
    let shown = 0;
    for (const piece of foldRuns(runs, this.tail?.text)) {
      shown += piece.lines;
      const [head, last] = piece.count > 1 || piece.again ? [[], piece.runs] : splitLastLine(piece.runs);
      appendRuns(block, head);
      const carried = piece.again ? this.tail : null;
      const line = carried ? this.takeTail(carried, block) : element("div", { class: "tfos-last" });
      if (!carried) appendRuns(line, withoutLastNewline(last));
      const count = piece.count + (carried?.count ?? 0);
      if (count > 1) showCount(line, count);
      block.append(line);
      this.tail = { text: piece.text, count, line, block, chunk };
    }
    return shown;
  }

  /** Takes the last line out of its block, for the block where it goes on; removes the old one if nothing is left. */
  private takeTail({ line, block: old, chunk }: Tail, block: HTMLElement): HTMLElement {
    line.remove();
    const who = old.firstElementChild?.classList.contains("tfos-who") ? old.firstElementChild : null;
    if (old !== block && old.childNodes.length === (who ? 1 : 0)) {
      if (who) block.prepend(who);
      old.remove();
      this.drawn.delete(chunk);
    }
    return line;
  }

  /** The lines that contain the filter's text, with their styles; counts them. */
  private matchingRuns(runs: Run[], filter: string): Run[] {
    const matching = styledLines(runs).filter((line) => textOf(line).toLowerCase().includes(filter));
    this.matches += matching.length;
    return matching.flat();
  }
}

export function textOf(runs: readonly Run[]): string {
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

/** Shows how often a line came. */
function showCount(line: HTMLElement, count: number): void {
  let badge = line.querySelector(".tfos-times");
  if (!badge) {
    badge = element("span", { class: "tfos-times" });
    line.append(" ", badge);
  }
  setText(badge, `× ${count.toLocaleString("en-US")}`);
  setAttribute(badge, "title", `This line came ${count.toLocaleString("en-US")} times in a row`);
}

// ---- folding ------------------------------------------------------------------------------------------------------------

/** A stretch of lines as they are, or one line that came `count` times. */
export interface Piece {
  runs: Run[];
  lines: number;
  count: number;
  /** The last line. */
  text: string;
  /** Whether it repeats the line before all of these. */
  again: boolean;
}

/** Text that repeats in more places is drawn as it is: each fold costs an element. */
const MAX_PIECES = 60;

/**
 * Splits finished lines into stretches without repeats and single lines with a count. Blank lines are never folded.
 *
 * `before` is the line before, if its count may go on.
 */
export function foldRuns(runs: Run[], before: string | null = null): Piece[] {
  const lines = runs.map(([text]) => text).join("").split("\n");
  lines.pop(); // what follows the last newline
  const repeats = (line: string, index: number) => line === (index ? lines[index - 1] : before) && line.trim() !== "";
  const whole = { runs, lines: lines.length, count: 1, text: lines.at(-1) ?? "", again: false };
  if (!lines.some(repeats)) return lines.length ? [whole] : [];
  const pieces: Piece[] = [];
  const styled = styledLines(runs);
  lines.forEach((line, index) => {
    const last = pieces.at(-1);
    const own = styled[index] as Run[];
    if (repeats(line, index)) {
      if (!last) pieces.push({ runs: own, lines: 1, count: 1, text: line, again: true });
      else if (last.lines === 1) last.count += 1;
      else {
        // The line that is repeated leaves its stretch.
        last.lines -= 1;
        last.runs.length -= (styled[index - 1] as Run[]).length;
        last.text = "";
        pieces.push({ runs: own, lines: 1, count: 2, text: line, again: false });
      }
    } else if (!last || last.count > 1 || last.again) {
      pieces.push({ runs: [...own], lines: 1, count: 1, text: line, again: false });
    } else {
      last.runs.push(...own);
      last.lines += 1;
      last.text = line;
    }
  });
  return pieces.length > MAX_PIECES ? [whole] : pieces;
}

/** Splits the last line off finished lines. */
export function splitLastLine(runs: Run[]): [head: Run[], last: Run[]] {
  for (let index = runs.length - 1; index >= 0; index -= 1) {
    const [text, classes] = runs[index] as Run;
    const before = text.length - (index === runs.length - 1 ? 1 : 0); // its own newline does not count
    const cut = text.slice(0, before).lastIndexOf("\n");
    if (cut < 0) continue;
    const rest = text.slice(cut + 1);
    const head: Run[] = [...runs.slice(0, index), [text.slice(0, cut + 1), classes]];
    const last: Run[] = rest ? [[rest, classes]] : [];
    return [head, [...last, ...runs.slice(index + 1)]];
  }
  return [[], runs];
}

/** The runs of each finished line, newlines included. */
export function styledLines(runs: readonly Run[]): Run[][] {
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
