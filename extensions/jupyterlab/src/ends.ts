// Notices the end of runs: compares what has ended with what it saw live before. It asks nobody.

import type { ClusterList, EndedRun } from "./api";

export class EndWatch {
  private sinceS: number | undefined;
  private readonly seen = new Set<string>();
  private readonly told = new Set<string>();

  /** Takes a list, and returns the ends that are new. */
  take({ clusters, runs, now_s: nowS }: Pick<ClusterList, "clusters" | "runs" | "now_s">): EndedRun[] {
    this.sinceS ??= nowS;
    for (const { id } of clusters) this.seen.add(id);
    const news = runs.filter((run) => this.isNew(run));
    for (const { id } of news) this.told.add(id);
    return news;
  }

  private isNew({ id, ended_s: endedS, outcome }: EndedRun): boolean {
    if (this.told.has(id)) return false;
    if (this.sinceS !== undefined && endedS >= this.sinceS) return true;
    // What its process did not end was seen to live, or was lost long ago.
    return outcome === "lost" && this.seen.has(id);
  }
}
