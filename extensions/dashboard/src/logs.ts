// Logs: those of all nodes or of one, by the tabs that Python draws; a filter, and a link to the whole file of a node.
//
// The browser follows the end by itself: the panel's column is a reversed one, so that 0 is its end, and what its reader
// has scrolled to stays in place. Each chunk is a block.

import { element, plural, setAttribute, setText } from "./dom";
import type { Model } from "./model";
import { Part, parseParts } from "./morph";
import { serverUrl } from "./page";
import type { KeptChunk, Store } from "./store";

/** The tab of all nodes. */
const ALL = "all";

/** When more than this waits for a frame (a hidden page draws none), everything is drawn again instead. */
const MAX_WAITING = 400;

/** So near to the end counts as at the end, in pixels. */
const NEAR_END_PX = 24;

export class Logs {
  private readonly tabs: Part;
  private readonly filter = element("input", {
    class: "tfos-filter",
    type: "search",
    placeholder: "Filter lines",
    "aria-label": "Show only lines that contain",
  });
  private readonly count = element("span", { class: "tfos-count" });
  private readonly follow = element("button", { class: "tfos-button tfos-follow", type: "button" }, "Follow");
  private readonly download = element("a", { class: "tfos-button tfos-download" }, "Download");
  private readonly dropped = element("div", { class: "tfos-notice" });
  private readonly open = element("div", { class: "tfos-open" });
  private readonly empty = element("div", { class: "tfos-notice" }, "No output yet.");
  private readonly finished = element("div");
  private readonly panel: HTMLElement;
  readonly el: HTMLElement;
  private readonly drawn = new Map<KeptChunk, HTMLElement>();
  /** The node whose block was drawn last. */
  private lastNode = "";
  /** Lines that match the filter. */
  private matches = 0;
  private waiting: KeptChunk[] = [];
  private stale = false;
  private frame = 0;

  constructor(
    private readonly store: Store,
    model: Model,
  ) {
    this.tabs = new Part(model, "tabs", element("div", { class: "tfos-tabs", role: "radiogroup", "aria-label": "Logs" }));
    const parts = element("div", { class: "tfos-lines" }, this.dropped, this.finished, this.open, this.empty);
    this.panel = element("div", { class: "tfos-panel", role: "region", "aria-label": "Log", tabindex: "0" }, parts);
    const tools = element("div", { class: "tfos-tools" }, this.count, this.filter, this.follow, this.download);
    // Tabs of other cards are in other forms; Enter sends this one nowhere.
    const head = element("form", { class: "tfos-log-head", method: "dialog" }, this.tabs.el, tools);
    this.el = element("div", { class: "tfos-logs" }, head, this.panel);
    this.tabs.el.addEventListener("change", () => this.showChosen());
    this.filter.addEventListener("input", () => this.redraw());
    this.follow.addEventListener("click", () => this.panel.scrollTo({ top: 0 }));
    this.panel.addEventListener("scroll", () => this.showFollow());
    this.showFollow();
  }

  /** Shows the tabs as Python has drawn them. */
  update(): void {
    const before = this.chosen;
    this.tabs.update();
    // In a large cluster, a node may lose its row while its log is read.
    if (before && !this.tabs.el.contains(before)) this.tabs.el.append(before.parentElement as Element);
    if (!this.chosen) this.select(this.tabs.el.querySelector("input")?.value ?? ALL);
    else this.linkFile();
  }

  /** Shows the log of a node, or of all. */
  select(name: string): void {
    const tab = this.tabs.el.querySelector<HTMLInputElement>(`input[value="${CSS.escape(name)}"]`);
    if (!tab) return;
    tab.checked = true;
    this.showChosen();
  }

  /** Draws new chunks at the next frame. */
  add(chunks: KeptChunk[]): void {
    if (this.waiting.length + chunks.length > MAX_WAITING) {
      this.waiting = [];
      this.stale = true;
    } else if (!this.stale) {
      this.waiting.push(...chunks);
    }
    this.schedule();
  }

  /** Draws everything again at the next frame. */
  redraw(): void {
    this.waiting = [];
    this.stale = true;
    this.schedule();
  }

  close(): void {
    cancelAnimationFrame(this.frame);
  }

  private get chosen(): HTMLInputElement | null {
    return this.tabs.el.querySelector<HTMLInputElement>(":checked");
  }

