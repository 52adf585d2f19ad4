// Requests to the server extension; `tfos_lab/jupyter_server/cluster_handlers.py` answers them.

import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";

import type { ClusterList, RunList } from "./messages";

/** What went wrong, as the server says it. */
export class ServerError extends Error {}

export class ServerApi {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  /** The live clusters. */
  async list(): Promise<ClusterList> {
    return (await this.request("clusters", "GET")) as ClusterList;
  }

  /** The runs that ended last. */
  async runs(): Promise<RunList> {
    return (await this.request("runs", "GET")) as RunList;
  }

  async stop(id: string): Promise<void> {
    await this.request(`clusters/${encodeURIComponent(id)}/stop`, "POST");
  }

  /** The address of a run's TensorBoard; it asks for the login itself. */
  tensorBoardUrl(id: string, dark: boolean): string {
    const url = URLExt.join(this.settings.baseUrl, "tfos-lab", "tb", encodeURIComponent(id));
    return `${url}/${dark ? "?darkMode=true" : ""}`;
  }

  private async request(path: string, method: string): Promise<unknown> {
    const url = URLExt.join(this.settings.baseUrl, "tfos-lab", path);
    const response = await ServerConnection.makeRequest(url, { method, cache: "no-store" }, this.settings);
    if (response.ok) return response.json();
    if (response.status === 404 && method === "GET") {
      throw new ServerError("this Jupyter server runs without tfos_lab's extension: restart it to load it");
    }
    throw new ServerError((await messageOf(response)) ?? response.statusText);
  }
}

async function messageOf(response: Response): Promise<string | null> {
  try {
    const body: unknown = await response.json();
    return typeof body === "object" && body && "message" in body ? String(body.message) : null;
  } catch {
    return null;
  }
}
