// The panel: a card for each live cluster of any kernel, and below a line for each run that has ended. Python draws both
// (`tfos_lab/notebook/server/panel.py`); here they are put in, and their buttons do what they say.

import type { JupyterFrontEnd } from "@jupyterlab/application";
import { Notification } from "@jupyterlab/apputils";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";

import { element } from "../../dashboard/src/dom";
import { morphInto } from "../../dashboard/src/morph";
import type { RunPlace } from "./api";
import type { ClustersModel } from "./model";
import type { Notebooks } from "./notebooks";
import { OPEN_TENSORBOARD } from "./tensorboard";

export class ClustersPanel extends Widget {
  private readonly problem = element("div", { class: "tfos-lab-panel-note tfos-lab-panel-problem", role: "status" });
  private readonly runs = element("div");

  constructor(
    private readonly model: ClustersModel,
    private readonly commands: JupyterFrontEnd["commands"],
    private readonly notebooks: Notebooks | null,
  ) {
    super();
    this.addClass("tfos-lab-panel");
    this.toggleClass("tfos-lab-no-notebooks", !notebooks);
    const head = element("div", { class: "tfos-lab-panel-head" }, "Clusters");
    this.node.append(head, element("div", { class: "tfos-lab-panel-body" }, this.problem, this.runs));
    this.node.addEventListener("click", (event) => this.onClick(event));
    model.changed.connect(this.render, this);
    this.render();
  }

  protected override onAfterShow(_: Message): void {
    this.model.watched = true;
    void this.model.refresh();
  }

  protected override onAfterHide(_: Message): void {
    this.model.watched = false;
  }

  override dispose(): void {
    this.model.changed.disconnect(this.render, this);
    super.dispose();
  }

  private render(): void {
    const { problem, list, stopping } = this.model;
    this.problem.hidden = !problem;
    this.problem.textContent = problem && `The list could not be fetched: ${problem}.`;
    morphInto(this.runs, list?.html ?? "");
    for (const button of this.runs.querySelectorAll<HTMLButtonElement>('[data-do="stop"]')) {
      if (!stopping.has(button.dataset["run"] ?? "")) continue;
      button.disabled = true;
      button.textContent = "Stopping…";
    }
  }

  private onClick({ target }: MouseEvent): void {
    const button = (target as Element).closest<HTMLElement>("[data-do]");
    const run = this.model.find(button?.dataset["run"] ?? "");
    if (!run) return;
    switch (button?.dataset["do"]) {
      case "stop":
        return void this.stop(run);
      case "cell":
        return void this.notebooks?.show(run);
      case "tensorboard":
        return void this.commands.execute(OPEN_TENSORBOARD, { id: run.id, name: run.name });
    }
  }

  private async stop(run: RunPlace): Promise<void> {
    try {
      await this.model.stop(run);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      Notification.error(`The cluster ${run.name} could not be stopped: ${why}`, { autoClose: false });
    }
  }
}
