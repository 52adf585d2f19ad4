// Logs: a tab for all nodes and one for each, a filter, and following the end. One text node for each batch.

import { appendRuns, element, icon, setAttribute, setText } from "./dom.js";
import { plural } from "./format.js";

const ALL = "all";

/** More than this waiting for a frame (a hidden page draws none) is drawn afresh instead. */
const MAX_WAITING = 400;

/** So near to the end counts as at the end, in pixels. */
const NEAR_END_PX = 24;

export class LogTabs {
  /**
   * @param {Store} store
   * @param {string} id unique in the page
   */
  constructor(store, id) {
    this.store = store;
    this.id = id;
    this.selected = "";
    this.shownNodes = "";
    this.follow = true;
    this.filterText = "";
    this.matches = 0;
    /** @type {Chunk[]} */
    this.waiting = [];
    this.stale = false;
    this.frame = 0;
    /** @type {Map<Chunk, HTMLElement>} */
    this.drawn = new Map();
    this.lastNode = "";
    this.scrolled = { top: 0, height: 0, client: 0 };
    this.tabs = element("div", { class: "tfos-tabs", role: "tablist", "aria-label": "Logs" });
    this.tabs.addEventListener("keydown", (event) => this.moveByKey(event));
    this.filter = element("input", {
      class: "tfos-filter",
      type: "search",
      placeholder: "Filter lines",
      "aria-label": "Show only lines that contain",
    });
    this.filter.addEventListener("input", () => this.setFilter(this.filter.value));
    this.count = element("span", { class: "tfos-count" });
    this.followButton = element("button", { class: "tfos-button tfos-follow", type: "button" }, icon("down"), "Follow");
    this.followButton.addEventListener("click", () => this.setFollow(!this.follow));
    this.forgotten = element("div", { class: "tfos-notice" });
    this.lines = element("div");
    this.open = element("div", { class: "tfos-open" });
    this.empty = element("div", { class: "tfos-notice" }, "No output yet.");
    this.panel = element(
      "div",
      { class: "tfos-panel", id: `${id}-panel`, role: "tabpanel", tabindex: "0", "aria-live": "off" },
      this.forgotten,
      this.lines,
      this.open,
      this.empty,
    );
    this.panel.addEventListener("scroll", () => this.noticeScroll());
    this.resizes = new ResizeObserver(() => this.scrollToEnd());
    this.resizes.observe(this.panel);
    this.el = element(
      "div",
      { class: "tfos-logs" },
      element(
        "div",
        { class: "tfos-log-head" },
        this.tabs,
        element("div", { class: "tfos-tools" }, this.count, this.filter, this.followButton),
      ),
      this.panel,
    );
    this.setFollow(true);
  }

  /** Nodes and their states, from the view. */
  update() {
    const { rows } = this.store.view;
    const nodes = rows.map((row) => row.node).join();
    if (nodes !== this.shownNodes) {
      this.shownNodes = nodes;
      this.makeTabs(rows.length > 1 ? [ALL, ...rows.map((row) => row.node)] : rows.map((row) => row.node));
    }
    for (const row of rows) {
      const tab = this.tabs.querySelector(`[data-tab="${CSS.escape(row.node)}"]`);
      if (tab) setAttribute(tab, "data-state", row.state);
    }
  }

  /** @param {string[]} names */
  makeTabs(names) {
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
    if (names.length) this.select(names.includes(this.selected) ? this.selected : /** @type {string} */ (names[0]));
  }

  /** @param {string} name */
  select(name) {
    this.selected = name;
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
    this.setFollow(true);
    this.redraw();
  }

  /** @param {KeyboardEvent} event */
  moveByKey(event) {
    const tabs = /** @type {HTMLElement[]} */ ([...this.tabs.children]);
    const at = tabs.indexOf(/** @type {HTMLElement} */ (event.target));
    const moves = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 };
    const to = moves[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const tab = tabs[(to + tabs.length) % tabs.length];
    this.select(/** @type {string} */ (tab?.getAttribute("data-tab")));
    tab?.focus();
  }

  /** @param {string} text */
  setFilter(text) {
    this.filterText = text.trim().toLowerCase();
    this.redraw();
  }

  /** @param {boolean} follow */
  setFollow(follow) {
    this.showFollow(follow);
    this.scrollToEnd();
  }

  /** @param {boolean} follow */
  showFollow(follow) {
    this.follow = follow;
    setAttribute(this.followButton, "aria-pressed", String(follow));
  }

