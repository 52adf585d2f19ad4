// TensorBoard in a tab of JupyterLab; where there are no tabs (Notebook 7), in a window.

import type { ILabShell, ILayoutRestorer, JupyterFrontEnd } from "@jupyterlab/application";
import { IFrame, type IThemeManager, MainAreaWidget, WidgetTracker } from "@jupyterlab/apputils";
import { UUID } from "@lumino/coreutils";

import type { ServerApi } from "./api";

export const OPEN_BOARD = "tfos-lab:open-tensorboard";
/** `tfos_lab/jupyter/static/board.js` says so. */
const ASKED_TO_OPEN = "tfos-lab:open-board";

interface BoardArgs {
  readonly id: string;
  readonly name: string;
}

class BoardWidget extends MainAreaWidget<IFrame> {
  constructor(
    readonly run: BoardArgs,
    url: string,
  ) {
    // Its pages come from a node: they get an origin of their own. The server insists on it, too.
    const content = new IFrame({ sandbox: ["allow-scripts", "allow-downloads", "allow-modals"] });
    content.url = url;
    super({ content });
    this.id = `tfos-board-${UUID.uuid4()}`;
    this.title.label = `TensorBoard: ${run.name}`;
    this.title.caption = `TensorBoard of ${run.name}`;
    this.title.closable = true;
  }
}

export function addBoardCommand(
  app: JupyterFrontEnd,
  api: ServerApi,
  labShell: ILabShell | null,
  restorer: ILayoutRestorer | null,
  themes: IThemeManager | null,
): void {
  const tracker = new WidgetTracker<BoardWidget>({ namespace: "tfos-lab-boards" });
  app.commands.addCommand(OPEN_BOARD, {
    label: "Open TensorBoard of a Cluster",
    isVisible: () => false, // it is no use without knowing which
    execute: async (args) => {
      const run: BoardArgs = { id: String(args["id"]), name: String(args["name"] ?? args["id"]) };
      const dark = themes?.theme ? !themes.isLight(themes.theme) : false;
      const url = api.boardUrl(run.id, dark);
      if (!labShell) {
        window.open(url, "_blank", "noopener");
        return;
      }
      let widget = tracker.find((known) => known.run.id === run.id);
      if (!widget) {
        widget = new BoardWidget(run, url);
        labShell.add(widget, "main");
        await tracker.add(widget);
      }
      labShell.activateById(widget.id);
    },
  });
  if (labShell) {
    // The dashboard of a cell asks so; where nobody answers, its link opens a tab of the browser.
    document.addEventListener(ASKED_TO_OPEN, (event) => {
      const { id, name } = (event as CustomEvent<Partial<BoardArgs>>).detail;
      event.preventDefault();
      void app.commands.execute(OPEN_BOARD, { id: String(id), name: String(name) });
    });
  }
  if (restorer) {
    void restorer.restore(tracker, {
      command: OPEN_BOARD,
      args: (widget) => ({ ...widget.run }),
      name: (widget) => widget.run.id,
    });
  }
}
