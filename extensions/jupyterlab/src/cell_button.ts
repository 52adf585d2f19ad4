// "Run on cluster" in the toolbar of cells that begin with %%tfos, and of no others.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import type { Cell } from "@jupyterlab/cells";
import { type INotebookTracker, NotebookActions } from "@jupyterlab/notebook";

import { clusterIcon } from "./icon";

const RUN_CELL = "tfos-lab:run-cell";
const IS_OURS = /^\s*%%tfos\b/;

export function addCellButton(app: JupyterFrontEnd, notebooks: INotebookTracker): void {
  const isOurs = () => {
    const cell = notebooks.activeCell;
    return cell?.model.type === "code" && IS_OURS.test(cell.model.sharedModel.getSource());
  };
  app.commands.addCommand(RUN_CELL, {
    label: "Run on cluster",
    caption: "Run this cell on the nodes of a cluster",
    icon: clusterIcon,
    isVisible: isOurs,
    isEnabled: isOurs,
    execute: async () => {
      const panel = notebooks.currentWidget;
      if (panel) await NotebookActions.run(panel.content, panel.sessionContext);
    },
  });

  let watched: Cell | null = null;
  let shown = false;
  const look = () => {
    if (isOurs() !== shown) {
      shown = !shown;
      app.commands.notifyCommandChanged(RUN_CELL);
    }
  };
  notebooks.activeCellChanged.connect((_, cell) => {
    if (watched && !watched.isDisposed) watched.model.contentChanged.disconnect(look);
    watched = cell;
    cell?.model.contentChanged.connect(look);
    look();
  });
}
