// The open notebooks: which of them is in sight, and which of its cells shows a run. And notifications of the end of a run
// that the user does not look at.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import type { INotebookTracker, NotebookPanel } from "@jupyterlab/notebook";

import type { RunPlace } from "./api";
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
