// The line that says how the cluster is: state, name, nodes, time, Stop; below it phases, reason and notes.

import { element, icon, setAttribute, setText } from "./dom.js";
import { ENDED, formatElapsed } from "./format.js";
import { requestStop } from "./stop.js";

/** After so long without an end, Stop may be pressed again: a second interrupt forces. */
const FORCE_AFTER_MS = 4000;

const STATE_SHAPES = {
  launching: "busy",
  reserving: "busy",
  starting: "busy",
  stopping: "busy",
  running: "running",
  done: "done",
  failed: "broken",
  stopped: "stopped",
};

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
    this.phases = element("div", { class: "tfos-phases" });
    this.reason = element("div", { class: "tfos-reason" });
    this.notes = element("div");
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
        element("div", { class: "tfos-actions" }, this.stop),
      ),
      this.reason,
      this.phases,
      this.notes,
      this.announcer,
    );
  }

  update() {
    const { view } = this.store;
    setText(this.name, view.name);
    setText(this.phases, view.phases);
    setText(this.reason, view.reason);
    this.reason.hidden = !view.reason;
    this.phases.hidden = !view.phases;
    if (this.notes.childElementCount !== view.notes.length) {
      this.notes.replaceChildren(...view.notes.map((note) => element("div", { class: "tfos-note" }, note)));
    }
    this.updateState(view.state);
    this.updateStop();
    this.tick();
  }

  /** Once a second: the time since the call. */
  tick() {
    const { view } = this.store;
    const seconds = (view.ended_s ?? this.store.nowS()) - view.started_s;
    setText(this.facts, `${view.headline} · ${formatElapsed(seconds)}`);
  }

  /** @param {string} state */
  updateState(state) {
    if (state === this.shownState) return;
    const first = this.shownState === "";
    this.shownState = state;
    setAttribute(this.state, "data-state", state);
    this.state.replaceChildren(icon(STATE_SHAPES[state] ?? "waiting"), state);
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