  private showChosen(): void {
    this.chosen?.scrollIntoView({ block: "nearest", inline: "nearest" });
    this.linkFile();
    this.panel.scrollTop = 0;
    this.redraw();
  }

  /** Links the whole file of the node, where the Jupyter server has it. */
  private linkFile(): void {
    const { value = ALL, dataset } = this.chosen ?? { dataset: {} as DOMStringMap };
    const url = dataset["log"] ? serverUrl(`files/${dataset["log"]}`) : null;
    this.download.hidden = !url;
    if (!url) return;
    setAttribute(this.download, "href", url.href);
    setAttribute(this.download, "download", `${this.store.view.name}-${value}.log`.replace(/[^\w.-]+/g, "-"));
  }

  private showFollow(): void {
    setAttribute(this.follow, "aria-pressed", String(this.panel.scrollTop > -NEAR_END_PX));
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  private schedule(): void {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  private draw(): void {
    const [tab, filter] = [this.chosen?.value ?? ALL, this.filter.value.trim().toLowerCase()];
    this.frame = 0;
    setAttribute(this.panel, "data-tab", tab === ALL ? ALL : "node");
    if (this.stale) {
      this.drawn.clear();
      this.finished.replaceChildren();
      this.lastNode = "";
      this.matches = 0;
    }
    const chunks = this.stale ? this.store.chunks : this.waiting;
    this.finished.append(...chunks.flatMap((chunk) => this.drawChunk(chunk, tab, filter) ?? []));
    for (const [chunk, block] of this.drawn) {
      if (!chunk.gone) continue;
      block.remove();
      this.drawn.delete(chunk);
    }
    this.stale = false;
    this.waiting = [];
    this.drawOpen(tab, filter);
    const dropped = this.store.droppedLinesOf(tab === ALL ? null : tab);
    this.dropped.hidden = !dropped;
    if (dropped) setText(this.dropped, `${plural(dropped, "earlier line")} not kept here; ${this.wholeFile()}`);
    this.empty.hidden = this.drawn.size > 0 || this.open.childElementCount > 0;
    setText(this.empty, filter ? "No line matches." : "No output yet.");
    setText(this.count, filter ? plural(this.matches, "line") : "");
  }

  private drawChunk(chunk: KeptChunk, tab: string, filter: string): HTMLElement | null {
    if (chunk.gone || (tab !== ALL && chunk.node !== tab)) return null;
    const texts = filter ? textOf(chunk.html).toLowerCase().split("\n") : [];
    const lines = chunk.html.split("\n").slice(0, -1).filter((_, at) => !filter || texts[at]?.includes(filter));
    const note = filter ? "" : chunk.note;
    if (!lines.length && !note) return null;
    this.matches += lines.length;
    const block = this.makeBlock(chunk.node, tab === ALL && chunk.node !== this.lastNode);
    this.lastNode = chunk.node;
    if (note) block.append(element("div", { class: "tfos-notice" }, `${note}; ${this.wholeFile()}`));
    // The block ends its last line already; only an empty line needs its newline.
    block.append(...parseParts(lines.join("\n") + (lines.at(-1) === "" ? "\n" : "")).childNodes);
    // The browser does not lay out blocks that are out of sight; their height follows well enough from their lines.
    block.style.setProperty("--tfos-lines", String(Math.max(1, lines.length)));
    this.drawn.set(chunk, block);
    return block;
  }

  /** The unfinished lines: progress bars, prompts. In the All tab one for each node that has one. */
  private drawOpen(tab: string, filter: string): void {
    const blocks = [];
    for (const [node, html] of this.store.open) {
      if (filter || (tab !== ALL && node !== tab)) continue;
      const block = this.makeBlock(node, tab === ALL);
      block.append(...parseParts(html).childNodes);
      blocks.push(block);
    }
    this.open.replaceChildren(...blocks);
  }

  /** An empty block of a node, with its name where there are others'. */
  private makeBlock(node: string, named: boolean): HTMLElement {
    const name = named ? [element("span", { class: "tfos-who" }, node)] : [];
    return element("div", { class: `tfos-chunk tfos-hue${this.store.hueOf(node)}` }, ...name);
  }

  private wholeFile(): string {
    const { run_dir } = this.store.view;
    return run_dir ? `whole files in ${run_dir}` : "the files are whole";
  }
}

function textOf(html: string): string {
  return parseParts(html).textContent ?? "";
}
