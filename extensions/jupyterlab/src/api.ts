// Requests to the server extension; `tfos_lab/notebook/server/cluster_handlers.py` answers them.

import { URLExt } from "@jupyterlab/coreutils";
import { ServerConnection } from "@jupyterlab/services";

/** A run, and the notebook with its cell: a path below the server's root, or empty. */
export interface RunPlace {
  readonly id: string;
  readonly name: string;
  readonly notebook: string;
}

/** A live cluster; `is` says how it is, and `kernel_state` what its kernel does besides, such as `busy`. */
export interface Cluster extends RunPlace {
  readonly state: string;
  readonly is: string;
  readonly kernel_id: string;
  readonly kernel_state: string;
}

/** A run that has ended: done, failed, stopped or lost; `note` says so in a sentence. */
export interface EndedRun extends RunPlace {
  readonly outcome: string;
  readonly ended_s: number;
  readonly note: string;
}

/** The live clusters, and the runs that ended last, with what the panel shows of them; `now_s` by the server's clock. */
export interface ClusterList {
  readonly now_s: number;
  readonly clusters: readonly Cluster[];
  readonly runs: readonly EndedRun[];
  readonly html: string;
}

export class ServerApi {
  constructor(private readonly settings: ServerConnection.ISettings) {}

  async list(): Promise<ClusterList> {
    return (await this.request("clusters", "GET")) as ClusterList;
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
      throw new Error("this Jupyter server runs without tfos_lab's extension: restart it to load it");
    }
    throw await ServerConnection.ResponseError.create(response);
  }
}
