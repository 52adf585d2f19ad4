// Texts and numbers of the live dashboard that change as time passes.

/** A kernel that sends nothing for so long is silent: it sends something every few seconds. */
export const SILENT_S = 20;

/** A time of the day, such as "09:04:55". */
export function formatClock(time: Date): string {
  return [time.getHours(), time.getMinutes(), time.getSeconds()].map(pad).join(":");
}

function pad(number: number): string {
  return String(number).padStart(2, "0");
}

export function plural(count: number, one: string): string {
  return `${count.toLocaleString("en-US")} ${one}${count === 1 ? "" : "s"}`;
}
