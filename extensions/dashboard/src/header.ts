// The top of the card, which Python draws: here its links get the addresses of this page's server, and Stop is pressed.

import { element, formatClock, setAttribute, setText } from "./dom";
import type { Model } from "./model";
import { isDark, requestStop, serverUrl } from "./page";
import { Part, asLost } from "./parts";
import type { Store } from "./store";

/** A kernel that sends nothing for so long is silent: it sends something every few seconds. */
const SILENT_S = 20;

/** After so long without an end, Stop may be pressed again: a second interrupt forces. */
const FORCE_AFTER_MS = 4000;

/** JupyterLab's extension handles this event and opens a tab of its own; elsewhere the link opens one of the browser. */
const OPEN_TENSORBOARD = "tfos-lab:open-tensorboard";

const UNSERVED =
  "TensorBoard cannot be opened from here: this Jupyter server runs without tfos_lab's extension. Restart it; if that " +
  "does not help, tfos-lab doctor says why.";

export class Header {
  private readonly head: Part;
  private readonly course: Part;
  private readonly reason = element("div", { class: "tfos-reason", hidden: true });
  private readonly silence = element("div", { class: "tfos-silence", hidden: true });
  private readonly unserved = element("div", { class: "tfos-unserved", role: "note", hidden: true }, UNSERVED);
  readonly el: HTMLElement;
  private asked = false;
  private waitsForStop: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly store: Store,
    private readonly model: Model,
  ) {
    this.head = new Part(model, "head", element("div", { class: "tfos-top-line" }));
    this.course = new Part(model, "course", element("div"));
    this.head.el.addEventListener("click", (event) => this.press(event));
    this.el = element("div", { class: "tfos-top" }, this.head.el, this.reason, this.silence, this.unserved, this.course.el);
  }

  /** A lost run stays as it was. */
  update(): void {
    const { lostReason } = this.store;
    if (!lostReason) {
      this.head.update();
      this.course.update();
      this.showActions();
    } else if (this.reason.hidden) {
      this.reason.hidden = false;
      setText(this.reason, lostReason);
      asLost(this.head.el);
      this.head.el.querySelector("[data-do=stop]")?.remove();
    }
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
    clearTimeout(this.waitsForStop);
  }

  private showActions(): void {
    const address = serverUrl(`tfos-lab/tb/${encodeURIComponent(this.store.view.id)}/`);
    if (address && isDark()) address.searchParams.set("darkMode", "true");
    const tensorboard = this.head.el.querySelector("[data-do=tensorboard]");
    if (tensorboard && address) {
      setAttribute(tensorboard, "href", address.href);
      void this.askOnce(address);
    }
    const stop = this.head.el.querySelector<HTMLButtonElement>("[data-do=stop]");
    if (!stop || this.waitsForStop === undefined) return;
    stop.disabled = true;
    setText(stop, "Stopping…");
    setAttribute(stop, "aria-label", `Stopping… ${this.store.view.name}`);
  }

  /** Asks whether anything answers at TensorBoard's address: our extension redirects there, or says why not. */
  private async askOnce(address: URL): Promise<void> {
    if (this.asked) return;
    this.asked = true;
    try {
      const answer = await fetch(address, { credentials: "same-origin", cache: "no-store", redirect: "manual" });
      this.unserved.hidden = answer.type === "opaqueredirect" || answer.headers.has("X-Tfos-Lab");
    } catch {
      this.asked = false; // the server is away: asked again with the next change
    }
  }

  private press(event: MouseEvent): void {
    switch ((event.target as Element).closest<HTMLElement>("[data-do]")?.dataset["do"]) {
      case "stop":
        return this.stop();
      case "tensorboard":
        return this.openTensorBoard(event);
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
}
