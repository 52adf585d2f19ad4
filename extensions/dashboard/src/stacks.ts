// Where the threads of nodes are: the table has buttons that ask, and below it stands what Python draws of the answers.

import { element, setAttribute, setText } from "./dom";
import type { Model } from "./model";
import { Part } from "./parts";

/** The kernel answers within a few seconds, if messages reach it at all while a cell runs. */
const PATIENCE_MS = 15_000;

const NO_ANSWER = "No answer from the kernel within 15 s: it may take no messages while the cell runs.";

/** A node that has been asked: when its last answer was drawn, and the timer that ends the wait. */
interface Asked {
  readonly before: string;
  readonly timer: ReturnType<typeof setTimeout>;
}

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
