// One cluster in the panel: state, nodes, age, TensorBoard, Stop.

import { element, formatAge, setText } from "./dom";
import type { ClusterInfo } from "./messages";
import type { ClustersModel } from "./model";
import { NODE_STATES } from "./states";

export interface CardActions {
  stop(cluster: ClusterInfo): void;
  openTensorBoard(cluster: ClusterInfo): void;
}

export class ClusterCard {
  readonly node = element("li", { class: "tfos-lab-card" });
  private readonly name = element("span", { class: "tfos-lab-card-name" });
  private readonly age = element("span", { class: "tfos-lab-card-age" });
  private readonly state = element("span", { class: "tfos-lab-card-state" });
  private readonly facts = element("span", { class: "tfos-lab-card-facts" });
  private readonly nodes = element("ul", { class: "tfos-lab-card-nodes" });
  private readonly tensorboard = element("button", { type: "button" }, "TensorBoard");
  private readonly stop = element("button", { type: "button" });
  private cluster: ClusterInfo | undefined;
  private shownNodes = "";

  constructor(
    private readonly model: ClustersModel,
    actions: CardActions,
  ) {
    this.tensorboard.addEventListener("click", () => this.cluster && actions.openTensorBoard(this.cluster));
    this.stop.addEventListener("click", () => this.cluster && actions.stop(this.cluster));
    this.node.append(
      element("div", { class: "tfos-lab-card-title" }, this.name, this.age),
      element("div", {}, this.state, " · ", this.facts),
      this.nodes,
      element("div", { class: "tfos-lab-card-actions" }, this.tensorboard, this.stop),
    );
  }

  update(cluster: ClusterInfo): void {
    this.cluster = cluster;
    const up = cluster.nodes.filter((node) => NODE_STATES[node.state]?.up).length;
    const stopping = this.model.isStopping(cluster);
    this.node.dataset["state"] = stopping ? "stopping" : cluster.state;
    this.name.title = `${cluster.name}, process ${cluster.pid}, files in ${cluster.run_dir}`;
    setText(this.name, cluster.name);
    setText(this.state, stopping ? "stopping" : cluster.state);
    setText(this.facts, `${up}/${cluster.nodes.length} nodes, ${cluster.launcher}`);
    setText(this.stop, stopping ? "Stopping…" : "Stop");
    this.stop.disabled = stopping;
    this.stop.setAttribute("aria-label", `Stop ${cluster.name}`);
    this.tensorboard.hidden = !cluster.tensorboard;
    this.tensorboard.setAttribute("aria-label", `TensorBoard of ${cluster.name}`);
    this.updateNodes(cluster);
    this.tick();
  }

  tick(): void {
    if (this.cluster) setText(this.age, formatAge(this.model.ageS(this.cluster)));
  }

  private updateNodes(cluster: ClusterInfo): void {
    const shown = JSON.stringify(cluster.nodes);
    if (shown === this.shownNodes) return;
    this.shownNodes = shown;
    const rows = cluster.nodes.map(({ node, state, host }) =>
      element("li", { title: host }, element("span", {}, node), element("span", {}, state)),
    );
    this.nodes.replaceChildren(...rows);
  }
}
