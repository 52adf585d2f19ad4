// Words and numbers, as the kernel writes them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { formatBytes, formatElapsed, formatMetric, formatSeconds, plural } from "../../extensions/dashboard/src/format";

test("durations", () => {
  assert.deepEqual([0, 0.123, 9.996, 59.96, 245, 3723].map(formatSeconds), ["0.00 s", "0.12 s", "10.0 s", "1:00", "4:05", "1:02:03"]);
  assert.deepEqual([-1, 59.9, 60].map(formatElapsed), ["0 s", "59 s", "1:00"]);
});

test("metrics", () => {
  const values = [0, 0.123456, 2, 1234.5, 1e-7, 2.5e9, -0.5];
  assert.deepEqual(values.map(formatMetric), ["0", "0.1235", "2", "1,235", "1.000e-07", "2.500e+09", "-0.5"]);
});

test("sizes and counts", () => {
  assert.deepEqual([0, 999, 1000, 14_620_000, 5e12].map(formatBytes), ["0 B", "999 B", "1 kB", "14.6 MB", "5000 GB"]);
  assert.deepEqual([plural(1, "line"), plural(1200, "line")], ["1 line", "1,200 lines"]);
});
