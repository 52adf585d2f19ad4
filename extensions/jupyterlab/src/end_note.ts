// Notifies when a run ends that the user does not look at: one in the background, or of a notebook that is not in sight.

import { Notification } from "@jupyterlab/apputils";

import type { RunEnd } from "./end_watch";
import { formatAge, formatFigure } from "./format";
import type { ClustersModel } from "./model";
import type { Notebooks } from "./notebooks";

const SHORT_MS = 15_000;

const HOW: Record<string, string> = { done: "is done", failed: "failed", stopped: "was stopped", lost: "was lost" };

export interface EndNoteActions {
  showClusters(): void;
}

export function notifyOfEnds(model: ClustersModel, notebooks: Notebooks | null, actions: EndNoteActions): void {
  model.ended.connect((_, end) => {
    if (!end.inBackground && end.notebook && notebooks?.isInSight(end.notebook)) return;
    const show = () => (end.notebook && notebooks ? void notebooks.show(end) : actions.showClusters());
    const isBad = end.outcome === "failed" || end.outcome === "lost";
    Notification.emit(textOf(end), typeOf(end), {
      autoClose: isBad ? false : SHORT_MS,
      actions: [{ label: "Show", caption: `Show the cell of ${end.name}`, callback: show }],
    });
  });
}

function typeOf({ outcome }: RunEnd): "success" | "error" | "info" {
  if (outcome === "done") return "success";
  return outcome === "failed" || outcome === "lost" ? "error" : "info";
}

function textOf(end: RunEnd): string {
  const how = `${end.name} ${HOW[end.outcome] ?? "has ended"} after ${formatAge(end.tookS)}`;
  const where = end.notebook ? ` (${end.notebook})` : "";
  const what = end.outcome === "done" ? formatFigure(end.figures) : end.reason;
  return `${how}${where}${what ? `: ${what}` : ""}`;
}
