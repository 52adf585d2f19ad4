// Wires the parts to JupyterLab and Notebook 7.

import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin,
} from "@jupyterlab/application";
import { ICommandPalette, IThemeManager } from "@jupyterlab/apputils";
import { INotebookTracker } from "@jupyterlab/notebook";
import { LabIcon } from "@jupyterlab/ui-components";

import { ServerApi } from "./api";
import { ClustersModel } from "./model";
import { Notebooks, notifyOfEnds, notifyOfRunningClusters } from "./notebooks";
import { ClustersPanel } from "./panel";
import { addTensorBoardCommand } from "./tensorboard";

const SHOW_CLUSTERS = "tfos-lab:show-clusters";

/** Four nodes around one. */
const clusterIcon = new LabIcon({
  name: "tfos-lab:cluster",
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">
    <g class="jp-icon3" fill="#616161" stroke="none">
      <circle cx="8" cy="8" r="2.4"/><circle cx="3" cy="3" r="1.8"/><circle cx="13" cy="3" r="1.8"/>
      <circle cx="3" cy="13" r="1.8"/><circle cx="13" cy="13" r="1.8"/>
      <path d="M3.4 2.6l10 10-.8.8-10-10zM12.6 2.6l.8.8-10 10-.8-.8z"/>
    </g></svg>`,
});

const plugin: JupyterFrontEndPlugin<void> = {
  id: "tfos-lab:plugin",
  description: "Clusters of all kernels, and TensorBoard in a tab",
  autoStart: true,
  optional: [ILabShell, ILayoutRestorer, IThemeManager, INotebookTracker, ICommandPalette],
  activate: (
    app: JupyterFrontEnd,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    themes: IThemeManager | null,
    notebooks: INotebookTracker | null,
    palette: ICommandPalette | null,
  ) => {
    const api = new ServerApi(app.serviceManager.serverSettings);
    addTensorBoardCommand(app, api, labShell, restorer, themes);

    const model = new ClustersModel(api);
    const open = notebooks && new Notebooks(app, notebooks);
    const panel = new ClustersPanel(model, app.commands, open);
    panel.id = "tfos-lab-clusters";
    panel.title.icon = clusterIcon;
    panel.title.caption = "Clusters";
    app.shell.add(panel, "left", { rank: 310, type: "Clusters" });
    restorer?.add(panel, panel.id);
    app.commands.addCommand(SHOW_CLUSTERS, {
      label: "Show Clusters",
      execute: () => app.shell.activateById(panel.id),
    });
    const showClusters = () => void app.commands.execute(SHOW_CLUSTERS);
    if (notebooks) notifyOfRunningClusters(notebooks, api, showClusters);
    notifyOfEnds(model, open, showClusters);
    palette?.addItem({ command: SHOW_CLUSTERS, category: "TensorFlow Clusters" });
    model.start();
  },
};

export default plugin;
