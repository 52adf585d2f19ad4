// Words and numbers, as the kernel writes them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { formatBytes, plural } from "../../extensions/dashboard/src/format";

test("sizes and counts", () => {
  assert.deepEqual([0, 999, 1000, 14_620_000, 5e12].map(formatBytes), ["0 B", "999 B", "1 kB", "14.6 MB", "5000 GB"]);
  assert.deepEqual([plural(1, "line"), plural(1200, "line")], ["1 line", "1,200 lines"]);
});
