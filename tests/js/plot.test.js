// The geometry of the charts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { byWeight, formatTick, nearest, pathOf, dotsOf, roundTicks, scaleOf, stepsIncrease, thin } from "../../extensions/dashboard/src/plot";

const dots = (...values) => values.map((y, x) => ({ x, y }));

test("ticks are round and lie inside", () => {
  assert.deepEqual(roundTicks(0, 10), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(roundTicks(-1, 1), [-1, -0.5, 0, 0.5, 1]);
  assert.deepEqual(roundTicks(0.0012, 0.0017), [0.0012, 0.0013, 0.0014, 0.0015, 0.0016, 0.0017]);
  for (const [low, high] of [[3e-9, 4e-9], [-1e12, 5e12], [1, 1.0001]]) {
    const ticks = roundTicks(low, high);
    assert.ok(ticks.length >= 2 && ticks.length <= 9, `${ticks}`);
    assert.ok(ticks.every((tick) => tick >= low - 1e-12 * Math.abs(low) && tick <= high * (1 + 1e-12)));
  }
});

test("a scale maps values to pixels and back", () => {
  const scale = scaleOf([10, 20], 100, 300);
  assert.equal(scale.toPixel(10), 100);
  assert.equal(scale.toPixel(20), 300);
  assert.equal(scale.toValue(200), 15);
});

test("one value, or none, still has a scale", () => {
  assert.equal(scaleOf([5], 0, 100).toPixel(5), 50);
  assert.equal(scaleOf([0, 0], 0, 100).toPixel(0), 50);
  assert.equal(scaleOf([], 0, 100).toPixel(1), 100);
});

test("very many values do not overflow the stack", () => {
  assert.equal(scaleOf(Array.from({ length: 500_000 }, (_, index) => index), 0, 1).toPixel(0), 0);
});

test("a value that is not finite leaves a gap", () => {
  const same = (x) => x;
  assert.equal(pathOf(dots(1, 2, null, 3, 4), same, same), "M0 1L1 2M3 3L4 4");
  assert.equal(pathOf(dots(null, null), same, same), "");
});

test("thinning keeps peaks, ends and order", () => {
  const all = dots(...Array.from({ length: 10_000 }, (_, index) => (index === 7777 ? 99 : index % 3)));
  const kept = thin(all, 100);
  assert.ok(kept.length <= 102);
  assert.ok(kept.some(({ y }) => y === 99));
  assert.equal(kept.at(-1), all.at(-1));
  assert.ok(kept.every(({ x }, index) => index === 0 || x >= kept[index - 1].x));
  assert.equal(thin(all.slice(0, 50), 100).length, 50);
});

test("the nearest dot is found", () => {
  const line = [{ x: 0, y: 1 }, { x: 10, y: 2 }, { x: 11, y: 3 }];
  assert.equal(nearest(line, 4)?.x, 0);
  assert.equal(nearest(line, 6)?.x, 10);
  assert.equal(nearest(line, 99)?.x, 11);
  assert.equal(nearest([], 1), undefined);
});

test("points are drawn by step where all have one, else by time", () => {
  const [stepped, timed] = [[[0.5, 1, 9]], [[0.5, null, 9]]];
  assert.equal(stepsIncrease([stepped]), true);
  assert.equal(stepsIncrease([stepped, timed]), false);
  assert.equal(stepsIncrease([stepped, [[0, 5, 1], [1, 5, 1], [2, 4, 1]]]), false);
  assert.deepEqual(dotsOf(stepped, true), [{ x: 1, y: 9 }]);
  assert.deepEqual(dotsOf(timed, false), [{ x: 0.5, y: 9 }]);
});

test("the loss comes first and validation last", () => {
  assert.deepEqual(byWeight(["val_loss", "accuracy", "loss", "val_accuracy"]), ["loss", "accuracy", "val_loss", "val_accuracy"]);
});

test("ticks are short", () => {
  assert.deepEqual([0, 0.25, 1500, 2e7, 1e-5].map(formatTick), ["0", "0.25", "1,500", "2e7", "1e-5"]);
});
