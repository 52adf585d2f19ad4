// Whether the kernel that a dashboard belongs to is still there.
//
// JupyterLab says when a kernel is restarted or ends. Elsewhere, and where the line to the server is cut, the kernel is
// silent: it says something every few seconds as long as it lives.

/** @type {Record<string, string>} what JupyterLab calls it, and what happened */
const ENDINGS = {
  restarting: "was restarted",
  autorestarting: "died, and was restarted",
  dead: "died",
  terminating: "was shut down",
};

/**
 * Calls `lose` with what happened as soon as the kernel has gone.
 * @param {Model} model
 * @param {(happened: string) => void} lose
 * @returns {() => void} ends the watch
 */
export function watchKernel(model, lose) {
  const session = model.widget_manager?.context?.sessionContext;
  if (!session) return () => {};
  const statusChanged = (/** @type {unknown} */ _, /** @type {string} */ status) => {
    const happened = ENDINGS[status];
    if (happened) lose(happened);
  };
  const kernelChanged = (/** @type {unknown} */ _, /** @type {any} */ { oldValue, newValue }) => {
    if (oldValue && oldValue.id !== newValue?.id) lose(newValue ? "was replaced by another one" : "was shut down");
  };
  session.statusChanged.connect(statusChanged);
  session.kernelChanged.connect(kernelChanged);
  return () => {
    session.statusChanged.disconnect(statusChanged);
    session.kernelChanged.disconnect(kernelChanged);
  };
}
