// How a node is drawn, and what is said of many of them together.

import type { Figures, NodeView } from "./messages";
import { NODE_STATES, type Tone } from "./states";

export interface NodeLook {
  sign: string;
  tone: Tone;
  says: string;
}

/** How a node is drawn, and the word for it: a hung one is what it is, whatever its state. */
export function lookOf(view: NodeView): NodeLook {
  if (view.hung) return { sign: "!", tone: "bad", says: "hung" };
  const traits = NODE_STATES[view.state];
  return { sign: traits?.sign ?? "○", tone: traits?.tone ?? "idle", says: view.state };
}

/** The metric beside a node: its loss, or else its first one. */
export function mainMetric({ metrics = {} }: NodeView): Figures {
  const metric = "loss" in metrics ? "loss" : (Object.keys(metrics)[0] ?? "");
  return { metric, value: metrics[metric] ?? null };
}

/** How many nodes are up: `38/40 nodes`. */
export function summaryOf(nodes: readonly NodeView[]): string {
  const up = nodes.filter(({ state }) => NODE_STATES[state]?.up).length;
  return `${up}/${nodes.length} nodes`;
}

/** Who is in trouble, such as `worker:3 failed`, or `4 nodes hung`. */
export function troubleOf(nodes: readonly NodeView[]): string {
  const groups = new Map<string, string[]>();
  for (const view of nodes) {
    const { tone, says } = lookOf(view);
    if (tone === "bad") groups.set(says, [...(groups.get(says) ?? []), view.name]);
  }
  const texts = [...groups].map(([says, names]) => `${names.length > 3 ? `${names.length} nodes` : names.join(", ")} ${says}`);
  return texts.join("; ");
}
