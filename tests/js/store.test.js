// What the page keeps: bounded, and exact about what it dropped.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Store } from "../../extensions/dashboard/src/store";

const rows = ["chief:0", "worker:0"].map((node, place) => ({ node, place }));
const view = { rows, state: "running", ended: false };
const chunk = (node, lines) => ({ node, runs: [["x\n".repeat(lines), ""]], lines, note: "" });

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

test("colours follow the node's place in the table", () => {
  const store = new Store(view);
  assert.deepEqual(["chief:0", "worker:0", "unknown"].map((node) => store.hueOf(node)), [0, 1, 0]);
});

test("colours stay where rows change their order", () => {
  const rows = [["trial 2", 2], ["trial 0", 0], ["trial 18", 18]].map(([node, place]) => ({ ...view.rows[0], node, place }));
  const store = new Store({ ...view, rows });
  assert.deepEqual(rows.map((row) => store.hueOf(row.node)), [2, 0, 2]);
});
