// What the panel says of many nodes, and of one.

import assert from "node:assert/strict";
import { test } from "node:test";

import { formatAge, formatBytes, formatMetric, formatStep } from "../../extensions/jupyterlab/src/format";
import { detailsOf, slownessOf } from "../../extensions/jupyterlab/src/node_details";
import { summaryOf, troubleOf } from "../../extensions/jupyterlab/src/node_facts";

const node = (number, more = {}) => ({ name: `worker:${number}`, state: "running", ...more });

test("nodes in trouble are named, or counted when they are many", () => {
  const nodes = [node(0, { state: "failed" }), node(1, { hung: "no step" }), ...[2, 3, 4, 5].map((n) => node(n, { state: "lost" }))];
  assert.equal(summaryOf(nodes), "1/6 nodes");
  assert.equal(troubleOf(nodes), "worker:0 failed; worker:1 hung; 4 nodes lost");
  assert.equal(troubleOf([node(0), node(1, { state: "of another version" })]), "");
});

test("only what is known is shown", () => {
  assert.deepEqual(detailsOf(node(0)), [["state", "running"]]);
  const terms = detailsOf(node(0, { activity: { cpu: 1, step_s: 2 }, metrics: { loss: null } })).map(([term]) => term);
  assert.deepEqual(terms, ["state", "a step", "CPU", "memory", "loss"]);
});

test("a node is slower where the kernel has found it to be", () => {
  const texts = [undefined, null, 1.4, 2.13].map((slower) => slownessOf(node(0, { activity: { slower } })));
  assert.deepEqual(texts, ["", "", "1.4× slower", "2.1× slower"]);
  assert.equal(slownessOf(node(0, { activity: null })), "");
});

test("numbers are short", () => {
  assert.deepEqual([0.123456, 12345, 1e-9, null].map(formatMetric), ["0.1235", "12,345", "1e-9", "not finite"]);
  assert.deepEqual([0, 999, 1500, 1.7e9].map(formatBytes), ["0 B", "999 B", "1.5 kB", "1.7 GB"]);
  assert.deepEqual([59, 61, 3700].map(formatAge), ["59 s", "1 min", "1 h 1 min"]);
  assert.deepEqual([formatStep(3, 9), formatStep(0, null), formatStep(null, 9)], ["step 3/9", "step 0", ""]);
});
