// The groups of a large cluster, in whose node table only some nodes have a row: what they are grouped by, how many are
// in each, and which groups list their worst.

import { element, icon, setAttribute, setText } from "./dom";
import type { Group, View } from "./messages";
import type { Model } from "./model";
import { NODE_STATES } from "./states";

const TITLES: Record<string, string> = { state: "State", role: "Role", host: "Host" };

export class Groups {
  private readonly choice = element("select", { class: "tfos-grouping" });
  private readonly more = element("span", { class: "tfos-facts" });
  readonly el = element(
    "div",
    { class: "tfos-group-tools", hidden: true },
    element("label", {}, "Group by ", this.choice),
    this.more,
  );
  private rows = new Map<string, GroupRow>();
  private offered = "";

  constructor(private readonly model: Model) {
    this.choice.addEventListener("change", () => this.model.send({ kind: "group_by", grouping: this.choice.value }));
  }

  /** The row of each group, in order. */
  update(view: View, width: number): Map<string, HTMLElement> {
    this.el.hidden = !view.groups.length;
    this.offer(view.groupings);
    if (document.activeElement !== this.choice) this.choice.value = view.grouping;
    setText(this.more, view.more);
    const before = this.rows;
    this.rows = new Map(view.groups.map(({ key }) => [key, before.get(key) ?? new GroupRow(key, this.model)]));
    for (const group of view.groups) this.rows.get(group.key)?.update(group, view.grouping, width);
    return new Map([...this.rows].map(([key, { el }]) => [key, el]));
  }

  private offer(groupings: readonly string[]): void {
    if (groupings.join() === this.offered) return;
    this.offered = groupings.join();
    this.choice.replaceChildren(
      ...groupings.map((grouping) => element("option", { value: grouping }, TITLES[grouping] ?? grouping)),
    );
  }
}

class GroupRow {
  private readonly name = element("span", { class: "tfos-group-name" });
  private readonly count = element("span", { class: "tfos-group-count" });
  private readonly trouble = element("span", { class: "tfos-trouble" });
  private readonly facts = element("span", { class: "tfos-facts" });
  private readonly button = element("button", { class: "tfos-group-button", type: "button" }, this.name, this.count);
  private readonly cell = element("th", { scope: "rowgroup" }, this.button, this.trouble, this.facts);
  readonly el = element("tr", { class: "tfos-group" }, this.cell);
  private shown = "";
  private isOpen = false;

  constructor(key: string, model: Model) {
    this.button.addEventListener("click", () => {
      setAttribute(this.button, "aria-busy", "true");
      model.send({ kind: "open", group: key, open: !this.isOpen });
    });
  }

  update(group: Group, grouping: string, width: number): void {
    if (this.cell.colSpan !== width) this.cell.colSpan = width;
    if (this.isOpen !== group.open) setAttribute(this.button, "aria-busy", "false");
    this.isOpen = group.open;
    setAttribute(this.button, "aria-expanded", String(group.open));
    const shape = grouping === "state" ? NODE_STATES[group.key]?.shape : undefined;
    if (this.shown !== group.key) {
      this.shown = group.key;
      this.name.replaceChildren(...(shape ? [icon(shape)] : []), group.key);
      if (grouping === "state") setAttribute(this.name, "data-state", group.key);
    }
    setText(this.count, group.count.toLocaleString("en"));
    setText(this.trouble, group.troubled ? `${group.troubled.toLocaleString("en")} need${group.troubled === 1 ? "s" : ""} attention` : "");
    setText(this.facts, group.facts);
  }
}
