// The node table, which Python draws: what is pressed in it, and the keys that Jupyter must not see.

import { element } from "./dom";
import type { Model } from "./model";
import { Part, asLost } from "./parts";
import type { Stacks } from "./stacks";
import type { Store } from "./store";

export class Nodes {
  readonly el = element("div", { class: "tfos-nodes" });
  private readonly part: Part;

  /** `openLog` is called when a node's name is pressed. */
  constructor(
    private readonly store: Store,
    private readonly model: Model,
    private readonly stacks: Stacks,
    private readonly openLog: (node: string) => void,
  ) {
    this.part = new Part(model, "nodes", this.el);
    this.el.addEventListener("click", (event) => this.press(event));
    this.el.addEventListener("change", (event) => this.choose(event));
  }

  update(): void {
    if (this.store.lostReason) asLost(this.el);
    else if (this.part.update()) this.stacks.showAsking(this.el);
  }

  private press(event: Event): void {
    const button = (event.target as Element).closest<HTMLElement>("button[data-do]");
    const { node = "", group = "" } = button?.dataset ?? {};
    switch (button?.dataset["do"]) {
      case "log":
        return this.openLog(button.closest("tr")?.dataset["key"] ?? "");
      case "stacks":
        this.stacks.ask(node);
        return this.stacks.showAsking(this.el);
      case "open":
        return this.model.send({ kind: "open", group, open: button.getAttribute("aria-expanded") !== "true" });
    }
  }

  private choose({ target }: Event): void {
    if (target instanceof HTMLSelectElement) this.model.send({ kind: "group_by", grouping: target.value });
  }
}
