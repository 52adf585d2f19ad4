// The header: state, name, nodes, time, links and Stop in a line; below it reason, notes, phases and feeds.

import { element, icon, setAttribute, setText } from "./dom";
import { SILENT_S, formatClock, formatElapsed } from "./format";
import type { Feed, View } from "./messages";
import type { Model } from "./model";
import { CLUSTER_STATES } from "./states";
import { requestStop } from "./stop";
import type { Store } from "./store";
import { TensorBoardLink } from "./tensorboard";
import { Timeline } from "./timeline";

/** After so long without an end, Stop may be pressed again: a second interrupt forces. */
const FORCE_AFTER_MS = 4000;

export class Header {
  private readonly state = element("span", { class: "tfos-state" });
  private readonly name = element("span", { class: "tfos-name" });
  private readonly facts = element("span", { class: "tfos-facts" });
  private readonly progressFill = element("div");
  private readonly progressBar = element(
    "div",
    { class: "tfos-bar", role: "progressbar", "aria-label": "Progress of the training" },
    this.progressFill,
  );
  private readonly progressText = element("span", { class: "tfos-part" });
  private readonly left = element("span", { class: "tfos-left-text" });
  private readonly progress = element(
    "span",
    { class: "tfos-overall" },
    this.progressBar,
    this.progressText,
    this.left,
  );
  private readonly alarm = element("div", { class: "tfos-alarm", role: "alert", hidden: true });
  private readonly verdict = element("div", { class: "tfos-verdict", hidden: true });
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
  private readonly timeline: Timeline;
  private readonly feedFill = element("div");
  private readonly feedBar = element(
    "div",
    { class: "tfos-bar", role: "progressbar", "aria-label": "Progress of the feed" },
    this.feedFill,
  );
  private readonly feedLine = element("span");
  private readonly feedShares = element("span", { class: "tfos-facts" });
  private readonly feed = element("div", { class: "tfos-feed" }, this.feedBar, this.feedLine, this.feedShares);
  private readonly olderFeeds = element("div");
  private readonly reason = element("div", { class: "tfos-reason" });
  private readonly notes = element("div");
  private readonly silence = element("div", { class: "tfos-silence", hidden: true });
  private readonly announcer = element("span", { class: "tfos-hidden", role: "status", "aria-live": "polite" });
  readonly el: HTMLElement;
  private shownState = "";
  private announcedHung = "";
  private factsLength = 0;
  private mayForce = false;
  private forceTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly store: Store,
    private readonly model: Model,
  ) {
    this.tensorboard = new TensorBoardLink(store);
    this.timeline = new Timeline(store);
    this.stop.addEventListener("click", () => this.requestStop());
    const actions = element("div", { class: "tfos-actions" }, this.tensorboard.el, this.sparkUi, this.stop);
    this.el = element(
      "div",
      { class: "tfos-top" },
      element("div", { class: "tfos-header" }, this.state, this.name, this.facts, this.progress, actions),
      this.reason,
      this.silence,
      this.alarm,
      this.verdict,
      this.notes,
      this.tensorboard.note,
      this.timeline.el,
      this.olderFeeds,
      this.feed,
      this.announcer,
    );
  }

  update(): void {
    const { view } = this.store;
    setText(this.name, view.name);
    setText(this.reason, view.reason);
    this.reason.hidden = !view.reason;
    this.updateProgress(view);
    setText(this.alarm, view.alarm);
    this.alarm.hidden = !view.alarm;
    this.updateVerdict(view.verdict);
    this.announceHung(view);
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

  /** Once a second: the time since the call, and what goes on. */
  tick(): void {
    const { view } = this.store;
    const seconds = (view.ended_s ?? this.store.nowS()) - view.started_s;
    const facts = `${view.headline} · ${formatElapsed(seconds)}`;
    setText(this.facts, facts);
    // What stands after it does not move when it gets shorter.
    this.factsLength = Math.max(this.factsLength, facts.length);
    this.facts.style.minWidth = `${(0.82 * this.factsLength).toFixed(1)}ch`;
    this.timeline.tick();
    this.updateSilence();
  }

  close(): void {
    clearTimeout(this.forceTimer);
  }

  private updateProgress({ progress, left }: View): void {
    this.progress.hidden = progress === null;
    if (progress === null) return;
    const percent = Math.floor(progress * 100);
    setAttribute(this.progressBar, "aria-valuenow", String(percent));
    this.progressFill.style.width = `${progress * 100}%`;
    setText(this.progressText, `${percent} %`);
    setText(this.left, left);
  }

  /** Its line stays once there has been one, so that nothing below jumps. */
  private updateVerdict(verdict: string): void {
    if (verdict) this.verdict.hidden = false;
    setText(this.verdict, verdict);
  }

  private announceHung(view: View): void {
    const hung = view.rows.filter((row) => row.hung).map((row) => row.node);
    if (hung.join() === this.announcedHung) return;
    this.announcedHung = hung.join();
    if (hung.length) this.announcer.textContent = `${view.name}: ${hung.join(", ")} hangs`;
  }

  private updateSparkUi(address: string): void {
    this.sparkUi.hidden = !/^https?:/.test(address);
    if (!this.sparkUi.hidden) setAttribute(this.sparkUi, "href", address);
  }

  private updateFeed(feed: Feed | null): void {
    this.feed.hidden = !feed;
    this.updateOlderFeeds(feed?.older ?? []);
    if (!feed) return;
    setText(this.feedLine, feed.line);
    setText(this.feedShares, feed.shares);
    this.feedBar.hidden = feed.progress === null;
    const part = feed.progress ?? 0;
    setAttribute(this.feedBar, "data-state", feed.complete ? "done" : "running");
    setAttribute(this.feedBar, "aria-valuenow", String(Math.round(part * 100)));
    this.feedFill.style.width = `${part * 100}%`;
  }

  private updateOlderFeeds(lines: string[]): void {
    const shown = this.olderFeeds.children;
    while (shown.length > lines.length) shown[shown.length - 1]?.remove();
    while (shown.length < lines.length) this.olderFeeds.append(element("div", { class: "tfos-older-feed" }));
    lines.forEach((line, index) => setText(shown[index] as Element, line));
  }

  private updateSilence(): void {
    const { store } = this;
    this.silence.hidden = store.silentS() < SILENT_S;
    if (this.silence.hidden) return;
    const since = formatClock(new Date(store.lastMessageS * 1000));
    setText(this.silence, `No word from the kernel since ${since}: shown is how the run was then. Logs: ${store.view.run_dir}`);
  }

  private updateState(state: string): void {
    if (state === this.shownState) return;
    const first = this.shownState === "";
    this.shownState = state;
    setAttribute(this.state, "data-state", state);
    this.state.replaceChildren(icon(CLUSTER_STATES[state]?.shape ?? "waiting"), state);
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
