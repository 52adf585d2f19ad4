// The clusters of all kernels and the runs that have ended: the panel's state, and signals when it changes.

import { Poll } from "@lumino/polling";
import { Signal } from "@lumino/signaling";

import type { ClusterList, RunPlace, ServerApi } from "./api";
import { EndWatch, type RunEnd } from "./ends";

const WATCHED_MS = 1000;
/** While the panel is hidden: for notices when a run ends. */
const UNWATCHED_MS = 5000;
const SLOWEST_MS = 30_000;

export class ClustersModel {
  readonly changed = new Signal<this, void>(this);
  /** A run has ended, and the user has not stopped it here. */
  readonly ended = new Signal<this, RunEnd>(this);
  private readonly poll: Poll;
  private readonly ends = new EndWatch();
  /** Clusters that were asked here to stop. */
  readonly stopping = new Set<string>();
  list: ClusterList | null = null;
  /** A sentence on why there is no list, or nothing. */
  problem = "";

  constructor(private readonly api: ServerApi) {
    this.poll = new Poll({
      name: "tfos-lab:clusters",
      auto: false,
      factory: () => this.fetch(),
      frequency: { interval: UNWATCHED_MS, backoff: true, max: SLOWEST_MS },
      standby: "when-hidden",
    });
  }

  /** The run with that id, live or ended. */
  find(id: string): RunPlace | undefined {
    return [...(this.list?.clusters ?? []), ...(this.list?.runs ?? [])].find((run) => run.id === id);
  }

  /** Whether the panel is visible: otherwise the server is asked less often. */
  set watched(watched: boolean) {
    this.poll.frequency = { ...this.poll.frequency, interval: watched ? WATCHED_MS : UNWATCHED_MS };
  }

  start(): void {
    void this.poll.start();
  }

  async refresh(): Promise<void> {
    await this.poll.refresh();
    await this.poll.tick;
  }

  async stop(cluster: RunPlace): Promise<void> {
    this.stopping.add(cluster.id);
    this.changed.emit();
    try {
      await this.api.stop(cluster.id);
    } catch (error) {
      this.stopping.delete(cluster.id);
      throw error;
    } finally {
      await this.refresh();
    }
  }

  private async fetch(): Promise<void> {
    try {
      this.list = await this.api.list();
      this.problem = "";
      for (const end of this.ends.take(this.list)) {
        const stoppedHere = this.stopping.delete(end.id) && end.outcome !== "failed";
        if (!stoppedHere) this.ended.emit(end);
      }
    } catch (error) {
      this.problem = error instanceof Error ? error.message : String(error);
      throw error;
    } finally {
      this.changed.emit();
    }
  }
}
