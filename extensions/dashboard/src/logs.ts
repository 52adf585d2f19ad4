// Logs: a tab for all nodes and one for each, a filter, following the end, and a link to the whole file of a node.

import { appendRuns, element, plural, setAttribute, setText } from "./dom";
import { ALL, LogLines, type LogSelection } from "./log_lines";
import { serverUrl } from "./page";
import type { KeptChunk, Store } from "./store";

/** When more than this waits for a frame (a hidden page draws none), everything is drawn again instead. */
const MAX_WAITING = 400;

/** So near to the end counts as at the end, in pixels. */
const NEAR_END_PX = 24;

export class LogTabs {
  private readonly tabs = element("div", { class: "tfos-tabs", role: "tablist", "aria-label": "Logs" });
  private readonly filter = element("input", {
    class: "tfos-filter",
    type: "search",
    placeholder: "Filter lines",
    "aria-label": "Show only lines that contain",
  });
  private readonly count = element("span", { class: "tfos-count" });
  private readonly followButton = element("button", { class: "tfos-button tfos-follow", type: "button" }, "Follow");
  private readonly download = element("a", { class: "tfos-button tfos-download" }, "Download");
  private readonly dropped = element("div", { class: "tfos-notice" });
  private readonly open = element("div", { class: "tfos-open" });
  private readonly empty = element("div", { class: "tfos-notice" }, "No output yet.");
  private readonly lines: LogLines;
  private readonly panel: HTMLElement;
  private readonly resizes = new ResizeObserver(() => this.scrollToEnd());
  readonly el: HTMLElement;
  private shownNodes = "";
  private selection: LogSelection = { tab: "", filter: "" };
  private follow = true;
  private scrolled = { top: 0, height: 0, client: 0 };
  private waiting: KeptChunk[] = [];
  private stale = false;
  private frame = 0;

  /** `id` is unique in the page. */
  constructor(
    private readonly store: Store,
    private readonly id: string,
  ) {
    this.lines = new LogLines(store, () => this.wholeFile());
    this.panel = element(
      "div",
      { class: "tfos-panel", id: `${id}-panel`, role: "tabpanel", tabindex: "0", "aria-live": "off" },
      this.dropped,
      this.lines.el,
      this.open,
      this.empty,
    );
    const tools = [this.count, this.filter, this.followButton, this.download];
    const head = element("div", { class: "tfos-log-head" }, this.tabs, element("div", { class: "tfos-tools" }, ...tools));
    this.el = element("div", { class: "tfos-logs" }, head, this.panel);
    this.tabs.addEventListener("keydown", (event) => this.moveByKey(event));
    this.filter.addEventListener("input", () => this.setFilter(this.filter.value));
    this.followButton.addEventListener("click", () => this.setFollow(!this.follow));
    this.panel.addEventListener("scroll", () => this.onScroll());
    this.resizes.observe(this.panel);
    this.setFollow(true);
  }

  /** Shows the nodes and their states, from the view. */
  update(): void {
    const { rows } = this.store.view;
    const nodes = [...rows].sort((one, other) => one.place - other.place).map((row) => row.node);
    const { tab } = this.selection;
    // In a large cluster, a node may lose its row while its log is read.
    if (tab && tab !== ALL && !nodes.includes(tab)) nodes.push(tab);
    if (nodes.join() !== this.shownNodes) {
      this.shownNodes = nodes.join();
      this.makeTabs(nodes.length > 1 ? [ALL, ...nodes] : nodes);
    }
    for (const row of rows) {
      const tab = this.tabs.querySelector(`[data-tab="${CSS.escape(row.node)}"]`);
      if (tab) setAttribute(tab, "data-state", row.state);
    }
    this.linkFile();
  }

  /** Shows the tab of a node, or of all. */
  select(name: string): void {
    this.selection = { ...this.selection, tab: name };
    for (const tab of this.tabs.children) {
      const chosen = tab.getAttribute("data-tab") === name;
      setAttribute(tab, "aria-selected", String(chosen));
      setAttribute(tab, "tabindex", chosen ? "0" : "-1");
      if (chosen) {
        setAttribute(this.panel, "aria-labelledby", tab.id);
        tab.scrollIntoView?.({ block: "nearest", inline: "nearest" });
      }
    }
    setAttribute(this.panel, "data-tab", name === ALL ? ALL : "node");
    this.linkFile();
    this.setFollow(true);
    this.redraw();
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
    this.resizes.disconnect();
  }

