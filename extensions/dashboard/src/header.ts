// The top of the card: what Python draws of the run as a whole, with links and Stop beside it.

import { element, formatClock, icon, setAttribute, setText } from "./dom";
import type { Model, View } from "./model";
import { isDark, requestStop, serverUrl } from "./page";
import { Part, asLost } from "./parts";
import type { Store } from "./store";

/** A kernel that sends nothing for so long is silent: it sends something every few seconds. */
const SILENT_S = 20;

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
    const { view, stopRequested } = this.store;
    const stopping = stopRequested || view.state === "stopping";
    this.stop.hidden = view.ended;
    this.stop.disabled = view.ended || (stopping && !this.mayForce);
    setText(this.stopLabel, !stopping ? "Stop" : this.mayForce ? "Force stop" : "Stopping…");
    setAttribute(this.stop, "aria-label", `${this.stopLabel.textContent} ${view.name}`);
    if (view.ended) clearTimeout(this.forceTimer);
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

// ---- TensorBoard --------------------------------------------------------------------------------------------------------

/** JupyterLab's extension handles this event and opens a tab of its own; elsewhere the link opens one of the browser. */
const OPEN_TENSORBOARD = "tfos-lab:open-tensorboard";
const NO_EXTENSION =
  "TensorBoard cannot be opened here: this Jupyter server runs without tfos_lab's extension. Restart it; if that does " +
  "not help: jupyter server extension enable tfos_lab.notebook.server. The link below works on the kernel's machine.";

/** A link that opens TensorBoard, and a line that says why there is nothing to open. */
class TensorBoardLink {
  // The role stays while there is nothing to open, so that screen readers announce a link that cannot be followed.
  readonly el = element(
    "a",
    { class: "tfos-button tfos-away", role: "link", target: "_blank", rel: "noopener noreferrer" },
    icon("away"),
    "TensorBoard",
  );
  readonly note = element("div", { class: "tfos-note" });
  /** Whether the server can show it; null until it was asked. */
  private served: boolean | null = null;
  private asked = false;

  constructor(private readonly store: Store) {
    this.el.addEventListener("click", (event) => this.open(event));
  }

  update(): void {
    const { tensorboard } = this.store.view;
    const address = tensorboard ? this.address() : null;
    this.el.hidden = !address;
    this.note.hidden = true;
    if (!address) return;
    void this.askServer(address);
    const opens = this.served !== false;
    if (opens) setAttribute(this.el, "href", address.href);
    else this.el.removeAttribute("href");
    setAttribute(this.el, "aria-disabled", String(!opens));
    this.note.hidden = opens;
    setText(this.note, opens ? "" : NO_EXTENSION);
  }

  private address(): URL | null {
    const address = serverUrl(`tfos-lab/tb/${encodeURIComponent(this.store.view.id)}/`);
    if (address && isDark()) address.searchParams.set("darkMode", "true");
    return address;
  }

  /** Asks once whether anything answers at the address: our extension redirects to TensorBoard, or says why not. */
  private async askServer(address: URL): Promise<void> {
    if (this.asked) return;
    this.asked = true;
    try {
      const answer = await fetch(address, { credentials: "same-origin", cache: "no-store", redirect: "manual" });
      this.served = answer.type === "opaqueredirect" || answer.headers.has("X-Tfos-Lab");
    } catch {
      this.asked = false; // the server is away: asked again with the next change
    }
    this.update();
  }

  private open(event: MouseEvent): void {
    if (event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey || !this.el.hasAttribute("href")) return;
    const { id, name } = this.store.view;
    const asked = new CustomEvent(OPEN_TENSORBOARD, { detail: { id, name }, cancelable: true });
    if (!document.dispatchEvent(asked)) event.preventDefault();
  }
}
