// Notices the end of runs: compares what lives and what has ended with what it saw before. It asks nobody.

import type { ClusterInfo, ClusterList, Figures, RunList } from "./messages";

/** The end of a run; `outcome` is empty where nothing more is known of it. */
export interface RunEnd {
  readonly id: string;
  readonly name: string;
  readonly outcome: string;
  readonly reason: string;
  readonly notebook: string;
  readonly tookS: number;
  readonly figures: Figures;
  /** Whether its kernel was free for other cells meanwhile. */
  readonly inBackground: boolean;
}

interface Seen {
  cluster: ClusterInfo;
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
  onClusters({ clusters, now_s: nowS }: ClusterList): void {
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
  onRuns({ runs, now_s: nowS }: RunList): RunEnd[] {
    const ends: RunEnd[] = [];
    for (const run of runs) {
      const seen = this.gone.get(run.id) ?? this.live.get(run.id);
      this.gone.delete(run.id);
      const isNew = this.sinceS !== undefined && run.ended_s >= this.sinceS && !this.told.has(run.id);
      // What its process did not end was seen to live, or was lost long ago.
      if (!isNew && !(seen && run.outcome === "lost" && !this.told.has(run.id))) continue;
      this.told.add(run.id);
      ends.push({ ...run, tookS: run.ended_s - run.started_s, inBackground: seen?.inBackground ?? false });
    }
    return [...ends, ...this.withoutRecord(nowS)];
  }

  private withoutRecord(nowS: number): RunEnd[] {
    const late = [...this.gone.values()].filter(({ goneS }) => nowS - goneS > RECORD_WAIT_S);
    return late.map(({ cluster, inBackground, goneS }) => {
      this.gone.delete(cluster.id);
      this.told.add(cluster.id);
      return { ...cluster, outcome: "", reason: "", tookS: goneS - cluster.started_s, inBackground };
    });
  }
}
