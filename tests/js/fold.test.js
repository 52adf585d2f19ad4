// Lines that repeat.

import assert from "node:assert/strict";
import { test } from "node:test";

import { foldRuns, splitLastLine, styledLines } from "../../extensions/dashboard/src/log_lines";

const shown = (pieces) => pieces.map(({ runs, count }) => [runs.map(([text]) => text).join(""), count]);
const countOf = (pieces) => pieces.reduce((sum, { lines, count }) => sum + lines - 1 + count, 0);

test("text without repeats stays one piece, as it is", () => {
  const runs = [["a\nb\n", ""], ["c\n", "tfos-fg-red"]];
  const [piece, ...others] = foldRuns(runs);
  assert.equal(piece.runs, runs);
  assert.equal(piece.lines, 3);
  assert.deepEqual(others, []);
});

test("repeats are one line with a count", () => {
  assert.deepEqual(shown(foldRuns([["a\nb\nb\nb\nc\n", ""]])), [["a\n", 1], ["b\n", 3], ["c\n", 1]]);
  assert.deepEqual(shown(foldRuns([["b\nb\nc\nc\n", ""]])), [["b\n", 2], ["c\n", 2]]);
});

test("styles do not hide a repeat, and stay with its first line", () => {
  const pieces = foldRuns([["a\n", ""], ["wa", "tfos-fg-red"], ["rn\nwarn\n", ""], ["warn", "tfos-bold"], ["\n", ""]]);
  assert.deepEqual(shown(pieces), [["a\n", 1], ["warn\n", 3]]);
});

test("blank lines are never folded", () => {
  assert.equal(foldRuns([["a\n\n\n\nb\n", ""]]).length, 1);
  assert.equal(foldRuns([["\n\n", ""]], "").length, 1);
});

test("the line before goes on being counted", () => {
  const pieces = foldRuns([["a\na\nb\n", ""]], "a");
  assert.deepEqual(pieces.map(({ again, count, lines }) => [again, count, lines]), [[true, 2, 1], [false, 1, 1]]);
  assert.deepEqual(shown(foldRuns([["a\n", ""]], "b")), [["a\n", 1]]);
});

test("counts add up, whatever comes", () => {
  let seed = 7;
  const random = (limit) => (seed = (seed * 1103515245 + 12345) % 2 ** 31) % limit;
  for (let round = 0; round < 300; round += 1) {
    const lines = Array.from({ length: 1 + random(40) }, () => ["", "a", "b", " "][random(4)]);
    const runs = lines.map((line) => [`${line}\n`, random(2) ? "x" : ""]);
    const pieces = foldRuns(runs, random(2) ? "a" : null);
    assert.equal(countOf(pieces), lines.length);
    assert.equal(pieces.at(-1).text, lines.at(-1));
  }
});

test("text that repeats in very many places is left as it is", () => {
  const runs = [["a\na\nb\nb\n".repeat(100), ""]];
  assert.deepEqual(foldRuns(runs).map(({ runs: own, lines }) => [own, lines]), [[runs, 400]]);
});

test("the last line comes off", () => {
  assert.deepEqual(splitLastLine([["a\nb\n", ""]]), [[["a\n", ""]], [["b\n", ""]]]);
  assert.deepEqual(splitLastLine([["a\nb", ""], ["c", "x"], ["\n", ""]]), [[["a\n", ""]], [["b", ""], ["c", "x"], ["\n", ""]]]);
  assert.deepEqual(splitLastLine([["only\n", ""]]), [[], [["only\n", ""]]]);
  assert.deepEqual(splitLastLine([["a\n", ""], ["b\n", "x"]]), [[["a\n", ""]], [["b\n", "x"]]]);
  assert.deepEqual(splitLastLine([["\n", ""]]), [[], [["\n", ""]]]);
});

test("runs are split at the ends of lines", () => {
  assert.deepEqual(styledLines([["a", "x"], ["b\nc\n", ""]]), [[["a", "x"], ["b\n", ""]], [["c\n", ""]]]);
});
