// Notifies, when a notebook is opened or loaded again, of clusters in its kernel that it does not show: outputs are in the
// notebook only as far as it was saved, and a busy kernel cannot show them again.

import { Notification } from "@jupyterlab/apputils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

import type { ServerApi } from "./api";
import type { ClusterInfo } from "./messages";
import { cellThatShows } from "./notebooks";
import { NODE_STATES } from "./states";

export interface NoteActions {
  showClusters(): void;
}

export function notifyOfRunningClusters(notebooks: INotebookTracker, api: ServerApi, actions: NoteActions): void {
  notebooks.widgetAdded.connect((_, panel) => void notify(panel, api, actions));
}

async function notify(panel: NotebookPanel, api: ServerApi, actions: NoteActions): Promise<void> {
  await Promise.all([panel.context.ready, panel.sessionContext.ready]);
  const kernel = panel.sessionContext.session?.kernel?.id;
  if (!kernel || panel.isDisposed) return;
  for (const cluster of await runningIn(kernel, api)) {
    if (cellThatShows(panel, cluster.id) >= 0) continue;
    const up = cluster.nodes.filter(({ state }) => NODE_STATES[state]?.up && !NODE_STATES[state]?.ended).length;
    Notification.info(
      `The cluster ${cluster.name} runs on in the kernel of ${panel.title.label}: ${cluster.state}, ` +
        `${up}/${cluster.nodes.length} nodes running. This notebook was not saved since, and does not show it.`,
      { autoClose: false, actions: [{ label: "Show Clusters", callback: () => actions.showClusters() }] },
    );
  }
}

async function runningIn(kernel: string, api: ServerApi): Promise<ClusterInfo[]> {
  try {
    return (await api.list()).clusters.filter((cluster) => cluster.kernel_id === kernel);
  } catch {
    return []; // the panel says why
  }
}
