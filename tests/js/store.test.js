// What the page keeps: bounded, and exact about what it dropped.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Store } from "../../extensions/dashboard/src/store";

const view = { hues: { "chief:0": 0, "worker:0": 1 }, state: "running", ended: false };
const chunk = (node, lines) => ({ node, html: "x\n".repeat(lines), lines, note: "" });

test("old lines are dropped and counted", () => {
  const store = new Store(view);
  for (let seq = 1; seq <= 100; seq += 1) store.addLogs({ seq, chunks: [chunk("chief:0", 200)], open: {} });
  store.addLogs({ seq: 101, chunks: [chunk("worker:0", 7)], open: {} });
  const kept = store.chunks.filter((one) => !one.gone && one.node === "chief:0");
  const lines = kept.reduce((sum, one) => sum + one.lines, 0);
  assert.ok(lines <= 5000);
  assert.equal(lines + store.droppedLinesOf("chief:0"), 20_000);
  assert.equal(store.droppedLinesOf(null), store.droppedLinesOf("chief:0"));
  assert.ok(store.chunks.length < 300, "dropped chunks are freed");
});

test("what is no node of the view has the first colour", () => {
  const store = new Store({ ...view, hues: { "trial 2": 2 } });
  assert.deepEqual(["trial 2", "unknown"].map((node) => store.hueOf(node)), [2, 0]);
});
