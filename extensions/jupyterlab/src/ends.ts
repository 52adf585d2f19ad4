// Notices the end of runs: compares what lives and what has ended with what it saw before. It asks nobody.

import type { Cluster, ClusterList, EndedRun, RunList, RunPlace } from "./api";

/** The end of a run; `outcome` is empty where nothing more is known of it. */
export interface RunEnd extends RunPlace {
  readonly outcome: string;
  readonly note: string;
  /** Whether its kernel was free for other cells meanwhile. */
  readonly inBackground: boolean;
}

interface Seen {
  cluster: Cluster;
  inBackground: boolean;
}

interface Gone extends Seen {
  goneS: number;
}

/** The last record of a run is written a moment after its cluster has ended. */
const RECORD_WAIT_S = 8;

export class EndWatch {
  private sinceS: number | undefined;
  private readonly live = new Map<string, Seen>();
  private readonly gone = new Map<string, Gone>();
  private readonly told = new Set<string>();

  /** Whether clusters have ended whose outcome is not known yet. */
  get waits(): boolean {
    return this.gone.size > 0;
  }

  /** Takes the live clusters. */
  onClusters({ clusters, now_s: nowS }: Pick<ClusterList, "clusters" | "now_s">): void {
    this.sinceS ??= nowS;
    const ids = new Set(clusters.map(({ id }) => id));
    for (const [id, seen] of this.live) {
      if (ids.has(id)) continue;
      this.live.delete(id);
      this.gone.set(id, { ...seen, goneS: nowS });
    }
    for (const cluster of clusters) {
      const idle = cluster.state === "running" && cluster.kernel_state === "idle";
      this.live.set(cluster.id, { cluster, inBackground: idle || (this.live.get(cluster.id)?.inBackground ?? false) });
    }
  }

  /** Takes the ended runs, and returns the ends that are new. */
  onRuns({ runs, now_s: nowS }: Pick<RunList, "runs" | "now_s">): RunEnd[] {
    const news = runs.filter((run) => this.isNew(run));
    const ends = news.map((run) => ({ ...run, inBackground: this.seen(run.id)?.inBackground ?? false }));
    for (const { id } of news) this.told.add(id);
    for (const { id } of runs) this.gone.delete(id);
    return [...ends, ...this.withoutRecord(nowS)];
  }

  private isNew({ id, ended_s: endedS, outcome }: EndedRun): boolean {
    if (this.told.has(id)) return false;
    if (this.sinceS !== undefined && endedS >= this.sinceS) return true;
    // What its process did not end was seen to live, or was lost long ago.
    return outcome === "lost" && this.seen(id) !== undefined;
  }

  private seen(id: string): Seen | undefined {
    return this.gone.get(id) ?? this.live.get(id);
  }

  private withoutRecord(nowS: number): RunEnd[] {
    const late = [...this.gone.values()].filter(({ goneS }) => nowS - goneS > RECORD_WAIT_S);
    return late.map(({ cluster, inBackground }) => {
      this.gone.delete(cluster.id);
      this.told.add(cluster.id);
      return { ...cluster, outcome: "", note: `${cluster.name} has ended`, inBackground };
    });
  }
}
