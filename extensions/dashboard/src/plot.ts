// The geometry of the charts: dots, scales, ticks and paths. Pure; `metric_charts.py` draws the same for saved notebooks.

import type { Point } from "./messages";

export const PLOT = { width: 320, height: 130, left: 46, right: 8, top: 6, bottom: 20 };

/** A chart has no more pixels for more dots. */
const MAX_DRAWN = 400;

/** A point of a line in the units of its axes; `y` is null where the value is not finite. */
export interface Dot {
  readonly x: number;
  readonly y: number | null;
}

export interface Scale {
  readonly ticks: number[];
  toPixel(value: number): number;
  toValue(pixel: number): number;
}

/**
 * Whether all points have a step, and steps never go back; otherwise lines are drawn over time.
 *
 * Steps begin anew with a second `fit`, and go back when nodes start again: a line over them would run to and fro.
 */
export function stepsIncrease(lines: Iterable<readonly Point[]>): boolean {
  for (const points of lines) {
    let before = -Infinity;
    for (const [, step] of points) {
      if (step === null || step < before) return false;
      before = step;
    }
  }
  return true;
}

export function dotsOf(points: readonly Point[], byStep: boolean): Dot[] {
  return points.map(([timeS, step, value]) => ({ x: byStep ? Number(step) : timeS, y: value }));
}

/** Keeps about as many dots as can be seen: the lowest and the highest of each stretch, so that no peak is lost. */
export function thin(dots: Dot[], atMost: number = MAX_DRAWN): Dot[] {
  if (dots.length <= atMost) return dots;
  const stretch = Math.ceil(dots.length / (atMost / 2));
  const kept: Dot[] = [];
  for (let start = 0; start < dots.length; start += stretch) {
    const part = dots.slice(start, start + stretch);
    let low = part[0] as Dot;
    let high = low;
    for (const dot of part) {
      if (dot.y === null) continue;
      if (low.y === null || dot.y < low.y) low = dot;
      if (high.y === null || dot.y > high.y) high = dot;
    }
    kept.push(...(low === high ? [low] : low.x <= high.x ? [low, high] : [high, low]));
  }
  const last = dots.at(-1) as Dot;
  if (kept.at(-1) !== last) kept.push(last);
  return kept;
}

/** A scale from values to pixels; a single value gets space around it. */
export function scaleOf(values: readonly number[], start: number, end: number): Scale {
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
    toPixel: (value) => Math.round((start + (value - low) * perUnit) * 10) / 10,
    toValue: (pixel) => low + (pixel - start) / perUnit,
  };
}

/** About `wanted` round numbers between two values. */
export function roundTicks(low: number, high: number, wanted = 4): number[] {
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

/** An SVG path; a value that is not finite leaves a gap. */
export function pathOf(dots: readonly Dot[], toX: (x: number) => number, toY: (y: number) => number): string {
  let path = "";
  let pen = "M";
  for (const { x, y } of dots) {
    if (y === null) {
      pen = "M";
      continue;
    }
    path += `${pen}${toX(x)} ${toY(y)}`;
    pen = "L";
  }
  return path;
}

/** The dot nearest to `x`; dots are in the order of x. */
export function nearest(dots: readonly Dot[], x: number): Dot | undefined {
  let [low, high] = [0, dots.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((dots[middle] as Dot).x < x) low = middle + 1;
    else high = middle;
  }
  const [after, before] = [dots[low], dots[low - 1]];
  return before && after && x - before.x < after.x - x ? before : after;
}

/** Names of metrics in the order of interest: losses first, those of validation last. */
export function byWeight(names: Iterable<string>): string[] {
  const weight = (name: string) => (name.startsWith("val_") ? 2 : 0) + (name.includes("loss") ? 0 : 1);
  return [...names].sort((one, other) => weight(one) - weight(other));
}

export function formatTick(value: number): string {
  if (value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e6)) return value.toExponential(0).replace("+", "");
  return value.toLocaleString("en-US", { maximumFractionDigits: 10 });
}
