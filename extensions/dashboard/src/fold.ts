// Folds lines that repeat the one before: shown once, with a count. Nothing is dropped: the counts add up to the lines.

import type { Run } from "./messages";

/** A stretch of lines as they are, or one line that came `count` times. */
export interface Piece {
  runs: Run[];
  lines: number;
  count: number;
  /** The last line. */
  text: string;
  /** Whether it repeats the line before all of these. */
  again: boolean;
}

/** Text that repeats in more places is drawn as it is: each fold costs an element. */
const MAX_PIECES = 60;

/**
 * Splits finished lines into stretches without repeats and single lines with a count. Blank lines are never folded.
 *
 * `before` is the line before, if its count may go on.
 */
export function foldRuns(runs: Run[], before: string | null = null): Piece[] {
  const lines = runs.map(([text]) => text).join("").split("\n");
  lines.pop(); // what follows the last newline
  const repeats = (line: string, index: number) => line === (index ? lines[index - 1] : before) && line.trim() !== "";
  const whole = { runs, lines: lines.length, count: 1, text: lines.at(-1) ?? "", again: false };
  if (!lines.some(repeats)) return lines.length ? [whole] : [];
  const pieces: Piece[] = [];
  const styled = styledLines(runs);
  lines.forEach((line, index) => {
    const last = pieces.at(-1);
    const own = styled[index] as Run[];
    if (repeats(line, index)) {
      if (!last) pieces.push({ runs: own, lines: 1, count: 1, text: line, again: true });
      else if (last.lines === 1) last.count += 1;
      else {
        // The line that is repeated leaves its stretch.
        last.lines -= 1;
        last.runs.length -= (styled[index - 1] as Run[]).length;
        last.text = "";
        pieces.push({ runs: own, lines: 1, count: 2, text: line, again: false });
      }
    } else if (!last || last.count > 1 || last.again) {
      pieces.push({ runs: [...own], lines: 1, count: 1, text: line, again: false });
    } else {
      last.runs.push(...own);
      last.lines += 1;
      last.text = line;
    }
  });
  return pieces.length > MAX_PIECES ? [whole] : pieces;
}

/** Splits the last line off finished lines. */
export function splitLastLine(runs: Run[]): [head: Run[], last: Run[]] {
  for (let index = runs.length - 1; index >= 0; index -= 1) {
    const [text, classes] = runs[index] as Run;
    const before = text.length - (index === runs.length - 1 ? 1 : 0); // its own newline does not count
    const cut = text.slice(0, before).lastIndexOf("\n");
    if (cut < 0) continue;
    const rest = text.slice(cut + 1);
    const head: Run[] = [...runs.slice(0, index), [text.slice(0, cut + 1), classes]];
    const last: Run[] = rest ? [[rest, classes]] : [];
    return [head, [...last, ...runs.slice(index + 1)]];
  }
  return [[], runs];
}

/** The runs of each finished line, newlines included. */
export function styledLines(runs: readonly Run[]): Run[][] {
  const lines: Run[][] = [];
  let line: Run[] = [];
  for (const [text, classes] of runs) {
    for (const piece of text.split(/(?<=\n)/)) {
      line.push([piece, classes]);
      if (!piece.endsWith("\n")) continue;
      lines.push(line);
      line = [];
    }
  }
  return lines;
}