  // ---- tabs and tools -------------------------------------------------------------------------------------------------

  private makeTabs(names: string[]): void {
    const buttons = names.map((name) => {
      const tab = element("button", {
        class: "tfos-tab",
        type: "button",
        role: "tab",
        id: `${this.id}-tab-${name}`,
        "data-tab": name,
        "aria-controls": `${this.id}-panel`,
      });
      tab.append(name === ALL ? "All" : name);
      tab.addEventListener("click", () => this.select(name));
      return tab;
    });
    this.tabs.replaceChildren(...buttons);
    const [first] = names;
    if (first !== undefined) this.select(names.includes(this.selection.tab) ? this.selection.tab : first);
  }

  private moveByKey(event: KeyboardEvent): void {
    const tabs = [...this.tabs.children] as HTMLElement[];
    const at = tabs.indexOf(event.target as HTMLElement);
    const moves: Record<string, number> = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 };
    const to = moves[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const tab = tabs[(to + tabs.length) % tabs.length];
    this.select(tab?.getAttribute("data-tab") ?? ALL);
    tab?.focus();
  }

  /** Links the whole file of the node, where the Jupyter server has it. */
  private linkFile(): void {
    const { name, rows } = this.store.view;
    const row = rows.find(({ node }) => node === this.selection.tab);
    const url = row?.log ? serverUrl(`files/${row.log}`) : null;
    this.download.hidden = !url;
    if (!row || !url) return;
    setAttribute(this.download, "href", url.href);
    setAttribute(this.download, "download", `${name}-${row.node}.log`.replace(/[^\w.-]+/g, "-"));
  }

  private setFilter(text: string): void {
    this.selection = { ...this.selection, filter: text.trim().toLowerCase() };
    this.redraw();
  }

  // ---- following the end ----------------------------------------------------------------------------------------------

  private setFollow(follow: boolean): void {
    this.showFollow(follow);
    this.scrollToEnd();
  }

  private showFollow(follow: boolean): void {
    this.follow = follow;
    setAttribute(this.followButton, "aria-pressed", String(follow));
  }

  /** Scrolling up stops following; scrolling back to the end follows again. */
  private onScroll(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.panel;
    const { top, height, client } = this.scrolled;
    this.scrolled = { top: scrollTop, height: scrollHeight, client: clientHeight };
    // Dropped text, and a panel that is resized, move the position too.
    const shrunk = Math.max(0, height - scrollHeight);
    const byHand = top - scrollTop > shrunk + 2 && clientHeight === client;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    if (this.follow && byHand) this.showFollow(false);
    else if (this.follow && !atEnd) this.scrollToEnd();
    else if (!this.follow && atEnd && scrollTop >= top) this.showFollow(true);
  }

  private scrollToEnd(): void {
    if (this.follow) this.panel.scrollTop = this.panel.scrollHeight;
  }

  // ---- drawing --------------------------------------------------------------------------------------------------------

  private schedule(): void {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  private draw(): void {
    const { tab, filter } = this.selection;
    this.frame = 0;
    if (this.stale) this.lines.drawAll(this.selection);
    else this.lines.drawNew(this.waiting, this.selection);
    this.stale = false;
    this.waiting = [];
    this.drawOpen();
    const dropped = this.store.droppedLinesOf(tab === ALL ? null : tab);
    this.dropped.hidden = !dropped;
    if (dropped) setText(this.dropped, `${plural(dropped, "earlier line")} not kept here; ${this.wholeFile()}`);
    this.empty.hidden = !this.lines.isEmpty || this.open.childElementCount > 0;
    setText(this.empty, filter ? "No line matches." : "No output yet.");
    setText(this.count, filter ? plural(this.lines.matches, "line") : "");
    this.scrollToEnd();
  }

  /** The unfinished lines: progress bars, prompts. In the All tab one for each node that has one. */
  private drawOpen(): void {
    const { tab, filter } = this.selection;
    const blocks = [];
    for (const [node, runs] of this.store.open) {
      if (filter || (tab !== ALL && node !== tab)) continue;
      const block = element("div", { class: `tfos-chunk tfos-hue${this.store.hueOf(node)}` });
      if (tab === ALL) block.append(element("span", { class: "tfos-who" }, node));
      appendRuns(block, runs);
      blocks.push(block);
    }
    this.open.replaceChildren(...blocks);
  }

  private wholeFile(): string {
    const { run_dir } = this.store.view;
    return run_dir ? `whole files in ${run_dir}` : "the files are whole";
  }
}
