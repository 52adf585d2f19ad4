// A kernel that is gone is noticed, and a run that had ended before is not lost with it.

import assert from "node:assert/strict";
import { test } from "node:test";

import { watchKernel } from "../../extensions/dashboard/src/page";
import { Store } from "../../extensions/dashboard/src/store";

function signal() {
  const slots = new Set();
  return {
    connect: (slot) => slots.add(slot),
    disconnect: (slot) => slots.delete(slot),
    emit: (value) => slots.forEach((slot) => slot(null, value)),
    slots,
  };
}

function watched() {
  const session = { statusChanged: signal(), kernelChanged: signal() };
  const happened = [];
  const end = watchKernel({ widget_manager: { context: { sessionContext: session } } }, (what) => happened.push(what));
  return { session, happened, end };
}

for (const [status, what] of [
  ["restarting", ["was restarted"]],
  ["autorestarting", ["died, and was restarted"]],
  ["dead", ["died"]],
  ["busy", []],
  ["unknown", []],
]) {
  test(`a kernel that is ${status}`, () => {
    const { session, happened } = watched();
    session.statusChanged.emit(status);
    assert.deepEqual(happened, what);
  });
}

test("a kernel that is shut down or exchanged", () => {
  const { session, happened, end } = watched();
  session.kernelChanged.emit({ oldValue: null, newValue: { id: "a" } });
  session.kernelChanged.emit({ oldValue: { id: "a" }, newValue: { id: "a" } });
  session.kernelChanged.emit({ oldValue: { id: "a" }, newValue: null });
  session.kernelChanged.emit({ oldValue: { id: "a" }, newValue: { id: "b" } });
  assert.deepEqual(happened, ["was shut down", "was replaced by another one"]);
  end();
  assert.equal(session.statusChanged.slots.size + session.kernelChanged.slots.size, 0);
});

test("a front end without a session context is fine", () => {
  watchKernel({}, () => assert.fail())();
});

const view = (state) => ({ hues: {}, state, ended: state === "done", run_dir: "/runs/1" });

test("a lost run is shown as it was", () => {
  const store = new Store(view("running"));
  assert.ok(store.lose("The kernel died at 12:00:00."));
  assert.equal(store.view.state, "lost");
  assert.match(store.lostReason, /^The kernel died at 12:00:00\. .*\/runs\/1\.$/);
  store.setView(view("running"));
  assert.equal(store.view.state, "lost");
  assert.ok(!store.lose("The kernel died again."));
});

test("a run that has ended is not lost", () => {
  const store = new Store(view("done"));
  assert.ok(!store.lose("The kernel died."));
  assert.equal(store.view.state, "done");
});

test("silence is counted while a run goes on", () => {
  const store = new Store(view("running"));
  assert.ok(store.silentS() < 1);
  store.lastMessageS -= 30;
  assert.ok(store.silentS() >= 30);
  store.onMessage();
  assert.ok(store.silentS() < 1);
  store.show(view("done"));
  store.lastMessageS -= 30;
  assert.equal(store.silentS(), 0);
});
