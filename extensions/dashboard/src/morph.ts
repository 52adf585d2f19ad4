// Puts HTML that Python has drawn, and escaped, into the page: what has changed is morphed, so that everything else stays
// as it is: focus, selections, scroll positions, and what its reader has opened. JupyterLab's panel does it, too.

import type { Model } from "./model";

/** Makes the content of an element that of the HTML, which Python has escaped. */
export function morphInto(target: Element, html: string): void {
  const focused = document.activeElement;
  morphChildren(target, parseParts(html));
  // What has moved loses the focus.
  if (focused instanceof HTMLElement && target.contains(focused)) focused.focus({ preventScroll: true });
}

/** Parses what Python has drawn; scripts in it do not run. */
export function parseParts(html: string): HTMLElement {
  return new DOMParser().parseFromString(`<!doctype html><body>${html}`, "text/html").body;
}

function morphChildren(target: Node, wanted: Node): void {
  const keys = new Set([...wanted.childNodes].map(keyOf));
  const known = new Map<string, Node>();
  for (const child of [...target.childNodes]) {
    const key = keyOf(child);
    if (key && !keys.has(key)) target.removeChild(child);
    else if (key) known.set(key, child);
  }
  let at = target.firstChild;
  for (const child of [...wanted.childNodes]) {
    const same = keyOf(child) ? known.get(keyOf(child)) : nextLike(child, at);
    if (!same) {
      target.insertBefore(child, at);
      continue;
    }
    if (keyOf(child) && same !== at) target.insertBefore(same, at);
    else {
      while (at && at !== same) at = remove(at);
      at = same.nextSibling;
    }
    morphNode(same, child);
  }
  while (at) at = remove(at);
}

/** The next one of the same kind, from `at` on: what stands between has gone. */
function nextLike(wanted: Node, at: Node | null): Node | null {
  while (at && !(kindOf(at) === kindOf(wanted) && !keyOf(at))) at = keyOf(at) ? null : at.nextSibling;
  return at;
}

function remove(node: ChildNode): ChildNode | null {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function morphNode(target: Node, wanted: Node): void {
  if (!(target instanceof Element) || !(wanted instanceof Element)) {
    if (target.nodeValue !== wanted.nodeValue) target.nodeValue = wanted.nodeValue;
    return;
  }
  // Most cells of a table stay as they are, which the browser finds out quickest.
  if (target.isEqualNode(wanted)) return;
  // What its reader has opened stays so, whatever Python draws.
  const isKept = (name: string) => target.tagName === "DETAILS" && name === "open";
  for (const { name, value } of wanted.attributes) {
    if (!isKept(name) && target.getAttribute(name) !== value) target.setAttribute(name, value);
  }
  for (const { name } of [...target.attributes]) {
    if (!isKept(name) && !wanted.hasAttribute(name)) target.removeAttribute(name);
  }
  morphChildren(target, wanted);
}

/** Elements with a key are found again wherever they have moved. */
function keyOf(node: Node): string {
  return node instanceof Element ? (node.getAttribute("data-key") ?? "") : "";
}

function kindOf(node: Node): string {
  return node instanceof Element ? `${node.nodeName}.${node.classList[0] ?? ""}` : node.nodeName;
}

// ---- parts of the card -----------------------------------------------------------------------------------------------

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
  for (const gone of card.querySelectorAll(".tfos-overall, .tfos-actions > *, [data-do=stacks]")) gone.remove();
  for (const heartbeat of card.querySelectorAll("td.tfos-heartbeat")) heartbeat.textContent = "";
}
