// TensorBoard in a tab of JupyterLab; where there are no tabs (Notebook 7), in a window.

import type { ILabShell, ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import { IFrame, type IThemeManager, MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { UUID } from "@lumino/coreutils";

import type { RunPlace, ServerApi } from "./api";

/** The command; and the event of the dashboard, `extensions/dashboard/src/card.ts`. */
export const OPEN_TENSORBOARD = "tfos-lab:open-tensorboard";

type TensorBoardArgs = Pick<RunPlace, "id" | "name">;

class TensorBoardWidget extends MainAreaWidget<IFrame> {
  constructor(
    readonly run: TensorBoardArgs,
    url: string,
  ) {
    // Its pages come from a node, so they get an origin of their own. The server enforces it, too.
    const content = new IFrame({ sandbox: ["allow-scripts", "allow-downloads", "allow-modals"] });
    content.url = url;
    super({ content });
    this.id = `tfos-tensorboard-${UUID.uuid4()}`;
    this.title.label = `TensorBoard: ${run.name}`;
    this.title.caption = `TensorBoard of ${run.name}`;
    this.title.closable = true;
  }
}

export function addTensorBoardCommand(
  app: JupyterFrontEnd,
  api: ServerApi,
  labShell: ILabShell | null,
  restorer: ILayoutRestorer | null,
  themes: IThemeManager | null,
): void {
  const tracker = new WidgetTracker<TensorBoardWidget>({ namespace: "tfos-lab-tensorboards" });
  app.commands.addCommand(OPEN_TENSORBOARD, {
    label: "Open TensorBoard of a Cluster",
    isVisible: () => false, // it needs to know which cluster
    execute: async (args) => {
      const run: TensorBoardArgs = { id: String(args["id"]), name: String(args["name"] ?? args["id"]) };
      const dark = themes?.theme ? !themes.isLight(themes.theme) : false;
      const url = api.tensorBoardUrl(run.id, dark);
      if (!labShell) {
        window.open(url, "_blank", "noopener");
        return;
      }
      let widget = tracker.find((known) => known.run.id === run.id);
      if (!widget) {
        widget = new TensorBoardWidget(run, url);
        labShell.add(widget, "main");
        await tracker.add(widget);
      }
      labShell.activateById(widget.id);
    },
  });
  if (labShell) {
    // Sent by the dashboard of a cell; where nothing handles it, its link opens a tab of the browser.
    document.addEventListener(OPEN_TENSORBOARD, (event) => {
      const { id, name } = (event as CustomEvent<Partial<TensorBoardArgs>>).detail;
      event.preventDefault();
      void app.commands.execute(OPEN_TENSORBOARD, { id: String(id), name: String(name) });
    });
  }
  if (restorer) {
    void restorer.restore(tracker, {
      command: OPEN_TENSORBOARD,
      args: (widget) => ({ ...widget.run }),
      name: (widget) => widget.run.id,
    });
  }
}
