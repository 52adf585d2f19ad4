// Notifications: of the end of a run that the user does not look at, and, when a notebook is opened, of clusters in its
// kernel that it does not show: a busy kernel cannot show again what was not saved.

import { Notification } from "@jupyterlab/apputils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

import type { Cluster, ServerApi } from "./api";
import type { RunEnd } from "./ends";
import type { ClustersModel } from "./model";
import { cellThatShows, type Notebooks } from "./notebooks";

const SHORT_MS = 15_000;

export function notifyOfEnds(model: ClustersModel, notebooks: Notebooks | null, showClusters: () => void): void {
  model.ended.connect((_, end) => {
    if (!end.inBackground && end.notebook && notebooks?.isInSight(end.notebook)) return;
    const show = () => (end.notebook && notebooks ? void notebooks.show(end) : showClusters());
    Notification.emit(end.note, typeOf(end), {
      autoClose: typeOf(end) === "error" ? false : SHORT_MS,
      actions: [{ label: "Show", caption: `Show the cell of ${end.name}`, callback: show }],
    });
  });
}

function typeOf({ outcome }: RunEnd): "success" | "error" | "info" {
  if (outcome === "done") return "success";
  return outcome === "failed" || outcome === "lost" ? "error" : "info";
}

export function notifyOfRunningClusters(notebooks: INotebookTracker, api: ServerApi, showClusters: () => void): void {
  notebooks.widgetAdded.connect((_, panel) => void notifyOfRunning(panel, api, showClusters));
}

async function notifyOfRunning(panel: NotebookPanel, api: ServerApi, showClusters: () => void): Promise<void> {
  await Promise.all([panel.context.ready, panel.sessionContext.ready]);
  const kernel = panel.sessionContext.session?.kernel?.id;
  if (!kernel || panel.isDisposed) return;
  for (const cluster of await runningIn(kernel, api)) {
    if (cellThatShows(panel, cluster.id) >= 0) continue;
    Notification.info(
      `The cluster ${cluster.name} runs on in the kernel of ${panel.title.label}: ${cluster.is}. ` +
        "This notebook was not saved since, and does not show it.",
      { autoClose: false, actions: [{ label: "Show Clusters", callback: showClusters }] },
    );
  }
}

async function runningIn(kernel: string, api: ServerApi): Promise<Cluster[]> {
  try {
    return (await api.list()).clusters.filter((cluster) => cluster.kernel_id === kernel);
  } catch {
    return []; // the panel says why
  }
}
