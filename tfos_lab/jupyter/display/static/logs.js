// Logs: a tab for all nodes and one for each, a filter, following the end, folding of repeats, and download. One text
// node for each batch.

import { appendRuns, element, icon, setAttribute, setText } from "./dom.js";
import { Download, fileName, saveAs } from "./download.js";
import { foldRuns, styledLines } from "./fold.js";
import { formatBytes, plural } from "./format.js";

const ALL = "all";

/** More than this waiting for a frame (a hidden page draws none) is drawn afresh instead. */
const MAX_WAITING = 400;

/**
 * @typedef {{text: string, count: number, line: HTMLElement, block: HTMLElement, chunk: Chunk}} Tail
 *   the last line that was drawn, so that the next batch can go on counting it
 */

/** So near to the end counts as at the end, in pixels. */
const NEAR_END_PX = 24;

export class LogTabs {
  /**
   * @param {Store} store
   * @param {Model} model
   * @param {string} id unique in the page
   */
  constructor(store, model, id) {
    this.store = store;
    this.model = model;
    this.id = id;
    this.fold = true;
    /** @type {Tail | null} */
    this.tail = null;
    /** @type {Download | null} */
    this.download = null;
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
    this.followButton = element("button", { class: "tfos-button tfos-toggle", type: "button" }, icon("down"), "Follow");
    this.followButton.addEventListener("click", () => this.setFollow(!this.follow));
    this.foldButton = element(
      "button",
      { class: "tfos-button tfos-toggle", type: "button", title: "Show lines that repeat once, with a count" },
      icon("fold"),
      "Fold",
    );
    this.foldButton.addEventListener("click", () => this.setFold(!this.fold));
    setAttribute(this.foldButton, "aria-pressed", "true");
    this.saveLabel = element("span", {}, "Download");
    this.saveButton = element("button", { class: "tfos-button", type: "button" }, icon("save"), this.saveLabel);
    this.saveButton.addEventListener("click", () => void this.save());
    this.saveNote = element("div", { class: "tfos-notice tfos-save-note", role: "note" });
    this.saveNote.hidden = true;
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
        element(
          "div",
          { class: "tfos-tools" },
          this.count,
          this.filter,
          this.foldButton,
          this.followButton,
          this.saveButton,
        ),
      ),
      this.saveNote,
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
    /** @type {Record<string, number>} */
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

