// All that is known of one node, as terms and texts.

import { joined } from "./dom";
import { formatAge, formatBytes, formatMetric, formatShare } from "./format";
import type { NodeActivity, NodeView } from "./messages";

type Fact = [term: string, text: string];

/** Says that a node is slower than its peers, if it was found to be. */
export function slownessOf({ activity }: NodeView): string {
  const slower = activity?.slower;
  return slower ? `${slower.toFixed(1)}× slower` : "";
}

/** What is known of a node, in the order in which it is shown. */
export function detailsOf(view: NodeView): Fact[] {
  const metrics = Object.entries(view.metrics ?? {});
  const facts: Fact[] = [
    ["state", joined(view.state, view.detail ?? "", view.hung ?? "")],
    ["host", view.host ?? ""],
    ["process", view.pid ? String(view.pid) : ""],
    ["GPUs", (view.gpus ?? []).join(", ")],
    ["rows", view.rows ? view.rows.toLocaleString("en-US") : ""],
    ...(view.activity ? activityOf(view.activity) : []),
    ...metrics.map(([metric, value]): Fact => [metric, formatMetric(value)]),
  ];
  return facts.filter(([, text]) => text);
}

function activityOf(activity: NodeActivity): Fact[] {
  const { step_s: stepS, cpu = 0, gpu } = activity;
  const memory = formatBytes(activity.memory_bytes ?? 0);
  const gpuMemory = formatBytes(activity.gpu_memory_bytes ?? 0);
  return [
    ["a step", stepS ? formatSeconds(stepS) : ""],
    ["time", sharesOf(activity)],
    ["now in", activity.where ?? ""],
    ["last sign", activity.last_sign ? `${activity.last_sign}, ${formatAge(activity.idle_s ?? 0)} ago` : ""],
    ["CPU", `${cpu.toFixed(1)} cores; host ${formatShare(activity.host_cpu ?? 0)}`],
    ["memory", `${memory}; host ${formatShare(activity.host_memory ?? 0)}`],
    ["GPU", typeof gpu === "number" ? `${formatShare(gpu)}, ${gpuMemory}` : ""],
  ];
}

function sharesOf(activity: NodeActivity): string {
  const shares: [string, number][] = [
    ["rows", activity.waits_rows ?? 0],
    ["tf.data", activity.waits_data ?? 0],
    ["peers", activity.waits_peers ?? 0],
    ["TensorFlow", activity.computes ?? 0],
    ["Python", activity.python ?? 0],
  ];
  const known = shares.filter(([, share]) => share >= 0.01);
  return known.map(([what, share]) => `${what} ${formatShare(share)}`).join(", ");
}

function formatSeconds(seconds: number): string {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : `${Number(seconds.toPrecision(3))} s`;
}
