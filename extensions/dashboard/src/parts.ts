// The parts of the card that Python draws as HTML: they are put in, and what is pressed in them is sent.

import { element, setAttribute, setText } from "./dom";
import type { Model } from "./model";
import { morphInto } from "./morph";
import type { Store } from "./store";

/** Their traits. */
export const PARTS = ["head", "course", "nodes", "charts", "shown", "stacks", "tabs"] as const;

/** One part, by the name of its trait. */
export class Part {
  private shown = "";

  constructor(
    private readonly model: Model,
    private readonly name: (typeof PARTS)[number],
    readonly el: HTMLElement,
  ) {}

  /** Returns whether it has changed. */
  update(): boolean {
    const html = this.model.get(this.name);
    if (html === this.shown) return false;
    this.shown = html;
    this.redraw();
    return true;
  }

  /** Makes it what Python has drawn, without what the page has changed in it. */
  redraw(): void {
    morphInto(this.el, this.shown);
  }
}

/** Shows a card as that of a run that nobody follows any more. */
export function asLost(card: Element): void {
  for (const state of card.querySelectorAll("[data-going]")) {
    state.setAttribute("data-state", "lost");
    state.removeAttribute("data-going");
    if (state.matches(".tfos-state")) state.textContent = "✗ lost";
  }
  card.querySelector(".tfos-header .tfos-facts")?.prepend("last seen with ");
  card.querySelector(".tfos-overall")?.remove();
}

/** The node table. */
export class Nodes {
  readonly el = element("div", { class: "tfos-nodes" });
  private readonly part: Part;

  /** `openLog` is called when a node's name is pressed. */
  constructor(
    private readonly store: Store,
    model: Model,
    private readonly stacks: Stacks,
    private readonly openLog: (node: string) => void,
  ) {
    this.part = new Part(model, "nodes", this.el);
    this.el.addEventListener("click", (event) => this.press(event));
  }

  update(): void {
    if (this.store.lostReason) asLost(this.el);
    else this.part.update();
  }

  /** What was asked for is there, or does not come. */
  showAsked(): void {
    if (!this.store.lostReason) this.part.redraw();
  }

  private press(event: Event): void {
    const button = (event.target as Element).closest<HTMLElement>("button[data-do]");
    switch (button?.dataset["do"]) {
      case "log":
        return this.openLog(button.closest("tr")?.dataset["key"] ?? "");
      case "stacks":
        return this.askStacks(button);
    }
  }

  /** Python draws such a button, too, as soon as the kernel asks the node. */
  private askStacks(button: HTMLElement): void {
    const node = button.dataset["node"] ?? "";
    if (button.getAttribute("aria-disabled") === "true") return;
    setAttribute(button, "aria-disabled", "true");
    setText(button, "Asking…");
    setAttribute(button, "aria-label", `Asking… ${node}`);
    this.stacks.ask(node);
  }
}

// ---- stacks -------------------------------------------------------------------------------------------------------------

/** The kernel answers within a few seconds, if messages reach it at all while a cell runs. */
const PATIENCE_MS = 15_000;

const NO_ANSWER = "No answer from the kernel within 15 s: it may take no messages while the cell runs.";

/** Where the threads of nodes are: the table has buttons that ask, and below it stand the answers. */
export class Stacks {
  private readonly note = element("div", { class: "tfos-notice", hidden: true }, NO_ANSWER);
  private readonly part: Part;
  readonly el: HTMLElement;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `onAsked` is called when there is an answer, or none comes. */
  constructor(
    private readonly model: Model,
    private readonly onAsked: () => void,
  ) {
    this.part = new Part(model, "stacks", element("div"));
    this.el = element("div", { class: "tfos-all-stacks" }, this.part.el, this.note);
  }

  update(): void {
    if (this.part.update()) this.end(true);
  }

  close(): void {
    clearTimeout(this.timer);
  }

  ask(node: string): void {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.end(false), PATIENCE_MS);
    this.model.send({ kind: "stacks", node });
  }

  private end(isAnswered: boolean): void {
    clearTimeout(this.timer);
    this.note.hidden = isAnswered;
    this.onAsked();
  }
}
