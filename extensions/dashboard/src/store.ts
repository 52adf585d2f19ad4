// What the page knows of one cluster: its view, and a bounded history of log text.

import type { Card } from "./card";
import type { Chunk, LogBatch, LogHistory, View } from "./model";

/** Lines kept in the browser: of one node, and of all nodes together. The files have all. */
const KEEP_PER_NODE = 5000;
const KEEP_IN_ALL = 20000;
/** At least so many of each, however many nodes there are. */
const KEEP_AT_LEAST = 500;

/** A chunk is marked when the history drops it, so that views can drop what they have drawn of it. */
export interface KeptChunk extends Chunk {
  gone?: boolean;
}

export class Store {
  view: View;
  /** In order of arrival, without the dropped ones. */
  chunks: KeptChunk[] = [];
  /** The unfinished line of each node. */
  readonly open = new Map<string, string>();
  /** The views of it. */
  readonly cards = new Set<Card>();
  /** Why nobody follows the run any more. */
  lostReason = "";
  /** The number of the first batch of log text that is here; 1 where nothing is missing. */
  firstSeq = 0;
  /** When the kernel last sent anything, by the browser's clock. */
  lastMessageS = 0;
  private readonly lineCounts = new Map<string, number>();
  private droppedLines = new Map<string, number>();

  constructor(view: View) {
    this.view = view;
    this.setView(view);
  }

  // ---- state ----------------------------------------------------------------------------------------------------------

  /** The view has changed, or a part that Python draws. */
  setView(view: View): void {
    if (this.view.state === "lost") return;
    this.onMessage();
    this.show(view);
  }

  private show(view: View): void {
    this.view = view;
    for (const card of this.cards) card.update();
  }

  /** The kernel has sent something. */
  onMessage(): void {
    this.lastMessageS = Date.now() / 1000;
  }

  /** Seconds since the kernel last sent anything about a run that goes on. */
  silentS(): number {
    return this.view.ended ? 0 : Date.now() / 1000 - this.lastMessageS;
  }

  /**
   * The kernel is gone, and the nodes go with it: the view stays as the run was.
   *
   * `sentence` says what happened, and when; returns whether the run had not ended before.
   */
  lose(sentence: string): boolean {
    if (this.view.ended) return false;
    const { view } = this;
    this.lostReason =
      `${sentence} This is how the run was then; its nodes end by themselves, and their output until then is in ` +
      `${view.run_dir}.`;
    this.show({ ...view, state: "lost", ended: true });
    return true;
  }

  /** The number of a node's colour. */
  hueOf(node: string): number {
    return this.view.hues[node] ?? 0;
  }

  // ---- logs -----------------------------------------------------------------------------------------------------------

  addLogs({ seq, chunks, open }: LogBatch): void {
    this.firstSeq ||= seq;
    for (const chunk of chunks) this.keep(chunk);
    this.setOpen(open);
    for (const card of this.cards) card.logs.add(chunks);
  }

  replaceLogs({ chunks, open, forgotten }: Omit<LogHistory, "seq">): void {
    this.firstSeq = 1;
    this.chunks = [];
    this.lineCounts.clear();
    this.droppedLines = new Map(Object.entries(forgotten));
    this.open.clear();
    for (const chunk of chunks) this.keep(chunk);
    this.setOpen(open);
    for (const card of this.cards) card.logs.redraw();
  }

  /** Frees the text once the static picture has replaced all views. */
  dropLogs(): void {
    if (this.cards.size === 0) this.replaceLogs({ chunks: [], open: {}, forgotten: {} });
  }

  /** How many lines of one node, or of all, are no longer kept here. */
  droppedLinesOf(node: string | null): number {
    if (node !== null) return this.droppedLines.get(node) ?? 0;
    return [...this.droppedLines.values()].reduce((sum, lines) => sum + lines, 0);
  }

  private setOpen(open: Record<string, string>): void {
    for (const [node, html] of Object.entries(open)) {
      if (html) this.open.set(node, html);
      else this.open.delete(node);
    }
  }

  private keep(chunk: KeptChunk): void {
    this.chunks.push(chunk);
    const nodes = Math.max(1, Object.keys(this.view.hues).length);
    const limit = Math.max(KEEP_AT_LEAST, Math.min(KEEP_PER_NODE, KEEP_IN_ALL / nodes));
    let lines = (this.lineCounts.get(chunk.node) ?? 0) + chunk.lines;
    while (lines > limit) {
      const at = this.chunks.findIndex(({ node }) => node === chunk.node);
      const oldest = this.chunks[at] as KeptChunk;
      if (oldest === chunk) break;
      this.chunks.splice(at, 1);
      oldest.gone = true;
      lines -= oldest.lines;
      this.droppedLines.set(chunk.node, (this.droppedLines.get(chunk.node) ?? 0) + oldest.lines);
    }
    this.lineCounts.set(chunk.node, lines);
  }
}
