// Stops the cluster with one click, whichever way the kernel can be reached.

import type { Model } from "./model";
import { pageConfig, serverUrl } from "./page";

/**
 * Asks the kernel to stop the cluster.
 *
 * While a cell blocks, the kernel may not read widget messages (it depends on ipykernel's version), but every Jupyter
 * server can interrupt it. When nothing blocks, an interrupt would hit another cell: then a message goes.
 */
export async function requestStop(model: Model): Promise<void> {
  if (model.get("blocking") && (await interruptKernel(model))) return;
  model.send({ kind: "stop" });
}

/** Returns whether the server did it. */
async function interruptKernel(model: Model): Promise<boolean> {
  const kernel = model.widget_manager?.kernel?.id ?? model.get("kernel_id");
  const url = serverUrl(`api/kernels/${encodeURIComponent(kernel)}/interrupt`);
  if (!kernel || !url) return false;
  const headers = new Headers();
  const xsrf = /(?:^|;\s*)_xsrf=([^;]*)/.exec(document.cookie)?.[1];
  if (xsrf) headers.set("X-XSRFToken", decodeURIComponent(xsrf));
  const token = pageConfig()?.token;
  if (token) headers.set("Authorization", `token ${token}`);
  try {
    const response = await fetch(url, { method: "POST", credentials: "same-origin", headers });
    return response.ok;
  } catch {
    return false;
  }
}
