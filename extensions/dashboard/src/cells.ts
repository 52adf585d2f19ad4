// What stands in cells of the node table beside plain text: states, progress bars, step times, shares of the time.

import { element, icon, setAttribute, setShare, setText } from "./dom";
import type { Row, ShareKind } from "./messages";
import { NODE_STATES } from "./states";

/** Draws one cell; `update` touches the page only where the row differs from the one before. */
export interface Cell {
  readonly el: HTMLTableCellElement;
  update(row: Row, text: string): void;
}

export class TextCell implements Cell {
  constructor(readonly el: HTMLTableCellElement) {}

  update(_row: Row, text: string): void {
    setText(this.el, text);
    setAttribute(this.el, "title", text);
  }
}

export class StateCell implements Cell {
  private shown = "";

  constructor(readonly el: HTMLTableCellElement) {}

  update(row: Row): void {
    setAttribute(this.el, "title", row.detail);
    const hung = row.hung !== "";
    if (this.shown === row.state + hung) return;
    this.shown = row.state + hung;
    setAttribute(this.el.parentElement as Element, "data-state", row.state);
    const shape = NODE_STATES[row.state]?.shape ?? "waiting";
    const state = element("span", { class: "tfos-state", "data-state": row.state }, icon(shape), row.state);
    this.el.replaceChildren(...(hung ? [hungMark()] : [state]));
  }
}

/** In place of the state: a node that hangs says that it runs. */
function hungMark(): HTMLElement {
  return element("span", { class: "tfos-state tfos-hung-mark" }, icon("waits"), "hangs");
}

/** Text, and a bar where it is known how much there is in all. */
export class ProgressCell implements Cell {
  private readonly fill = element("div");
  private readonly text = element("span");
  private bar: HTMLElement | null = null;

  constructor(readonly el: HTMLTableCellElement) {}

  update(row: Row, text: string): void {
    if (row.progress === null) {
      this.bar = null;
      setText(this.el, text);
      return;
    }
    this.bar ??= this.makeBar(row.node);
    setText(this.text, text);
    setAttribute(this.bar, "data-state", row.state);
    setAttribute(this.bar, "aria-valuenow", String(Math.round(row.progress * 100)));
    setShare(this.fill, row.progress);
  }

  private makeBar(node: string): HTMLElement {
    const label = `Progress of ${node}`;
    const bar = element("div", { class: "tfos-bar", role: "progressbar", "aria-label": label }, this.fill);
    this.el.replaceChildren(element("div", { class: "tfos-progress" }, bar, this.text));
    return bar;
  }
}

/** The duration of a step, with a mark where the node holds its peers up. */
export class StepTimeCell implements Cell {
  private readonly time = element("span");
  private readonly mark = element("span", { class: "tfos-straggles" });

  constructor(readonly el: HTMLTableCellElement) {
    el.append(this.mark, " ", this.time);
  }

  update(row: Row): void {
    setText(this.time, row.step_time);
    setText(this.mark, row.straggles);
    if (this.mark.hidden === (row.straggles !== "")) this.mark.hidden = !row.straggles;
  }
}

/** A bar of what the node's time is spent on, with the largest share in words beside it. */
export class SharesCell implements Cell {
  private readonly bar = element("span", { class: "tfos-shares", role: "img" });
  private readonly words = element("span", { class: "tfos-share-words", "aria-hidden": "true" });

  constructor(
    readonly el: HTMLTableCellElement,
    private readonly kinds: readonly ShareKind[],
  ) {
    this.bar.append(...kinds.map(({ key }) => element("span", { "data-share": key })));
  }

  update(row: Row, text: string): void {
    if (!row.shares.length) {
      this.el.replaceChildren();
      return;
    }
    if (!this.bar.isConnected || this.bar.parentElement !== this.el) this.el.replaceChildren(this.bar, " ", this.words);
    row.shares.forEach((share, index) => {
      setShare(this.bar.children[index] as HTMLElement, share);
    });
    setAttribute(this.bar, "aria-label", text);
    setAttribute(this.el, "title", text);
    const largest = Math.max(...row.shares);
    const kind = this.kinds[row.shares.indexOf(largest)];
    setText(this.words, `${kind?.short ?? ""} ${Math.round(100 * largest)} %`);
  }
}
