// The clusters of all kernels: the panel's state, and a signal when it changes.

import type { IDisposable } from "@lumino/disposable";
import { Poll } from "@lumino/polling";
import { type ISignal, Signal } from "@lumino/signaling";

import type { ServerApi } from "./api";
import type { ClusterInfo } from "./messages";

const PERIOD_MS = 1500;
const SLOWEST_MS = 15_000;

export class ClustersModel implements IDisposable {
  private readonly _changed = new Signal<this, void>(this);
  private readonly poll: Poll;
  private readonly stopping = new Set<string>();
  private _clusters: readonly ClusterInfo[] = [];
  private _problem = "";
  private offsetS = 0;

  /** Whether the panel is visible: otherwise the server is not asked. */
  watched = false;

  constructor(private readonly api: ServerApi) {
    this.poll = new Poll({
      name: "tfos-lab:clusters",
      auto: false,
      factory: () => this.fetch(),
      frequency: { interval: PERIOD_MS, backoff: true, max: SLOWEST_MS },
      standby: () => (this.watched ? "when-hidden" : true),
    });
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  get clusters(): readonly ClusterInfo[] {
    return this._clusters;
  }

  /** A sentence on why there is no list, or nothing. */
  get problem(): string {
    return this._problem;
  }

  get isDisposed(): boolean {
    return this.poll.isDisposed;
  }

  start(): void {
    void this.poll.start();
  }

  async refresh(): Promise<void> {
    await this.poll.refresh();
    await this.poll.tick;
  }

  /** Seconds since the cluster's start was requested, by the server's clock. */
  ageS(cluster: ClusterInfo): number {
    return Math.max(0, Date.now() / 1000 + this.offsetS - cluster.started_s);
  }

  isStopping(cluster: ClusterInfo): boolean {
    return this.stopping.has(cluster.id) || cluster.state === "stopping";
  }

  async stop(cluster: ClusterInfo): Promise<void> {
    this.stopping.add(cluster.id);
    this._changed.emit();
    try {
      await this.api.stop(cluster.id);
    } catch (error) {
      this.stopping.delete(cluster.id);
      throw error;
    } finally {
      await this.refresh();
    }
  }

  dispose(): void {
    this.poll.dispose();
    Signal.clearData(this);
  }

  private async fetch(): Promise<void> {
    try {
      const { clusters, now_s } = await this.api.list();
      this.offsetS = now_s - Date.now() / 1000;
      this._clusters = clusters;
      this._problem = "";
      for (const id of this.stopping) {
        if (!clusters.some((cluster) => cluster.id === id)) this.stopping.delete(id);
      }
    } catch (error) {
      this._problem = error instanceof Error ? error.message : String(error);
      throw error;
    } finally {
      this._changed.emit();
    }
  }
}
