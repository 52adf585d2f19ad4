// Which ends of runs are news.

import assert from "node:assert/strict";
import { test } from "node:test";

import { EndWatch } from "../../extensions/jupyterlab/src/ends";

const cluster = (id, more = {}) => ({ id, name: id, state: "running", kernel_state: "busy", ...more });
const run = (id, more = {}) => ({ id, name: id, outcome: "done", ended_s: 105, note: `${id} is done`, ...more });
const living = (now_s, ...clusters) => ({ now_s, clusters });
const ended = (now_s, ...runs) => ({ now_s, runs });

function started() {
  const watch = new EndWatch();
  watch.onClusters(living(100));
  watch.onRuns(ended(100, run("old", { ended_s: 99 })));
  return watch;
}

test("runs that ended before are no news, and others are news once", () => {
  const watch = started();
  const runs = [run("old", { ended_s: 99 }), run("new")];
  assert.deepEqual(watch.onRuns(ended(106, ...runs)).map(({ note }) => note), ["new is done"]);
  assert.deepEqual(watch.onRuns(ended(108, ...runs)), []);
});

test("a cluster that is gone is awaited until its record is there", () => {
  const watch = started();
  watch.onClusters(living(101, cluster("a")));
  assert.equal(watch.waits, false);
  watch.onClusters(living(106));
  assert.equal(watch.waits, true);
  assert.deepEqual(watch.onRuns(ended(106)), []);
  assert.deepEqual(watch.onRuns(ended(107, run("a", { outcome: "failed" }))).map(({ outcome }) => outcome), ["failed"]);
  assert.equal(watch.waits, false);
});

test("a lost run is news if it was seen to live, however old its last record is", () => {
  const watch = started();
  watch.onClusters(living(101, cluster("a")));
  watch.onClusters(living(106));
  const lost = [run("a", { outcome: "lost", ended_s: 95 }), run("b", { outcome: "lost", ended_s: 95 })];
  assert.deepEqual(watch.onRuns(ended(107, ...lost)).map(({ id }) => id), ["a"]);
});

test("a run is in the background if its kernel was free while it ran", () => {
  const watch = started();
  const starting = cluster("a", { state: "starting", kernel_state: "idle" });
  watch.onClusters(living(101, starting, cluster("b"), cluster("c", { kernel_state: "idle" })));
  watch.onClusters(living(102, cluster("a"), cluster("b"), cluster("c")));
  watch.onClusters(living(106));
  const ends = watch.onRuns(ended(106, run("a"), run("b"), run("c")));
  assert.deepEqual(ends.map(({ id, inBackground }) => [id, inBackground]), [["a", false], ["b", false], ["c", true]]);
});
