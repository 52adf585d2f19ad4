// Numbers as people read them.

import type { Figures } from "./messages";

/** A time span such as 42 s, 3 min or 2 h 5 min. */
export function formatAge(seconds: number): string {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** When something was: the time today, the date before. */
export function formatMoment(seconds: number): string {
  const moment = new Date(seconds * 1000);
  if (moment.toDateString() !== new Date().toDateString()) {
    return moment.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
  }
  return moment.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

/** A metric with four digits; null is one that was not finite. */
export function formatMetric(value: number | null | undefined): string {
  if (value === null || value === undefined) return "not finite";
  return Number.isInteger(value) ? value.toLocaleString("en-US") : String(Number(value.toPrecision(4)));
}

export function formatBytes(bytes: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = bytes;
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit += 1) value /= 1000;
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit] ?? ""}`;
}

export function formatShare(share: number): string {
  return `${Math.round(share * 100)} %`;
}

/** Steps such as `41/200`, or nothing. */
export function formatCount(step: number | null | undefined, total: number | null | undefined): string {
  if (step === null || step === undefined) return "";
  return `${step.toLocaleString("en-US")}${total ? `/${total.toLocaleString("en-US")}` : ""}`;
}

/** Steps such as `step 41/200`, or nothing. */
export function formatStep(step: number | null | undefined, total: number | null | undefined): string {
  const count = formatCount(step, total);
  return count && `step ${count}`;
}

/** A metric such as `loss 0.031`, or nothing. */
export function formatFigure({ metric, value }: Figures): string {
  return metric ? `${metric} ${formatMetric(value)}` : "";
}
