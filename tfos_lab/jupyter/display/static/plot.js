// Measures of the charts: places, ticks and paths. Pure; `metric_charts.py` draws the same for the saved notebook.

export const PLOT = { width: 320, height: 130, left: 46, right: 8, top: 6, bottom: 20 };

/** More points than pixels are of no use. */
const MAX_DRAWN = 400;

/**
 * @typedef {[timeS: number, step: number | null, value: number | null]} Point
 * @typedef {{x: number, y: number | null}} Place
 */

/**
 * Whether all points have a step, and steps only go on; otherwise they are drawn over time. Steps begin anew with a second
 * `fit`, and go back when nodes start again: a line over them would run to and fro.
 * @param {Iterable<Point[]>} lines
 */
export function stepsGoOn(lines) {
  for (const points of lines) {
    let before = -Infinity;
    for (const [, step] of points) {
      if (step === null || step < before) return false;
      before = step;
    }
  }
  return true;
}

/**
 * @param {Point[]} points
 * @param {boolean} byStep
 * @returns {Place[]}
 */
export function placesOf(points, byStep) {
  return points.map(([timeS, step, value]) => ({ x: byStep ? Number(step) : timeS, y: value }));
}

/**
 * About as many places as can be seen: of each stretch the lowest and the highest, so that no peak is lost.
 * @param {Place[]} places
 * @param {number} [atMost]
 * @returns {Place[]}
 */
export function thin(places, atMost = MAX_DRAWN) {
  if (places.length <= atMost) return places;
  const stretch = Math.ceil(places.length / (atMost / 2));
  /** @type {Place[]} */
  const kept = [];
  for (let start = 0; start < places.length; start += stretch) {
    const part = places.slice(start, start + stretch);
    let low = /** @type {Place} */ (part[0]);
    let high = low;
    for (const place of part) {
      if (place.y === null) continue;
      if (low.y === null || place.y < low.y) low = place;
      if (high.y === null || place.y > high.y) high = place;
    }
    kept.push(...(low === high ? [low] : low.x <= high.x ? [low, high] : [high, low]));
  }
  const last = /** @type {Place} */ (places.at(-1));
  if (kept.at(-1) !== last) kept.push(last);
  return kept;
}

/**
 * A scale from values to places; a single value gets room around it.
 * @param {number[]} values
 * @param {number} start
 * @param {number} end
 */
export function scaleOf(values, start, end) {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  if (low > high) [low, high] = [0, 1];
  if (low === high) {
    const pad = Math.abs(low) * 0.1 || 1;
    [low, high] = [low - pad, high + pad];
  }
  const perUnit = (end - start) / (high - low);
  return {
    ticks: roundTicks(low, high),
    place: (/** @type {number} */ value) => Math.round((start + (value - low) * perUnit) * 10) / 10,
    value: (/** @type {number} */ place) => low + (place - start) / perUnit,
  };
}

/**
 * About `wanted` round numbers between two values.
 * @param {number} low
 * @param {number} high
 * @param {number} [wanted]
 */
export function roundTicks(low, high, wanted = 4) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const factor = [1, 2, 5, 10].find((one) => power * one >= rough * 0.75) ?? 10;
  const step = power * factor;
  const digits = Math.min(100, Math.max(0, 1 - Math.floor(Math.log10(step))));
  const ticks = [];
  for (let count = Math.ceil(low / step - 1e-9); count <= Math.floor(high / step + 1e-9); count += 1) {
    ticks.push(Number((count * step).toFixed(digits)) + 0);
  }
  return ticks;
}

/**
 * An SVG path; a value that is not finite leaves a gap.
 * @param {Place[]} places
 * @param {(x: number) => number} across
 * @param {(y: number) => number} up
 */
export function pathOf(places, across, up) {
  let path = "";
  let pen = "M";
  for (const { x, y } of places) {
    if (y === null) {
      pen = "M";
      continue;
    }
    path += `${pen}${across(x)} ${up(y)}`;
    pen = "L";
  }
  return path;
}

/**
 * The place nearest to `x`; places come in the order of x.
 * @param {Place[]} places
 * @param {number} x
 * @returns {Place | undefined}
 */
export function nearest(places, x) {
  let [low, high] = [0, places.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (/** @type {Place} */ (places[middle]).x < x) low = middle + 1;
    else high = middle;
  }
  const [after, before] = [places[low], places[low - 1]];
  return before && after && x - before.x < after.x - x ? before : after;
}

/**
 * Names of metrics as people want to read them: the loss first, those of validation last.
 * @param {Iterable<string>} names
 */
export function byWeight(names) {
  const weight = (/** @type {string} */ name) => (name.startsWith("val_") ? 2 : 0) + (name.includes("loss") ? 0 : 1);
  return [...names].sort((one, other) => weight(one) - weight(other));
}

/** @param {number} value */
export function formatTick(value) {
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(0).replace("+", "");
  return value.toLocaleString("en-US", { maximumFractionDigits: 10 });
}
