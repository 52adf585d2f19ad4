// Notices the end of runs: compares what has ended with what it saw live before. It asks nobody.

import type { ClusterList, EndedRun } from "./api";

/** The end of a run. */
export interface RunEnd extends EndedRun {
  /** Whether its kernel was free for other cells until it ended, and nobody has stopped it. */
  readonly inBackground: boolean;
}

export class EndWatch {
  private sinceS: number | undefined;
  /** The runs that were seen to live, and whether they were in the background. */
  private readonly seen = new Map<string, boolean>();
  private readonly told = new Set<string>();

  /** Takes a list, and returns the ends that are new. */
  take({ clusters, runs, now_s: nowS }: Pick<ClusterList, "clusters" | "runs" | "now_s">): RunEnd[] {
    this.sinceS ??= nowS;
    for (const { id, state, kernel_state: kernelState } of clusters) {
      const idle = state === "running" && kernelState === "idle";
      this.seen.set(id, idle || (this.seen.get(id) ?? false));
    }
    const news = runs.filter((run) => this.isNew(run));
    for (const { id } of news) this.told.add(id);
    return news.map((run) => ({ ...run, inBackground: run.outcome !== "stopped" && (this.seen.get(run.id) ?? false) }));
  }

  private isNew({ id, ended_s: endedS, outcome }: EndedRun): boolean {
    if (this.told.has(id)) return false;
    if (this.sinceS !== undefined && endedS >= this.sinceS) return true;
    // What its process did not end was seen to live, or was lost long ago.
    return outcome === "lost" && this.seen.has(id);
  }
}
