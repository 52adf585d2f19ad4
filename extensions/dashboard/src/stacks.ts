// Where the threads of nodes are: the table has buttons that ask, and below it stands what was answered.

import { element, setAttribute, setText } from "./dom";
import { formatClock } from "./format";
import type { StacksMessage } from "./messages";
import type { Model } from "./model";
import type { Store } from "./store";

/** The kernel answers within a few seconds, if messages reach it at all while a cell runs. */
const PATIENCE_MS = 15_000;

const NO_ANSWER = "No answer from the kernel within 15 s: it may take no messages while the cell runs.";

interface Answer {
  readonly el: HTMLElement;
  readonly title: HTMLElement;
  readonly text: HTMLElement;
}

export class Stacks {
  readonly el = element("div", { class: "tfos-all-stacks" });
  private readonly answers = new Map<string, Answer>();
  private readonly waiting = new Map<string, ReturnType<typeof setTimeout>>();

  constructor(
    private readonly store: Store,
    private readonly model: Model,
    private readonly changed: () => void,
  ) {
    for (const message of store.stacks.values()) this.show(message, false);
  }

  /** Shows an answer; one that was asked for here is open. */
  show({ node, text, time_s }: StacksMessage, open: boolean = this.waiting.has(node)): void {
    this.stopWaiting(node);
    const answer = this.answerOf(node);
    setText(answer.title, `Stacks of ${node} at ${formatClock(new Date(time_s * 1000))}`);
    setText(answer.text, text);
    if (open) answer.el.setAttribute("open", "");
  }

  close(): void {
    for (const timer of this.waiting.values()) clearTimeout(timer);
  }

  ask(node: string): void {
    if (this.waiting.has(node)) return;
    const silent = () => this.show({ kind: "stacks", node, text: NO_ANSWER, time_s: Date.now() / 1000 });
    this.waiting.set(node, setTimeout(silent, PATIENCE_MS));
    this.model.send({ kind: "stacks", node });
  }

  private stopWaiting(node: string): void {
    clearTimeout(this.waiting.get(node));
    this.waiting.delete(node);
    this.changed();
  }

  /** Shows on the buttons which nodes are asked just now. */
  showAsking(table: Element): void {
    for (const button of table.querySelectorAll<HTMLElement>("[data-do=stacks]")) {
      const node = button.dataset["node"] ?? "";
      const asking = this.waiting.has(node);
      setAttribute(button, "aria-disabled", String(asking));
      setText(button, asking ? "Asking…" : "Stacks");
      setAttribute(button, "aria-label", asking ? `Asking… ${node}` : `Stacks of ${node}`);
    }
  }

  private answerOf(node: string): Answer {
    const known = this.answers.get(node);
    if (known) return known;
    const title = element("summary");
    const text = element("pre", { class: "tfos-log", tabindex: "0" });
    const made = { el: element("details", { class: "tfos-stacks" }, title, text), title, text };
    this.answers.set(node, made);
    const place = (one: string) => this.store.placeOf(one);
    const order = [...this.answers.keys()].sort((one, other) => place(one) - place(other));
    this.el.append(...order.flatMap((one) => this.answers.get(one)?.el ?? []));
    return made;
  }
}
