// Builds elements and texts. Text always becomes a text node; what Python draws as HTML, and has escaped, is for `parts.ts` alone.

import type { Run } from "./model";

const SVG = "http://www.w3.org/2000/svg";

/** Makes an element with attributes and children; a string becomes a text node. */
export function element<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Record<string, string | boolean> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** Sets an element's text, but only touches the page when it differs. */
export function setText(target: Element, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

/** Sets an attribute, but only touches the page when it differs. */
export function setAttribute(target: Element, name: string, value: string): void {
  if (target.getAttribute(name) !== value) target.setAttribute(name, value);
}

/** Appends runs of styled text: a text node where there is no style, a span where there is one. */
export function appendRuns(target: Element, runs: readonly Run[]): void {
  for (const [text, classes] of runs) {
    target.append(classes ? element("span", { class: classes }, text) : text);
  }
}

type Shape = "stopped" | "down" | "save" | "fold" | "away";
type Part = ["path" | "rect", Record<string, string>];

/** In a box of 14 × 14. */
const SHAPES: Record<Shape, Part[]> = {
  stopped: [["rect", { x: "3", y: "3", width: "8", height: "8", rx: "1", class: "tfos-solid" }]],
  down: [["path", { d: "M7 2v9M3.5 7.5L7 11l3.5-3.5" }]],
  save: [["path", { d: "M7 1.5v7M4 6l3 3 3-3M2 11v1.5h10V11" }]],
  fold: [["path", { d: "M2 3.5h10M2 7h10M2 10.5h5" }]],
  away: [["path", { d: "M6 3H3v8h8V8M8.5 2H12v3.5M12 2L6.5 7.5" }]],
};

/** Draws a shape. It stands beside a word that says the same, so screen readers skip it. */
export function icon(shape: Shape): SVGSVGElement {
  const svg = svgElement("svg", { viewBox: "0 0 14 14", class: "tfos-icon", "aria-hidden": "true" });
  svg.append(...SHAPES[shape].map(([tag, attributes]) => svgElement(tag, attributes)));
  return svg;
}

/** Makes an element of a drawing. */
export function svgElement<Tag extends keyof SVGElementTagNameMap>(
  tag: Tag,
  attributes: Record<string, string> = {},
): SVGElementTagNameMap[Tag] {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

/** A time of the day, such as "09:04:55". */
export function formatClock(time: Date): string {
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

export function plural(count: number, one: string): string {
  return `${count.toLocaleString("en-US")} ${one}${count === 1 ? "" : "s"}`;
}
