// The parts of the card that Python draws as HTML, and what becomes of them when nobody follows the run any more.

import type { Model } from "./model";
import { morphInto } from "./morph";

type PartName = "head" | "course" | "nodes" | "charts" | "shown" | "stacks" | "tabs";

/** One part, by the name of its trait. */
export class Part {
  private shown = "";

  constructor(
    private readonly model: Model,
    private readonly name: PartName,
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
    state.setAttribute("data-tone", "bad");
    state.removeAttribute("data-going");
    if (state.matches(".tfos-state")) state.textContent = "✗ lost";
  }
  card.querySelector(".tfos-header .tfos-facts")?.prepend("last seen with ");
  for (const gone of card.querySelectorAll(".tfos-overall, [data-do=stop]")) gone.remove();
}
