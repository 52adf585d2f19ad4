// The panel: a card for each live cluster of any kernel, and below a line for each run that has ended.

import { Notification } from "@jupyterlab/apputils";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";

import { ClusterCard } from "./card";
import { button, element, setText } from "./dom";
import { KeyedList } from "./keyed_list";
import type { ClusterInfo, RunInfo } from "./messages";
import type { ClustersModel } from "./model";
import { RunItem } from "./run_item";

export interface PanelActions {
  openTensorBoard(run: { id: string; name: string }): void;
  /** Shows the cell of a run; null where there are no notebooks. */
  showCell: ((run: { id: string; name: string; notebook: string }) => void) | null;
}

export class ClustersPanel extends Widget {
  private readonly note = element("div", { class: "tfos-lab-panel-note", role: "status" });
  private readonly ended = element("summary");
  private readonly cards: KeyedList<ClusterInfo>;
  private readonly runs: KeyedList<RunInfo>;
  private readonly endedRuns: HTMLDetailsElement;
  private clock: number | undefined;

  constructor(
    private readonly model: ClustersModel,
    actions: PanelActions,
  ) {
    super();
    this.addClass("tfos-lab-panel");
    const stop = (cluster: ClusterInfo) => void this.stop(cluster);
    this.cards = new KeyedList<ClusterInfo>(
      element("ul", { class: "tfos-lab-panel-list", "aria-label": "Running clusters" }),
      ({ id }) => id,
      () => new ClusterCard(model, { ...actions, stop }),
    );
    this.runs = new KeyedList<RunInfo>(
      element("ul", { class: "tfos-lab-panel-list", "aria-label": "Ended runs" }),
      ({ id, run_dir }) => `${id} ${run_dir}`,
      () => new RunItem(actions),
    );
    this.endedRuns = element("details", { class: "tfos-lab-ended", open: "" }, this.ended, this.runs.node);
    this.node.append(
      element("div", { class: "tfos-lab-panel-head" }, "Clusters", button("Refresh", () => void model.refresh())),
      element("div", { class: "tfos-lab-panel-body" }, this.note, this.cards.node, this.endedRuns),
    );
    model.changed.connect(this.render, this);
    this.render();
  }

  protected override onAfterShow(_: Message): void {
    this.model.watched = true;
    void this.model.refresh();
    this.clock ??= window.setInterval(() => this.tick(), 1000);
  }

  protected override onAfterHide(_: Message): void {
    this.model.watched = false;
    window.clearInterval(this.clock);
    this.clock = undefined;
  }

  override dispose(): void {
    window.clearInterval(this.clock);
    this.model.changed.disconnect(this.render, this);
    super.dispose();
  }

  private tick(): void {
    for (const card of this.cards.shown) if (card instanceof ClusterCard) card.tick();
  }

  private render(): void {
    const { clusters, runs, problem } = this.model;
    this.cards.update(clusters);
    this.runs.update(runs);
    this.endedRuns.hidden = runs.length === 0;
    setText(this.ended, `Ended runs (${runs.length})`);
    this.note.hidden = clusters.length > 0 && !problem;
    this.note.classList.toggle("tfos-lab-panel-problem", Boolean(problem));
    if (problem) setText(this.note, `The list could not be fetched: ${problem}.`);
    else if (!this.note.querySelector("code")) this.note.replaceChildren(...emptyNote());
  }

  private async stop(cluster: ClusterInfo): Promise<void> {
    try {
      await this.model.stop(cluster);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      Notification.error(`The cluster ${cluster.name} could not be stopped: ${why}`, { autoClose: false });
    }
  }
}

function emptyNote(): (Node | string)[] {
  return ["No cluster runs. A cell that begins with ", element("code", {}, "%%tfos"), " starts one."];
}