  /** @param {boolean} fold */
  setFold(fold) {
    this.fold = fold;
    setAttribute(this.foldButton, "aria-pressed", String(fold));
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
    this.tail = null;
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
      if (this.tail?.chunk === chunk) this.tail = null;
    }
  }

  /**
   * @param {Chunk} chunk
   * @param {DocumentFragment} page
   */
  drawChunk(chunk, page) {
    if (chunk.gone || (this.selected !== ALL && chunk.node !== this.selected)) return;
    const block = element("div", { class: `tfos-chunk tfos-hue${this.store.hueOf(chunk.node)}` });
    if (chunk.note && !this.filterText) {
      block.append(element("div", { class: "tfos-notice" }, `${chunk.note}; ${this.wholeFile()}`));
    }
    const noted = block.firstChild !== null;
    const matchesBefore = this.matches;
    const runs = this.filterText ? this.matchingRuns(chunk.runs) : chunk.runs;
    const lines = this.filterText ? this.matches - matchesBefore : chunk.lines;
    if (!runs.length && !noted) return;
    if (this.selected === ALL && chunk.node !== this.lastNode) {
      block.prepend(element("span", { class: "tfos-who" }, chunk.node));
      this.lastNode = chunk.node;
      this.tail = null;
    }
    if (noted) this.tail = null;
    const shown = this.fold ? this.drawFolded(chunk, runs, block) : lines;
    if (!this.fold) appendRuns(block, withoutLastNewline(runs));
    // What is out of sight is not laid out; its height is known well enough from its lines.
    block.style.setProperty("--tfos-lines", String(Math.max(1, shown)));
    this.drawn.set(chunk, block);
    page.append(block);
  }

  /**
   * Draws lines with their repeats folded; the line that the last batch ended with goes on being counted.
   * @param {Chunk} chunk
   * @param {Run[]} runs
   * @param {HTMLElement} block
   * @returns {number} how many lines are seen
   */
  drawFolded(chunk, runs, block) {
    let shown = 0;
    for (const piece of foldRuns(runs, this.tail?.text)) {
      shown += piece.lines;
      const [head, last] = piece.count > 1 || piece.again ? [[], piece.runs] : splitLastLine(piece.runs);
      appendRuns(block, head);
      const carried = piece.again && this.tail;
      const line = carried ? this.takeTail(carried, block) : element("div", { class: "tfos-last" });
      if (!carried) appendRuns(line, withoutLastNewline(last));
      const count = piece.count + (carried ? carried.count : 0);
      if (count > 1) showCount(line, count);
      block.append(line);
      this.tail = { text: piece.text, count, line, block, chunk };
    }
    return shown;
  }

  /**
   * Takes the last line out of its block, and the block away if nothing is left of it.
   * @param {Tail} tail
   * @param {HTMLElement} block where the line goes on
   */
  takeTail({ line, block: old, chunk }, block) {
    line.remove();
    const who = old.firstElementChild?.classList.contains("tfos-who") ? old.firstElementChild : null;
    if (old !== block && old.childNodes.length === (who ? 1 : 0)) {
      if (who) block.prepend(who);
      old.remove();
      this.drawn.delete(chunk);
    }
    return line;
  }

  /** The unfinished lines: progress bars, prompts. In the All tab one for each node that has one. */
  drawOpen() {
    const blocks = [];
    for (const [node, runs] of this.store.open) {
      if (this.filterText || (this.selected !== ALL && node !== this.selected)) continue;
      const block = element("div", { class: `tfos-chunk tfos-hue${this.store.hueOf(node)}` });
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
    return styledLines(runs)
      .filter((line) => this.isMatch(line))
      .flat();
  }

  /** @param {Run[]} line */
  isMatch(line) {
    const text = line.map(([piece]) => piece).join("");
    const found = text.toLowerCase().includes(this.filterText);
    if (found) this.matches += 1;
    return found;
  }

  wholeFile() {
    const { run_dir } = this.store.view;
    return run_dir ? `whole files in ${run_dir}` : "the files are whole";
  }

  // ---- download -----------------------------------------------------------------------------------------------------

  /** Saves the whole files of the tab's nodes; pressed again, it stops. */
  async save() {
    if (this.download) {
      this.download.cancel();
      return;
    }
    const { view } = this.store;
    const nodes = this.selected === ALL ? view.rows.map((row) => row.node) : [this.selected];
    const name = `${fileName([view.name, ...(nodes.length === 1 ? nodes : [])].join("-"))}.log`;
    const download = new Download(this.model, `${this.id}-${Math.random()}`, nodes, (done, whole) =>
      this.showSaving(done, whole),
    );
    this.download = download;
    this.store.downloads.add(download);
    this.showNote("");
    setText(this.saveLabel, "Downloading…");
    const file = await download.run();
    this.store.downloads.delete(download);
    this.download = null;
    setText(this.saveLabel, "Download");
    if (file) saveAs(file, name);
    else if (!download.cancelled) this.saveKept(nodes, name);
  }

  /**
   * @param {number} done
   * @param {number} whole
   */
  showSaving(done, whole) {
    if (whole > 4e6) setText(this.saveLabel, `${formatBytes(done)} of ${formatBytes(whole)}, press to cancel`);
  }

  /**
   * The kernel is busy and cannot be heard: what this page holds is better than nothing.
   * @param {string[]} nodes
   * @param {string} name
   */
  saveKept(nodes, name) {
    const chunks = this.store.chunks.filter((chunk) => nodes.includes(chunk.node));
    const parts = chunks.map(({ node, runs }) => {
      const text = runs.map(([piece]) => piece).join("");
      return nodes.length > 1 ? text.replace(/^(?=.)/gm, `[${node}] `) : text;
    });
    saveAs(new Blob(parts, { type: "text/plain" }), name);
    this.showNote(`The kernel is busy: the file holds only what this page keeps; ${this.wholeFile()}.`);
  }

  /** @param {string} text */
  showNote(text) {
    this.saveNote.hidden = !text;
    setText(this.saveNote, text);
  }

  close() {
    this.download?.cancel();
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

/**
 * Says how often a line came.
 * @param {HTMLElement} line
 * @param {number} count
 */
function showCount(line, count) {
  let badge = line.querySelector(".tfos-times");
  if (!badge) {
    badge = element("span", { class: "tfos-times" });
    line.append(" ", badge);
  }
  setText(badge, `× ${count.toLocaleString("en-US")}`);
  setAttribute(badge, "title", `This line came ${count.toLocaleString("en-US")} times in a row`);
}
