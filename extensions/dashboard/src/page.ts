// The page around the dashboard: which Jupyter server it came from, whether it is dark, and its kernel.

import type { KernelChange, Model } from "./model";

/** An address of the Jupyter server; null on pages that are not Jupyter's own. */
export function serverUrl(path: string): URL | null {
  const text = document.getElementById("jupyter-config-data")?.textContent;
  const base: unknown = text ? JSON.parse(text).baseUrl : null;
  return typeof base === "string" ? new URL(path, new URL(base, document.location.href)) : null;
}

/** Whether Jupyter's theme is dark. */
export function isDark(): boolean {
  return document.body.dataset["jpThemeLight"] === "false";
}

/** Between two looks for an output that is not in the page; it is given up after so many of them. */
const UNSEEN_MS = 300;
const MOST_UNSEEN = 2000;

/**
 * Does something for the output of a script, again and again: `act` returns after how many milliseconds, or 0 for never.
 *
 * The output may become part of the page a little later than its script runs, and JupyterLab takes outputs out of the page
 * while they are out of sight.
 */
export async function whileMounted(id: string, act: (box: HTMLElement) => number | Promise<number>): Promise<void> {
  for (let unseen = 0; unseen < MOST_UNSEEN; ) {
    const box = document.getElementById(id);
    unseen = box ? 0 : unseen + 1;
    const waitMs = box ? await act(box) : UNSEEN_MS;
    if (!waitMs) return;
    await new Promise((done) => setTimeout(done, waitMs));
  }
}

// ---- the kernel ---------------------------------------------------------------------------------------------------------

/**
 * Asks the kernel to stop the cluster.
 *
 * While a cell blocks, the kernel may not read widget messages (it depends on ipykernel's version), but the server can
 * interrupt it. When nothing blocks, an interrupt would hit another cell: then a message goes.
 */
export async function requestStop(model: Model): Promise<void> {
  const kernel = model.get("blocking") ? model.widget_manager?.kernel : null;
  try {
    if (kernel) return await kernel.interrupt();
  } catch (error) {
    console.warn("the kernel could not be interrupted", error);
  }
  model.send({ kind: "stop" });
}

/** JupyterLab's status of a kernel that has ended → what happened. */
const ENDINGS: Record<string, string> = {
  restarting: "was restarted",
  autorestarting: "died, and was restarted",
  dead: "died",
  terminating: "was shut down",
};

/**
 * Calls `onLost` with what happened as soon as the kernel is gone; returns a function that ends the watch.
 *
 * JupyterLab signals when a kernel is restarted or ends. Elsewhere, and where the connection to the server is lost, the
 * kernel falls silent: a live one sends something every few seconds.
 */
export function watchKernel(model: Model, onLost: (happened: string) => void): () => void {
  const session = model.widget_manager?.context?.sessionContext;
  if (!session) return () => {};
  const statusChanged = (_: unknown, status: string) => {
    const happened = ENDINGS[status];
    if (happened) onLost(happened);
  };
  const kernelChanged = (_: unknown, { oldValue, newValue }: KernelChange) => {
    if (oldValue && oldValue.id !== newValue?.id) onLost(newValue ? "was replaced by another one" : "was shut down");
  };
  session.statusChanged.connect(statusChanged);
  session.kernelChanged.connect(kernelChanged);
  return () => {
    session.statusChanged.disconnect(statusChanged);
    session.kernelChanged.disconnect(kernelChanged);
  };
}
