// The parts of the card that Python draws as HTML: they are put in, and what is pressed in them is sent.

import { element, setAttribute, setText } from "./dom";
import type { Model } from "./model";
import { morphInto } from "./morph";
import type { Store } from "./store";

/** Their traits. */
export const PARTS = ["head", "course", "nodes", "charts", "shown", "stacks"] as const;

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
  for (const state of card.querySelectorAll(".tfos-state[data-going]")) {
    state.setAttribute("data-state", "lost");
    state.removeAttribute("data-going");
    state.textContent = "✗ lost";
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
    else if (this.part.update()) this.stacks.showAsking(this.el);
  }

  private press(event: Event): void {
    const button = (event.target as Element).closest<HTMLElement>("button[data-do]");
    switch (button?.dataset["do"]) {
      case "log":
        return this.openLog(button.closest("tr")?.dataset["key"] ?? "");
      case "stacks":
        this.stacks.ask(button.dataset["node"] ?? "");
        return this.stacks.showAsking(this.el);
    }
  }
}

// ---- stacks -------------------------------------------------------------------------------------------------------------

/** The kernel answers within a few seconds, if messages reach it at all while a cell runs. */
const PATIENCE_MS = 15_000;

const NO_ANSWER = "No answer from the kernel within 15 s: it may take no messages while the cell runs.";

/** A node that has been asked: when its last answer was drawn, and the timer that ends the wait. */
interface Asked {
  readonly before: string;
  readonly timer: ReturnType<typeof setTimeout>;
}

/** Where the threads of nodes are: the table has buttons that ask, and below it stand the answers. */
export class Stacks {
  private readonly note = element("div", { class: "tfos-notice", hidden: true }, NO_ANSWER);
  private readonly part: Part;
  readonly el: HTMLElement;
  private readonly asked = new Map<string, Asked>();

  constructor(
    private readonly model: Model,
    private readonly changed: () => void,
  ) {
    this.part = new Part(model, "stacks", element("div"));
    this.el = element("div", { class: "tfos-all-stacks" }, this.part.el, this.note);
  }

  /** Shows the answers; one that was asked for here is opened. */
  update(): void {
    if (!this.part.update()) return;
    for (const [node, { before }] of this.asked) {
      if (this.timeOf(node) === before) continue;
      this.answerOf(node)?.setAttribute("open", "");
      this.note.hidden = true;
      this.stopWaiting(node);
    }
  }

  close(): void {
    for (const { timer } of this.asked.values()) clearTimeout(timer);
  }

  ask(node: string): void {
    if (this.asked.has(node)) return;
    const giveUp = () => {
      this.note.hidden = false;
      this.stopWaiting(node);
    };
    this.asked.set(node, { before: this.timeOf(node), timer: setTimeout(giveUp, PATIENCE_MS) });
    this.model.send({ kind: "stacks", node });
  }

  /** Shows on the buttons which nodes are asked just now. */
  showAsking(table: Element): void {
    for (const button of table.querySelectorAll<HTMLElement>("[data-do=stacks]")) {
      const node = button.dataset["node"] ?? "";
      const asking = this.asked.has(node);
      setAttribute(button, "aria-disabled", String(asking));
      setText(button, asking ? "Asking…" : "Stacks");
      setAttribute(button, "aria-label", asking ? `Asking… ${node}` : `Stacks of ${node}`);
    }
  }

  private stopWaiting(node: string): void {
    clearTimeout(this.asked.get(node)?.timer);
    this.asked.delete(node);
    this.changed();
  }

  private answerOf(node: string): HTMLElement | null {
    return this.part.el.querySelector(`[data-key="${CSS.escape(node)}"]`);
  }

  private timeOf(node: string): string {
    return this.answerOf(node)?.dataset["time"] ?? "";
  }
}
