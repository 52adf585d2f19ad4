// Words and numbers of the live dashboard that change by themselves as time goes by.

import { CLUSTER_STATES, NODE_STATES } from "./states.js";

/** States that a cluster does not leave any more; a lost one is one whose kernel has gone. */
export const ENDED = new Set(Object.keys(CLUSTER_STATES).filter((state) => CLUSTER_STATES[state]?.ended));

/** States of a node in which it sends heartbeats. */
export const HEARTBEATING = new Set(Object.keys(NODE_STATES).filter((state) => NODE_STATES[state]?.present));

/** A kernel that says nothing for so long is silent: it says something every few seconds. */
export const SILENT_S = 20;

/** A heartbeat older than this is marked: agents beat every second. */
export const LATE_S = 5;

/**
 * @param {number} seconds
 * @returns {string} such as "7 s", "4:05" or "1:02:03"
 */
export function formatElapsed(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  const pad = (/** @type {number} */ number) => String(number).padStart(2, "0");
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60];
  return hours ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)}`;
}

/**
 * A time of the day, such as "09:04:55".
 * @param {Date} time
 */
export function formatClock(time) {
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/**
 * A duration as the kernel writes it: "0.12 s", "12.3 s", "4:05".
 * @param {number} seconds
 */
export function formatSeconds(seconds) {
  if (seconds < 9.995) return `${seconds.toFixed(2)} s`;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  return formatElapsed(Math.round(seconds));
}

/**
 * A metric with four significant digits, as the kernel writes it.
 * @param {number} value
 */
export function formatMetric(value) {
  const size = Math.abs(value);
  if (value !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(3).replace(/e([+-])(\d)$/, "e$10$2");
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(4)));
}

/** @param {number} bytes */
export function formatBytes(bytes) {
  let [size, unit] = [bytes, "B"];
  for (const larger of ["kB", "MB", "GB"]) {
    if (size < 999.5) break;
    [size, unit] = [size / 1000, larger];
  }
  return `${unit === "B" || size >= 99.95 ? Math.round(size) : Number(size.toPrecision(3))} ${unit}`;
}

/**
 * @param {number} count
 * @param {string} one
 */
export function plural(count, one) {
  return `${count.toLocaleString("en-US")} ${one}${count === 1 ? "" : "s"}`;
}
