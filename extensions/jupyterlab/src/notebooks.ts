// The open notebooks: which of them is in sight, and which of its cells shows a run. And notifications: of the end of a run
// that the user does not look at, and, when a notebook is opened, of clusters in its kernel that it does not show: a busy
// kernel cannot show again what was not saved.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

import type { Cluster, RunPlace, ServerApi } from "./api";
import type { RunEnd } from "./ends";
import type { ClustersModel } from "./model";

/** Without a time, a notification would go to JupyterLab's list only. */
const NOTE_MS = 15_000;

export class Notebooks {
  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly tracker: INotebookTracker,
  ) {}

  /** Whether the user can see this notebook. */
  isInSight(path: string): boolean {
    return document.visibilityState === "visible" && (this.find(path)?.isVisible ?? false);
  }

  /** Opens the notebook of a run if necessary, and shows the cell. */
  async show(run: RunPlace): Promise<void> {
    const { commands, shell } = this.app;
    if (!this.find(run.notebook)) await commands.execute("docmanager:open", { path: run.notebook });
    const panel = this.find(run.notebook);
    if (!panel) return; // Notebook 7 has opened a page of its own
    shell.activateById(panel.id);
    await Promise.all([panel.context.ready, panel.revealed]);
    const cell = cellThatShows(panel, run.id);
    if (cell < 0) {
      const text = `No cell of ${run.notebook} shows ${run.name}: its output was cleared, or not saved.`;
      Notification.info(text, { autoClose: NOTE_MS });
      return;
    }
    panel.content.activeCellIndex = cell;
    panel.content.deselectAll();
    await panel.content.scrollToItem(cell, "start");
  }

  private find(path: string): NotebookPanel | undefined {
    const { contents } = this.app.serviceManager;
    return this.tracker.find(({ context }) => contents.localPath(context.path) === path);
  }
}

/** The cell with an output of the run, or -1; `tfos_lab/notebook/display/dashboard.py` sets the display id. */
function cellThatShows(panel: NotebookPanel, runId: string): number {
  const cells = [...(panel.content.model?.cells ?? [])];
  return cells.findIndex(
    (cell) => cell.type === "code" && JSON.stringify(cell.toJSON()["outputs"] ?? []).includes(`"tfos-${runId}-`),
  );
}

// ---- notifications ------------------------------------------------------------------------------------------------------

export function notifyOfEnds(model: ClustersModel, notebooks: Notebooks | null, showClusters: () => void): void {
  model.ended.connect((_, end) => {
    if (!end.inBackground && end.notebook && notebooks?.isInSight(end.notebook)) return;
    const show = () => (end.notebook && notebooks ? void notebooks.show(end) : showClusters());
    Notification.emit(end.note, typeOf(end), {
      autoClose: typeOf(end) === "error" ? false : NOTE_MS,
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
