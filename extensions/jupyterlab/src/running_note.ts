// Tells, when a notebook is opened or loaded again, of clusters that run on in its kernel and that it shows nothing of:
// what a cell shows is in the notebook only as far as it was saved, and a kernel that is busy shows it nowhere.

import { Notification } from "@jupyterlab/apputils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

import type { ClusterInfo, ServerApi } from "./api";
import { NODE_STATES } from "./states";

export interface NoteActions {
  showClusters(): void;
}

export function tellOfRunningClusters(notebooks: INotebookTracker, api: ServerApi, actions: NoteActions): void {
  notebooks.widgetAdded.connect((_, panel) => void tell(panel, api, actions));
}

async function tell(panel: NotebookPanel, api: ServerApi, actions: NoteActions): Promise<void> {
  await Promise.all([panel.context.ready, panel.sessionContext.ready]);
  const kernel = panel.sessionContext.session?.kernel?.id;
  if (!kernel || panel.isDisposed) return;
  for (const cluster of await runningIn(kernel, api)) {
    if (isShown(panel, cluster)) continue;
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

/** Whether an output of the notebook is of this run; `tfos_lab/jupyter/display/dashboard.py` names it so. */
function isShown(panel: NotebookPanel, cluster: ClusterInfo): boolean {
  for (const cell of panel.content.model?.cells ?? []) {
    if (cell.type === "code" && JSON.stringify(cell.toJSON()["outputs"] ?? []).includes(`"tfos-${cluster.id}-`)) return true;
  }
  return false;
}
