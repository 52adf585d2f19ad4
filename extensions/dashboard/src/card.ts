// A view of the card: the parts that Python draws are put in, their links get the addresses of this page's server, and what
// is pressed in them is done.

import { element, formatClock, setAttribute, setText } from "./dom";
import { Logs } from "./logs";
import type { Model } from "./model";
import { isDark, requestStop, serverUrl } from "./page";
import { Part, asLost } from "./morph";
import type { Store } from "./store";
import { Tips } from "./tips";

/** A kernel that sends nothing for so long is silent: it sends something every few seconds. */
const SILENT_S = 20;

/** After so long without an end, Stop may be pressed again: a second interrupt forces. */
const FORCE_AFTER_MS = 4000;

/** The kernel answers within a few seconds, if messages reach it at all while a cell runs. */
const STACKS_PATIENCE_MS = 15_000;

/** JupyterLab's extension handles this event and opens a tab of its own; elsewhere the link opens one of the browser. */
const OPEN_TENSORBOARD = "tfos-lab:open-tensorboard";

const NO_ANSWER = "No answer from the kernel within 15 s: it may take no messages while the cell runs.";

export class Card {
  // Jupyter's one-letter shortcuts (and its arrow keys) must not act on the cell while focus is in here.
  readonly el = element("div", { class: "tfos tfos-live", "data-lm-suppress-shortcuts": "true" });
  readonly logs: Logs;
  private readonly head: Part;
  private readonly charts: Part;
  private readonly stacks: Part;
  private readonly others: Part[];
  private readonly tips: Tips;
  private readonly reason = element("div", { class: "tfos-reason", hidden: true });
  private readonly silence = element("div", { class: "tfos-silence", hidden: true });
  private readonly unanswered = element("div", { class: "tfos-notice", hidden: true }, NO_ANSWER);
  private readonly clock = setInterval(() => this.tick(), 1000);
  private waitsForStop: ReturnType<typeof setTimeout> | undefined;
  private waitsForStacks: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly store: Store,
    private readonly model: Model,
  ) {
    this.head = new Part(model, "head", element("div", { class: "tfos-top-line" }));
    this.charts = new Part(model, "charts", element("div"));
    this.stacks = new Part(model, "stacks", element("div"));
    const course = new Part(model, "course", element("div"));
    const nodes = new Part(model, "nodes", element("div"));
    const shown = new Part(model, "shown", element("div"));
    this.others = [course, nodes, shown];
    this.tips = new Tips(this.charts.el, element("div", { class: "tfos-all-charts" }));
    this.logs = new Logs(store, model);
    const top = [this.head.el, this.reason, this.silence, course.el];
    const stacks = element("div", { class: "tfos-all-stacks" }, this.stacks.el, this.unanswered);
    this.el.append(element("div", { class: "tfos-top" }, ...top), nodes.el, stacks, this.tips.el, shown.el, this.logs.el);
    this.el.addEventListener("click", (event) => this.press(event));
    this.update();
  }

  /** Shows the run as it is now; a lost one stays as it was. */
  update(): void {
    const { lostReason } = this.store;
    if (this.reason.hidden) {
      this.logs.update();
      this.head.update();
      this.showActions();
      for (const part of this.others) part.update();
      if (this.charts.update()) this.tips.update();
      if (this.stacks.update()) this.endStacks(true);
      if (lostReason) {
        this.reason.hidden = false;
        setText(this.reason, lostReason);
        clearTimeout(this.waitsForStop);
        clearTimeout(this.waitsForStacks);
        asLost(this.el);
      }
    }
    this.tick();
  }

  close(): void {
    clearInterval(this.clock);
    clearTimeout(this.waitsForStop);
    clearTimeout(this.waitsForStacks);
    this.logs.close();
    this.el.remove();
  }

  /** Once a second: how long the kernel has been silent. */
  private tick(): void {
    const { store } = this;
    this.silence.hidden = store.silentS() < SILENT_S;
    if (this.silence.hidden) return;
    const since = formatClock(new Date(store.lastMessageS * 1000));
    setText(this.silence, `No word from the kernel since ${since}: shown is how the run was then. Logs: ${store.view.run_dir}`);
  }

  private showActions(): void {
    const address = serverUrl(`tfos-lab/tb/${encodeURIComponent(this.store.view.id)}/`);
    if (address && isDark()) address.searchParams.set("darkMode", "true");
    const tensorboard = this.head.el.querySelector("[data-do=tensorboard]");
    if (tensorboard && address) setAttribute(tensorboard, "href", address.href);
    const stop = this.head.el.querySelector<HTMLButtonElement>("[data-do=stop]");
    if (!stop || this.waitsForStop === undefined) return;
    stop.disabled = true;
    setText(stop, "Stopping…");
    setAttribute(stop, "aria-label", `Stopping… ${this.store.view.name}`);
  }

  // ---- what is pressed ------------------------------------------------------------------------------------------------

  private press(event: MouseEvent): void {
    const pressed = (event.target as Element).closest<HTMLElement>("[data-do]");
    switch (pressed?.dataset["do"]) {
      case "stop":
        return this.stop();
      case "tensorboard":
        return this.openTensorBoard(event);
      case "log":
        return this.logs.select(pressed.closest("tr")?.dataset["key"] ?? "");
      case "stacks":
        if (pressed.getAttribute("aria-disabled") !== "true") this.askStacks(pressed.dataset["node"] ?? "");
    }
  }

  private stop(): void {
    this.waitsForStop = setTimeout(() => {
      this.waitsForStop = undefined;
      this.head.redraw();
      this.showActions();
    }, FORCE_AFTER_MS);
    this.showActions();
    void requestStop(this.model);
  }

  private openTensorBoard(event: MouseEvent): void {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const { id, name } = this.store.view;
    const asked = new CustomEvent(OPEN_TENSORBOARD, { detail: { id, name }, cancelable: true });
    if (!document.dispatchEvent(asked)) event.preventDefault();
  }

  /** Python draws the button as pressed as soon as the kernel asks the node, and the stacks when they are there. */
  private askStacks(node: string): void {
    clearTimeout(this.waitsForStacks);
    this.waitsForStacks = setTimeout(() => this.endStacks(false), STACKS_PATIENCE_MS);
    this.model.send({ kind: "stacks", node });
  }

  private endStacks(areThere: boolean): void {
    clearTimeout(this.waitsForStacks);
    this.unanswered.hidden = areThere;
  }
}