  /** A person who scrolls up stops following; one who comes back to the end follows again. */
  noticeScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this.panel;
    const { top, height, client } = this.scrolled;
    this.scrolled = { top: scrollTop, height: scrollHeight, client: clientHeight };
    // Text that is forgotten, and a panel that is resized, move the position too.
    const shrunk = Math.max(0, height - scrollHeight);
    const byHand = top - scrollTop > shrunk + 2 && clientHeight === client;
    const atEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    if (this.follow && byHand) this.showFollow(false);
    else if (this.follow && !atEnd) this.scrollToEnd();
    else if (!this.follow && atEnd && scrollTop >= top) this.showFollow(true);
  }

  scrollToEnd() {
    if (this.follow) this.panel.scrollTop = this.panel.scrollHeight;
  }

  /** @param {Chunk[]} chunks */
  add(chunks) {
    if (this.waiting.length + chunks.length > MAX_WAITING) {
      this.waiting = [];
      this.stale = true;
    } else if (!this.stale) {
      this.waiting.push(...chunks);
    }
    this.schedule();
  }

  /** Draws everything again at the next frame. */
  redraw() {
    this.waiting = [];
    this.stale = true;
    this.schedule();
  }

  schedule() {
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    if (this.stale) this.drawAll();
    else this.drawNew();
    this.drawOpen();
    const forgotten = this.store.forgottenLines(this.selected === ALL ? null : this.selected);
    this.forgotten.hidden = !forgotten;
    if (forgotten) setText(this.forgotten, `${plural(forgotten, "earlier line")} not kept here; ${this.wholeFile()}`);
    this.empty.hidden = this.drawn.size > 0 || this.open.childElementCount > 0;
    setText(this.empty, this.filterText ? "No line matches." : "No output yet.");
    setText(this.count, this.filterText ? plural(this.matches, "line") : "");
    this.scrollToEnd();
  }

  drawAll() {
    this.stale = false;
    this.waiting = [];
    this.drawn.clear();
    this.lastNode = "";
    this.matches = 0;
    const page = document.createDocumentFragment();
    for (const chunk of this.store.chunks) this.drawChunk(chunk, page);
    this.lines.replaceChildren(page);
  }

  drawNew() {
    const page = document.createDocumentFragment();
    for (const chunk of this.waiting) this.drawChunk(chunk, page);
    this.waiting = [];
    this.lines.append(page);
    for (const [chunk, block] of this.drawn) {
      if (!chunk.gone) continue;
      block.remove();
      this.drawn.delete(chunk);
    }
  }

  /**
   * @param {Chunk} chunk
   * @param {DocumentFragment} page
   */
  drawChunk(chunk, page) {
    if (chunk.gone || (this.selected !== ALL && chunk.node !== this.selected)) return;
    const block = element("div", { class: `tfos-chunk tfos-hue${this.hueOf(chunk.node)}` });
    if (chunk.note && !this.filterText) {
      block.append(element("div", { class: "tfos-notice" }, `${chunk.note}; ${this.wholeFile()}`));
    }
    const matchesBefore = this.matches;
    const runs = this.filterText ? this.matchingRuns(chunk.runs) : chunk.runs;
    const lines = this.filterText ? this.matches - matchesBefore : chunk.lines;
    if (this.selected === ALL && (runs.length || block.firstChild) && chunk.node !== this.lastNode) {
      block.prepend(element("span", { class: "tfos-who" }, chunk.node));
      this.lastNode = chunk.node;
    }
    appendRuns(block, withoutLastNewline(runs));
    if (!block.firstChild) return;
    // What is out of sight is not laid out; its height is known well enough from its lines.
    block.style.setProperty("--tfos-lines", String(Math.max(1, lines)));
    this.drawn.set(chunk, block);
    page.append(block);
  }

  /** The unfinished lines: progress bars, prompts. In the All tab one for each node that has one. */
  drawOpen() {
    const blocks = [];
    for (const [node, runs] of this.store.open) {
      if (this.filterText || (this.selected !== ALL && node !== this.selected)) continue;
      const block = element("div", { class: `tfos-chunk tfos-hue${this.hueOf(node)}` });
      if (this.selected === ALL) block.append(element("span", { class: "tfos-who" }, node));
      appendRuns(block, runs);
      blocks.push(block);
    }
    this.open.replaceChildren(...blocks);
  }

  /**
   * @param {Run[]} runs
   * @returns {Run[]} the lines that contain the filter's text, with their styles
   */
  matchingRuns(runs) {
    /** @type {Run[]} */
    const kept = [];
    /** @type {Run[]} */
    let line = [];
    for (const [text, classes] of runs) {
      for (const piece of text.split(/(?<=\n)/)) {
        line.push([piece, classes]);
        if (!piece.endsWith("\n")) continue;
        if (this.isMatch(line)) kept.push(...line);
        line = [];
      }
    }
    return kept;
  }

  /** @param {Run[]} line */
  isMatch(line) {
    const text = line.map(([piece]) => piece).join("");
    const found = text.toLowerCase().includes(this.filterText);
    if (found) this.matches += 1;
    return found;
  }

  /** @param {string} node */
  hueOf(node) {
    return this.store.view.rows.findIndex((row) => row.node === node) % 7;
  }

  wholeFile() {
    const { run_dir } = this.store.view;
    return run_dir ? `whole files in ${run_dir}` : "the files are whole";
  }

  close() {
    cancelAnimationFrame(this.frame);
    this.resizes.disconnect();
  }
}

/**
 * The block that holds the text ends its last line already; only a line that is empty needs its newline.
 * @param {Run[]} runs
 * @returns {Run[]}
 */
function withoutLastNewline(runs) {
  const [text, classes] = runs.at(-1) ?? ["", ""];
  if (!text.endsWith("\n")) return runs;
  const before = text.length > 1 ? text.at(-2) : runs.at(-2)?.[0].at(-1);
  if (before === undefined || before === "\n") return runs;
  return [...runs.slice(0, -1), [text.slice(0, -1), classes]];
}
