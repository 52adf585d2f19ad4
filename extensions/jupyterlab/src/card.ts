// One live cluster in the panel: state, progress, nodes, and what can be done with it.

import { button, element, joined, setAttribute, setOptionalText, setText } from "./dom";
import { formatAge, formatFigure, formatStep } from "./format";
import type { Item } from "./keyed_list";
import type { ClusterInfo } from "./messages";
import type { ClustersModel } from "./model";
import { troubleOf } from "./node_facts";
import { NodeList } from "./node_list";
import { CLUSTER_STATES } from "./states";

export interface CardActions {
  stop(cluster: ClusterInfo): void;
  openTensorBoard(cluster: ClusterInfo): void;
  /** Shows the run's cell; null where there are no notebooks. */
  showCell: ((cluster: ClusterInfo) => void) | null;
}

export class ClusterCard implements Item<ClusterInfo> {
  readonly node = element("li", { class: "tfos-lab-card" });
  private readonly sign = element("span", { class: "tfos-lab-sign", "aria-hidden": "true" });
  private readonly name = element("span", { class: "tfos-lab-card-name" });
  private readonly stop = this.action("Stop", (cluster) => this.actions.stop(cluster));
  private readonly state = element("span", { class: "tfos-lab-card-state" });
  private readonly where = element("span", { class: "tfos-lab-card-where" });
  private readonly age = element("span", { class: "tfos-lab-card-age" });
  private readonly progress = element("progress", { max: "1" });
  private readonly figures = element("div", { class: "tfos-lab-card-figures" });
  private readonly verdict = element("div", { class: "tfos-lab-card-verdict" });
  private readonly trouble = element("div", { class: "tfos-lab-card-trouble" });
  private readonly nodes = new NodeList();
  private readonly notebook = this.action("", (cluster) => this.actions.showCell?.(cluster));
  private readonly tensorboard = this.action("TensorBoard", (cluster) => this.actions.openTensorBoard(cluster));
  private cluster: ClusterInfo | undefined;

  constructor(
    private readonly model: ClustersModel,
    private readonly actions: CardActions,
  ) {
    this.node.append(
      element("div", { class: "tfos-lab-card-title" }, this.sign, this.name, this.stop),
      element("div", { class: "tfos-lab-card-line" }, this.state, this.where, this.age),
      this.progress,
      this.figures,
      this.verdict,
      this.trouble,
      this.nodes.node,
      element("div", { class: "tfos-lab-card-actions" }, this.notebook, this.tensorboard),
    );
  }

  update(cluster: ClusterInfo): void {
    this.cluster = cluster;
    const stopping = this.model.isStopping(cluster);
    const state = stopping ? "stopping" : cluster.state;
    setAttribute(this.node, "data-state", state);
    setAttribute(this.node, "data-tone", CLUSTER_STATES[state]?.tone ?? "idle");
    setAttribute(this.name, "title", `${cluster.name}, process ${cluster.pid}, files in ${cluster.run_dir}`);
    setText(this.sign, CLUSTER_STATES[state]?.sign ?? "○");
    setText(this.name, cluster.name);
    setText(this.state, state);
    setText(this.where, cluster.launcher);
    setText(this.stop, stopping ? "Stopping…" : "Stop");
    setAttribute(this.stop, "aria-label", `Stop ${cluster.name}`);
    this.stop.disabled = stopping;
    this.updateFigures(cluster);
    setOptionalText(this.trouble, joined(cluster.alarm, troubleOf(cluster.nodes)));
    this.nodes.update(cluster.nodes, cluster.name);
    this.updateActions(cluster);
    this.tick();
  }

  tick(): void {
    if (this.cluster) setText(this.age, formatAge(this.model.ageS(this.cluster)));
  }

  private updateFigures(cluster: ClusterInfo): void {
    const { step, total_steps: total, progress, seconds_left: left } = cluster.figures;
    const done = progress ?? (total ? Math.min(1, (step ?? 0) / total) : null);
    this.progress.hidden = done === null;
    this.progress.value = done ?? 0;
    setAttribute(this.progress, "aria-label", `Progress of ${cluster.name}`);
    const timeLeft = typeof left === "number" ? `${formatAge(left)} left` : "";
    setOptionalText(this.figures, joined(formatStep(step, total), formatFigure(cluster.figures), timeLeft));
    setOptionalText(this.verdict, cluster.verdict);
  }

  private updateActions(cluster: ClusterInfo): void {
    this.notebook.hidden = !cluster.notebook || !this.actions.showCell;
    setText(this.notebook, cluster.notebook.split("/").pop() ?? "");
    setAttribute(this.notebook, "title", `Show the cell in ${cluster.notebook}`);
    setAttribute(this.notebook, "aria-label", `Show the cell of ${cluster.name} in ${cluster.notebook}`);
    this.tensorboard.hidden = !cluster.tensorboard;
    setAttribute(this.tensorboard, "aria-label", `TensorBoard of ${cluster.name}`);
  }

  private action(text: string, act: (cluster: ClusterInfo) => void): HTMLButtonElement {
    return button(text, () => this.cluster && act(this.cluster));
  }
}
