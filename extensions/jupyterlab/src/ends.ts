// Notices the end of runs: compares what has ended with what it saw live before. It asks nobody.

import type { ClusterList, EndedRun, RunList } from "./api";

/** The end of a run. */
export interface RunEnd extends EndedRun {
  /** Whether its kernel was free for other cells meanwhile. */
  readonly inBackground: boolean;
}

export class EndWatch {
  private sinceS: number | undefined;
  private live = new Set<string>();
  /** The runs that were seen to live, and whether they were in the background. */
  private readonly seen = new Map<string, boolean>();
  private readonly awaited = new Set<string>();
  private readonly told = new Set<string>();

  /** Whether clusters have gone whose records do not say yet that they have ended. */
  get waits(): boolean {
    return this.awaited.size > 0;
  }

  /** Takes the live clusters. */
  onClusters({ clusters, now_s: nowS }: Pick<ClusterList, "clusters" | "now_s">): void {
    this.sinceS ??= nowS;
    const before = this.live;
    this.live = new Set(clusters.map(({ id }) => id));
    for (const id of before) if (!this.live.has(id)) this.awaited.add(id);
    for (const { id, state, kernel_state: kernelState } of clusters) {
      const idle = state === "running" && kernelState === "idle";
      this.seen.set(id, idle || (this.seen.get(id) ?? false));
    }
  }

  /** Takes the ended runs, and returns the ends that are new. */
  onRuns({ runs }: Pick<RunList, "runs">): RunEnd[] {
    const news = runs.filter((run) => this.isNew(run));
    for (const { id } of news) this.told.add(id);
    for (const { id } of runs) this.awaited.delete(id);
    return news.map((run) => ({ ...run, inBackground: this.seen.get(run.id) ?? false }));
  }

  private isNew({ id, ended_s: endedS, outcome }: EndedRun): boolean {
    if (this.told.has(id)) return false;
    if (this.sinceS !== undefined && endedS >= this.sinceS) return true;
    // What its process did not end was seen to live, or was lost long ago.
    return outcome === "lost" && this.seen.has(id);
  }
}
