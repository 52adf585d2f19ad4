// How one node is told from the others: a colour, and with it a shape. As in Python's `marks.py`; `hues.css` has both.

/** So many colours there are; farther nodes have them again, with other shapes. */
const HUES = 16;
const SHAPES = 4;

/** The number of a place's colour. */
export function hueAt(place: number): number {
  return place % HUES;
}

/** What an element gets to be drawn as the node at this place: its mark, and its colour `--tfos-hue`. */
export function markAttributes(place: number): Record<"class" | "data-dash", string> {
  return { class: `tfos-hue${hueAt(place)}`, "data-dash": String((place + Math.floor(place / HUES)) % SHAPES) };
}
