// One ended run in the panel: how it ended, when, and the way back to its cell.

import { button, element, joined, setAttribute, setOptionalText, setText } from "./dom";
import { formatAge, formatFigure, formatMoment, formatStep } from "./format";
import type { Item } from "./keyed_list";
import type { RunInfo } from "./messages";
import { CLUSTER_STATES } from "./states";

export interface RunActions {
  openTensorBoard(run: RunInfo): void;
  /** Shows the run's cell; null where there are no notebooks. */
  showCell: ((run: RunInfo) => void) | null;
}

export class RunItem implements Item<RunInfo> {
  private readonly sign = element("span", { class: "tfos-lab-sign", "aria-hidden": "true" });
  private readonly name = element("span", { class: "tfos-lab-card-name" });
  private readonly when = element("span", { class: "tfos-lab-card-age" });
  private readonly facts = element("div", { class: "tfos-lab-card-figures" });
  private readonly reason = element("div", { class: "tfos-lab-run-reason" });
  private readonly notebook = this.action("", (run) => this.actions.showCell?.(run));
  private readonly tensorboard = this.action("TensorBoard", (run) => this.actions.openTensorBoard(run));
  readonly node = element(
    "li",
    { class: "tfos-lab-run" },
    element("div", { class: "tfos-lab-card-line" }, this.sign, this.name, this.when),
    this.facts,
    this.reason,
    element("div", { class: "tfos-lab-card-actions" }, this.notebook, this.tensorboard),
  );
  private run: RunInfo | undefined;

  constructor(private readonly actions: RunActions) {}

  update(run: RunInfo): void {
    this.run = run;
    setAttribute(this.node, "data-tone", CLUSTER_STATES[run.outcome]?.tone ?? "idle");
    setText(this.sign, CLUSTER_STATES[run.outcome]?.sign ?? "○");
    setText(this.name, run.name);
    setAttribute(this.name, "title", `${run.name}, ${run.nodes} nodes, ${run.launcher}, files in ${run.run_dir}`);
    setText(this.when, formatMoment(run.ended_s));
    const took = `${run.outcome} after ${formatAge(run.ended_s - run.started_s)}`;
    setText(this.facts, joined(took, stepOf(run), formatFigure(run.figures)));
    setOptionalText(this.reason, run.outcome === "done" ? "" : run.reason);
    this.updateActions(run);
  }

  private updateActions(run: RunInfo): void {
    this.notebook.hidden = !run.notebook || !this.actions.showCell;
    setText(this.notebook, run.notebook.split("/").pop() ?? "");
    setAttribute(this.notebook, "title", `Show the cell in ${run.notebook}`);
    setAttribute(this.notebook, "aria-label", `Show the cell of ${run.name} in ${run.notebook}`);
    this.tensorboard.hidden = !run.tensorboard;
    setAttribute(this.tensorboard, "aria-label", `TensorBoard of ${run.name}`);
  }

  private action(text: string, act: (run: RunInfo) => void): HTMLButtonElement {
    return button(text, () => this.run && act(this.run));
  }
}

/** How far the run came; of one that took all its steps there is nothing to say. */
function stepOf({ figures: { step, total_steps: total } }: RunInfo): string {
  return step === total ? "" : formatStep(step, total);
}
