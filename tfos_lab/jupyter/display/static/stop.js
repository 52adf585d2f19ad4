// Stop: one click, whichever way the kernel can hear.

import { pageConfig, serverUrl } from "./page.js";

/**
 * Asks the kernel to stop the cluster.
 *
 * While a cell blocks, the kernel may not read widget messages (it depends on ipykernel's version), but every Jupyter
 * server can interrupt it. When nothing blocks, an interrupt would hit somebody else's cell: then it is a message.
 * @param {Model} model
 */
export async function requestStop(model) {
  if (model.get("blocking") && (await interruptKernel(model))) return;
  model.send({ kind: "stop" });
}

/**
 * @param {Model} model
 * @returns {Promise<boolean>} whether the server did it
 */
async function interruptKernel(model) {
  const kernel = model.widget_manager?.kernel?.id ?? model.get("kernel_id");
  const url = serverUrl(`api/kernels/${encodeURIComponent(kernel)}/interrupt`);
  if (!kernel || !url) return false;
  /** @type {Record<string, string>} */
  const headers = {};
  const xsrf = /(?:^|;\s*)_xsrf=([^;]*)/.exec(document.cookie)?.[1];
  if (xsrf) headers["X-XSRFToken"] = decodeURIComponent(xsrf);
  const token = pageConfig()?.token;
  if (token) headers["Authorization"] = `token ${token}`;
  try {
    const response = await fetch(url, { method: "POST", credentials: "same-origin", headers });
    return response.ok;
  } catch {
    return false;
  }
}
