// What the server extension says and takes; `tfos_lab/jupyter_server/cluster_handlers.py` is the other side.

import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";

export interface NodeInfo {
  readonly node: string;
  readonly state: string;
  readonly host: string;
}

export interface ClusterInfo {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly launcher: string;
  readonly started_s: number;
  readonly kernel_id: string;
  readonly pid: number;
  readonly run_dir: string;
  readonly nodes: readonly NodeInfo[];
  readonly tensorboard: boolean;
}

export interface ClusterList {
  readonly now_s: number;
  readonly clusters: readonly ClusterInfo[];
}

/** The server's own words for what went wrong. */
export class ServerProblem extends Error {}

export class ServerApi {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  async list(): Promise<ClusterList> {
    return (await this.request("clusters", "GET")) as ClusterList;
  }

  async stop(id: string): Promise<void> {
    await this.request(`clusters/${encodeURIComponent(id)}/stop`, "POST");
  }

  /** Where a run's TensorBoard is; it asks for the login itself. */
  tensorBoardUrl(id: string, dark: boolean): string {
    const url = URLExt.join(this.settings.baseUrl, "tfos-lab", "tb", encodeURIComponent(id));
    return `${url}/${dark ? "?darkMode=true" : ""}`;
  }

  private async request(path: string, method: string): Promise<unknown> {
    const url = URLExt.join(this.settings.baseUrl, "tfos-lab", path);
    const response = await ServerConnection.makeRequest(url, { method, cache: "no-store" }, this.settings);
    if (response.ok) return response.json();
    if (response.status === 404 && path === "clusters") {
      throw new ServerProblem("this Jupyter server runs without tfos_lab's extension: restart it to load it");
    }
    throw new ServerProblem((await messageOf(response)) ?? response.statusText);
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
