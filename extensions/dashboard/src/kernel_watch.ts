// Watches whether the dashboard's kernel is still there.
//
// JupyterLab signals when a kernel is restarted or ends. Elsewhere, and where the connection to the server is lost, the
// kernel falls silent: a live one sends something every few seconds.

import type { KernelChange, Model } from "./model";

/** JupyterLab's status of a kernel that has ended → what happened. */
const ENDINGS: Record<string, string> = {
  restarting: "was restarted",
  autorestarting: "died, and was restarted",
  dead: "died",
  terminating: "was shut down",
};

/** Calls `onLost` with what happened as soon as the kernel is gone; returns a function that ends the watch. */
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
