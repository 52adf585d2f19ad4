// What the front end remembers: bounded, and honest about what it let go.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Store } from "../../tfos_lab/jupyter/display/static/store.js";

const rows = ["chief:0", "worker:0"].map((node) => ({ node }));
const view = { now_s: 1000, rows, state: "running" };
const chunk = (node, lines) => ({ node, runs: [["x\n".repeat(lines), ""]], lines, note: "" });

test("old lines give way and are counted", () => {
  const store = new Store(view);
  for (let seq = 1; seq <= 100; seq += 1) store.addLogs({ seq, chunks: [chunk("chief:0", 200)], open: {} });
  store.addLogs({ seq: 101, chunks: [chunk("worker:0", 7)], open: {} });
  const kept = store.chunks.filter((one) => !one.gone && one.node === "chief:0");
  const lines = kept.reduce((sum, one) => sum + one.lines, 0);
  assert.ok(lines <= 5000);
  assert.equal(lines + store.forgottenLines("chief:0"), 20_000);
  assert.equal(store.forgottenLines(null), store.forgottenLines("chief:0"));
  assert.ok(store.chunks.length < 300, "what is gone is let go");
});

test("points of metrics are added, replaced, and end with the newest", () => {
  const store = new Store(view);
  const told = [];
  store.listeners.add({ metricsChanged: () => told.push([...store.series.keys()]) });
  const say = (fresh, points, last) => store.addMetrics({ series: [{ metric: "loss", node: "chief:0", fresh, points, last }] });
  const drawn = () => store.series.get("loss").nodes.get("chief:0").map(([, step]) => step);
  say(true, [[0, 1, 9], [0, 2, 8]], null);
  say(false, [], [0, 3, 7]);
  assert.deepEqual(drawn(), [1, 2, 3]);
  say(false, [[0, 4, 6]], null);
  assert.deepEqual(drawn(), [1, 2, 4], "3 was only the newest for a while");
  say(true, [[0, 1, 9], [0, 4, 6]], null);
  assert.deepEqual(drawn(), [1, 4]);
  assert.equal(told.length, 4);
});

test("colours follow the place of the node", () => {
  const store = new Store(view);
  assert.deepEqual(["chief:0", "worker:0", "unknown"].map((node) => store.hueOf(node)), [0, 1, 0]);
});

test("the kernel's clock may differ from the browser's", () => {
  const store = new Store({ ...view, now_s: Date.now() / 1000 - 500 });
  assert.ok(Math.abs(store.nowS() - (Date.now() / 1000 - 500)) < 1);
});
