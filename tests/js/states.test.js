// The table of states.

import assert from "node:assert/strict";
import { test } from "node:test";

import { StateTable } from "../../extensions/dashboard/src/states";
import { states } from "./states.js";

test("states are looked up for clusters and nodes apart", () => {
  const table = new StateTable({ cluster: { starting: { shape: "busy", ended: false } }, node: states.node });
  assert.equal(table.cluster("starting").shape, "busy");
  assert.equal(table.node("stopping").shape, "busy");
});

test("a state that the table does not list is drawn as one that goes on", () => {
  const table = new StateTable(states);
  assert.deepEqual(table.node("dancing"), { shape: "waiting", ended: false, heartbeats: false });
  assert.equal(table.cluster("dancing").ended, false);
});

test("states that others follow are named once", () => {
  assert.deepEqual(new StateTable(states).running(), ["running", "waiting", "stopping"]);
});
