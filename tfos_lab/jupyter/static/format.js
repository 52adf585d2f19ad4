// Words and numbers of the live dashboard that change by themselves as time goes by.

/** States that a cluster does not leave any more. */
export const ENDED = new Set(["done", "failed", "stopped"]);

/** States of a node in which it sends heartbeats. */
export const BEATING = new Set(["reserved", "importing", "starting", "running", "serving"]);

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
 * @param {number} count
 * @param {string} one
 */
export function plural(count, one) {
  return `${count.toLocaleString("en-US")} ${one}${count === 1 ? "" : "s"}`;
}
