// The panel: one card for each live cluster of any kernel.

import { Notification } from "@jupyterlab/apputils";
import type { Message } from "@lumino/messaging";
import { Widget } from "@lumino/widgets";

import { ClusterCard } from "./card";
import { element } from "./dom";
import type { ClusterInfo } from "./messages";
import type { ClustersModel } from "./model";

export interface PanelActions {
  openTensorBoard(cluster: ClusterInfo): void;
}

export class ClustersPanel extends Widget {
  private readonly cards = new Map<string, ClusterCard>();
  private readonly list = element("ul", { class: "tfos-lab-panel-list", "aria-label": "Running clusters" });
  private readonly note = element("div", { class: "tfos-lab-panel-note", role: "status" });
  private clock: number | undefined;

  constructor(
    private readonly model: ClustersModel,
    private readonly actions: PanelActions,
  ) {
    super();
    this.addClass("tfos-lab-panel");
    const refresh = element("button", { type: "button" }, "Refresh");
    refresh.addEventListener("click", () => void this.model.refresh());
    this.node.append(
      element("div", { class: "tfos-lab-panel-head" }, "Clusters", refresh),
      this.list,
      this.note,
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
    for (const card of this.cards.values()) card.tick();
  }

  private render(): void {
    const { clusters, problem } = this.model;
    const live = new Set(clusters.map((cluster) => cluster.id));
    for (const [id, card] of this.cards) {
      if (!live.has(id)) {
        card.node.remove();
        this.cards.delete(id);
      }
    }
    for (const cluster of clusters) this.cardFor(cluster).update(cluster);
    this.note.hidden = clusters.length > 0 && !problem;
    this.note.classList.toggle("tfos-lab-panel-problem", Boolean(problem));
    if (problem) this.note.textContent = `The list could not be fetched: ${problem}.`;
    else this.note.replaceChildren("No cluster runs. A cell that begins with ", element("code", {}, "%%tfos"), " starts one.");
  }

  private cardFor(cluster: ClusterInfo): ClusterCard {
    let card = this.cards.get(cluster.id);
    if (!card) {
      card = new ClusterCard(this.model, {
        stop: (which) => void this.stop(which),
        openTensorBoard: (which) => this.actions.openTensorBoard(which),
      });
      this.cards.set(cluster.id, card);
      this.list.append(card.node);
    }
    return card;
  }

  private async stop(cluster: ClusterInfo): Promise<void> {
    try {
      await this.model.stop(cluster);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      Notification.error(`The cluster ${cluster.name} could not be stopped: ${why}`);
    }
  }
}
