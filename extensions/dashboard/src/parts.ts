// The parts of the card that Python draws as HTML.

import type { Model } from "./model";
import { morphInto } from "./morph";

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
    morphInto(this.el, html);
    return true;
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
