// How one node is told from the others: a colour, and with it a dash of its lines and a shape of its mark, so that nobody
// depends on the colour alone. `marks.py` draws the same in saved notebooks; `hues.css` has the colours.

import { svgElement } from "./dom";

/** So many colours there are; farther nodes have them again, with other dashes and shapes. */
const HUES = 16;

/** Dashes of lines, in pixels; nodes that have the same one have colours that anybody can tell apart. */
const DASHES = ["", "6 2.5", "2 2", "8 2 2 2"];

/** Corners of marks around a point: square, circle (which has none), triangle, diamond. */
const CORNERS = ["-3,-3 3,-3 3,3 -3,3", "", "0,-4 4,3 -4,3", "0,-4.2 4.2,0 0,4.2 -4.2,0"];

/** The number of a place's colour. */
export function hueAt(place: number): number {
  return place % HUES;
}

function dashAt(place: number): number {
  return (place + Math.floor(place / HUES)) % DASHES.length;
}

/** What an element gets to be drawn as the node at this place: its marks, and its colour `--tfos-hue`. */
export function markAttributes(place: number): Record<"class" | "data-dash", string> {
  return { class: `tfos-hue${hueAt(place)}`, "data-dash": String(dashAt(place)) };
}

/** The attributes of a node's line. */
export function lineAttributes(place: number, path: string): Record<string, string> {
  const dash = DASHES[dashAt(place)];
  return { d: path, ...(dash && { "stroke-dasharray": dash }) };
}

/** A node's shape at a point of a drawing. */
export function drawMark(place: number, x: number, y: number): SVGElement {
  const points = CORNERS[dashAt(place)];
  const at = { class: "tfos-shape", transform: `translate(${x} ${y})` };
  return points ? svgElement("polygon", { ...at, points }) : svgElement("circle", { ...at, r: "3.2" });
}

/** A piece of a node's line with its shape, for legends. */
export function drawSample(place: number): SVGSVGElement {
  const hue = `tfos-sample tfos-hue${hueAt(place)}`;
  const svg = svgElement("svg", { class: hue, viewBox: "0 0 30 10", "aria-hidden": "true" });
  svg.append(svgElement("path", lineAttributes(place, "M0 5H30")), drawMark(place, 15, 5));
  return svg;
}
