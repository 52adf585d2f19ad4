// Which ends of runs are news.

import assert from "node:assert/strict";
import { test } from "node:test";

import { EndWatch } from "../../extensions/jupyterlab/src/ends";

const cluster = (id, more = {}) => ({ id, name: id, state: "running", kernel_state: "busy", ...more });
const run = (id, more = {}) => ({ id, name: id, outcome: "done", ended_s: 105, note: `${id} is done`, ...more });
const list = (now_s, clusters, runs) => ({ now_s, clusters, runs });

function started() {
  const watch = new EndWatch();
  watch.take(list(100, [], [run("old", { ended_s: 99 })]));
  return watch;
}

test("runs that ended before are no news, and others are news once", () => {
  const watch = started();
  const runs = [run("old", { ended_s: 99 }), run("new")];
  assert.deepEqual(watch.take(list(106, [], runs)).map(({ note }) => note), ["new is done"]);
  assert.deepEqual(watch.take(list(108, [], runs)), []);
});

test("a lost run is news if it was seen to live, however old its last record is", () => {
  const watch = started();
  watch.take(list(101, [cluster("a")], []));
  const lost = [run("a", { outcome: "lost", ended_s: 95 }), run("b", { outcome: "lost", ended_s: 95 })];
  assert.deepEqual(watch.take(list(107, [], lost)).map(({ id }) => id), ["a"]);
});

test("a run is in the background if its kernel was free while it ran", () => {
  const watch = started();
  const starting = cluster("a", { state: "starting", kernel_state: "idle" });
  watch.take(list(101, [starting, cluster("b"), cluster("c", { kernel_state: "idle" })], []));
  watch.take(list(102, [cluster("a"), cluster("b"), cluster("c")], []));
  const ends = watch.take(list(106, [], [run("a"), run("b"), run("c")]));
  assert.deepEqual(ends.map(({ id, inBackground }) => [id, inBackground]), [["a", false], ["b", false], ["c", true]]);
});

test("a run that somebody has stopped is no news to who sees its notebook", () => {
  const watch = started();
  watch.take(list(101, [cluster("a", { kernel_state: "idle" })], []));
  const ends = watch.take(list(106, [], [run("a", { outcome: "stopped" })]));
  assert.deepEqual(ends.map(({ id, inBackground }) => [id, inBackground]), [["a", false]]);
});
