// The top of the card: what Python draws of the run as a whole, with links and Stop beside it.

import { element, icon, setAttribute, setText } from "./dom";
import { SILENT_S, formatClock } from "./format";
import type { View } from "./messages";
import type { Model } from "./model";
import { Part, asLost } from "./parts";
import { requestStop } from "./stop";
import type { Store } from "./store";
import { TensorBoardLink } from "./tensorboard";

/** After so long without an end, Stop may be pressed again: a second interrupt forces. */
const FORCE_AFTER_MS = 4000;

export class Header {
  private readonly head: Part;
  private readonly course: Part;
  private readonly stopLabel = element("span");
  private readonly stop = element(
    "button",
    { class: "tfos-button tfos-stop", type: "button" },
    icon("stopped"),
    this.stopLabel,
  );
  private readonly sparkUi = element(
    "a",
    { class: "tfos-button tfos-away", target: "_blank", rel: "noopener noreferrer" },
    icon("away"),
    "Spark UI",
  );
  private readonly tensorboard: TensorBoardLink;
  private readonly reason = element("div", { class: "tfos-reason", hidden: true });
  private readonly silence = element("div", { class: "tfos-silence", hidden: true });
  private readonly announcer = element("span", { class: "tfos-hidden", role: "status", "aria-live": "polite" });
  readonly el: HTMLElement;
  private shownState = "";
  private announcedHung = "";
  private mayForce = false;
  private forceTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly store: Store,
    private readonly model: Model,
  ) {
    this.tensorboard = new TensorBoardLink(store);
    this.head = new Part(model, "head", element("div", { class: "tfos-head" }));
    this.course = new Part(model, "course", element("div"));
    this.stop.addEventListener("click", () => this.requestStop());
    const actions = element("div", { class: "tfos-actions" }, this.tensorboard.el, this.sparkUi, this.stop);
    this.el = element(
      "div",
      { class: "tfos-top" },
      element("div", { class: "tfos-top-line" }, this.head.el, actions),
      this.reason,
      this.silence,
      this.tensorboard.note,
      this.course.el,
      this.announcer,
    );
  }

  update(): void {
    const { view } = this.store;
    this.updateParts();
    this.announceHung(view);
    this.updateSparkUi(view.spark_ui);
    this.tensorboard.update();
    this.updateState(view.state);
    this.updateStop();
    this.tick();
  }

  /** Once a second: how long the kernel has been silent. */
  tick(): void {
    const { store } = this;
    this.silence.hidden = store.silentS() < SILENT_S;
    if (this.silence.hidden) return;
    const since = formatClock(new Date(store.lastMessageS * 1000));
    setText(this.silence, `No word from the kernel since ${since}: shown is how the run was then. Logs: ${store.view.run_dir}`);
  }

  close(): void {
    clearTimeout(this.forceTimer);
  }

  /** A lost run stays as it was. */
  updateParts(): void {
    const { lostReason } = this.store;
    if (!lostReason) {
      this.head.update();
      this.course.update();
    } else if (this.reason.hidden) {
      this.reason.hidden = false;
      setText(this.reason, lostReason);
      asLost(this.head.el);
    }
  }

  private announceHung(view: View): void {
    const { hung } = view;
    if (hung.join() === this.announcedHung) return;
    this.announcedHung = hung.join();
    if (hung.length) this.announcer.textContent = `${view.name}: ${hung.join(", ")} hangs`;
  }

  private updateSparkUi(address: string): void {
    this.sparkUi.hidden = !/^https?:/.test(address);
    if (!this.sparkUi.hidden) setAttribute(this.sparkUi, "href", address);
  }

  private updateState(state: string): void {
    if (state === this.shownState) return;
    const first = this.shownState === "";
    this.shownState = state;
    if (!first) this.announcer.textContent = `${this.store.view.name}: ${state}`;
  }

  private updateStop(): void {
    const { view, stopRequested, hasEnded } = this.store;
    const stopping = stopRequested || view.state === "stopping";
    this.stop.hidden = hasEnded;
    this.stop.disabled = hasEnded || (stopping && !this.mayForce);
    setText(this.stopLabel, !stopping ? "Stop" : this.mayForce ? "Force stop" : "Stopping…");
    setAttribute(this.stop, "aria-label", `${this.stopLabel.textContent} ${view.name}`);
    if (hasEnded) clearTimeout(this.forceTimer);
  }

  private requestStop(): void {
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
}
