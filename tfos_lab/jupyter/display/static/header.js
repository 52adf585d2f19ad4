// The line that says how the cluster is: state, name, nodes, time, links, Stop; below it reason, notes, phases and feeds.

import { TensorBoardLink } from "./tensorboard.js";
import { element, icon, setAttribute, setText } from "./dom.js";
import { ENDED, SILENT_S, formatClock, formatElapsed } from "./format.js";
import { CLUSTER_STATES } from "./states.js";
import { requestStop } from "./stop.js";
import { Timeline } from "./timeline.js";

/** After so long without an end, Stop may be pressed again: a second interrupt forces. */
const FORCE_AFTER_MS = 4000;

export class Header {
  /**
   * @param {Store} store
   * @param {Model} model
   */
  constructor(store, model) {
    this.store = store;
    this.model = model;
    this.shownState = "";
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.forceTimer = undefined;
    this.state = element("span", { class: "tfos-state" });
    this.name = element("span", { class: "tfos-name" });
    this.facts = element("span", { class: "tfos-facts" });
    this.stopLabel = element("span");
    this.stop = element("button", { class: "tfos-button tfos-stop", type: "button" }, icon("stopped"), this.stopLabel);
    this.stop.addEventListener("click", () => this.requestStop());
    this.sparkUi = element(
      "a",
      { class: "tfos-button tfos-away", target: "_blank", rel: "noopener noreferrer" },
      icon("away"),
      "Spark UI",
    );
    this.tensorboard = new TensorBoardLink(store);
    this.timeline = new Timeline(store);
    this.feedBar = element("div", { class: "tfos-bar", role: "progressbar", "aria-label": "Progress of the feed" });
    this.feedBar.append(element("div"));
    this.feedLine = element("span");
    this.feedShares = element("span", { class: "tfos-facts" });
    this.feed = element("div", { class: "tfos-feed" }, this.feedBar, this.feedLine, this.feedShares);
    this.olderFeeds = element("div");
    this.reason = element("div", { class: "tfos-reason" });
    this.notes = element("div");
    this.silence = element("div", { class: "tfos-silence", hidden: true });
    this.announcer = element("span", { class: "tfos-hidden", role: "status", "aria-live": "polite" });
    this.el = element(
      "div",
      { class: "tfos-top" },
      element(
        "div",
        { class: "tfos-header" },
        this.state,
        this.name,
        this.facts,
        element("div", { class: "tfos-actions" }, this.tensorboard.el, this.sparkUi, this.stop),
      ),
      this.reason,
      this.silence,
      this.notes,
      this.tensorboard.note,
      this.timeline.el,
      this.olderFeeds,
      this.feed,
      this.announcer,
    );
  }

  update() {
    const { view } = this.store;
    setText(this.name, view.name);
    setText(this.reason, view.reason);
    this.reason.hidden = !view.reason;
    this.updateSparkUi(view.spark_ui);
    this.tensorboard.update();
    this.updateFeed(view.feed);
    if (this.notes.childElementCount !== view.notes.length) {
      this.notes.replaceChildren(...view.notes.map((note) => element("div", { class: "tfos-note" }, note)));
    }
    this.updateState(view.state);
    this.updateStop();
    this.timeline.update();
    this.tick();
  }

  /** @param {string} address */
  updateSparkUi(address) {
    this.sparkUi.hidden = !/^https?:/.test(address);
    if (!this.sparkUi.hidden) setAttribute(this.sparkUi, "href", address);
  }

  /** @param {Feed | null} feed */
  updateFeed(feed) {
    this.feed.hidden = !feed;
    this.updateOlderFeeds(feed?.older ?? []);
    if (!feed) return;
    setText(this.feedLine, feed.line);
    setText(this.feedShares, feed.shares);
    this.feedBar.hidden = feed.progress === null;
    const part = feed.progress ?? 0;
    setAttribute(this.feedBar, "data-state", feed.complete ? "done" : "running");
    setAttribute(this.feedBar, "aria-valuenow", String(Math.round(part * 100)));
    /** @type {HTMLElement} */ (this.feedBar.firstElementChild).style.width = `${part * 100}%`;
  }

  /** @param {string[]} lines */
  updateOlderFeeds(lines) {
    const shown = this.olderFeeds.children;
    while (shown.length > lines.length) shown[shown.length - 1]?.remove();
    while (shown.length < lines.length) this.olderFeeds.append(element("div", { class: "tfos-older-feed" }));
    lines.forEach((line, index) => setText(/** @type {Element} */ (shown[index]), line));
  }

  /** Once a second: the time since the call, and what goes on. */
  tick() {
    const { view } = this.store;
    const seconds = (view.ended_s ?? this.store.nowS()) - view.started_s;
    setText(this.facts, `${view.headline} · ${formatElapsed(seconds)}`);
    this.timeline.tick();
    this.updateSilence();
  }

  updateSilence() {
    const { store } = this;
    this.silence.hidden = store.silentS() < SILENT_S;
    if (this.silence.hidden) return;
    const since = formatClock(new Date(store.heardS * 1000));
    setText(this.silence, `No word from the kernel since ${since}: shown is how the run was then. Logs: ${store.view.run_dir}`);
  }

  /** @param {string} state */
  updateState(state) {
    if (state === this.shownState) return;
    const first = this.shownState === "";
    this.shownState = state;
    setAttribute(this.state, "data-state", state);
    this.state.replaceChildren(icon(CLUSTER_STATES[state]?.shape ?? "waiting"), state);
    if (!first) this.announcer.textContent = `${this.store.view.name}: ${state}`;
  }

  updateStop() {
    const { view, stopRequested } = this.store;
    const ended = ENDED.has(view.state);
    const stopping = stopRequested || view.state === "stopping";
    this.stop.hidden = ended;
    this.stop.disabled = ended || (stopping && !this.mayForce);
    setText(this.stopLabel, !stopping ? "Stop" : this.mayForce ? "Force stop" : "Stopping…");
    setAttribute(this.stop, "aria-label", `${this.stopLabel.textContent} ${view.name}`);
    if (ended) clearTimeout(this.forceTimer);
  }

  requestStop() {
    this.store.stopRequested = true;
    this.mayForce = false;
    clearTimeout(this.forceTimer);
    this.forceTimer = setTimeout(() => {
      this.mayForce = true;
      this.updateStop();
    }, FORCE_AFTER_MS);
    this.updateStop();
    void requestStop(this.model);
  }

  close() {
    clearTimeout(this.forceTimer);
  }
}
