// Lines that repeat the one before: shown once, with a count. Nothing is dropped: the counts add up to the lines.

/**
 * @typedef {{runs: Run[], lines: number, count: number, text: string, again: boolean}} Piece
 *   a stretch of lines as they are, or one line that came `count` times, or `again` after the line before; `text` is
 *   its last line
 */

/** Text that repeats in many places is drawn as it is: each fold costs an element. */
const MAX_PIECES = 60;

/**
 * Splits finished lines into stretches without repeats and single lines with a count. Blank lines are never folded.
 * @param {Run[]} runs
 * @param {string | null} [before] the line before, if it may go on being counted
 * @returns {Piece[]}
 */
export function foldRuns(runs, before = null) {
  const lines = runs.map(([text]) => text).join("").split("\n");
  lines.pop(); // what follows the last newline
  const repeats = (/** @type {string} */ line, /** @type {number} */ index) =>
    line === (index ? lines[index - 1] : before) && line.trim() !== "";
  const whole = { runs, lines: lines.length, count: 1, text: lines.at(-1) ?? "", again: false };
  if (!lines.some(repeats)) return lines.length ? [whole] : [];
  /** @type {Piece[]} */
  const pieces = [];
  const styled = styledLines(runs);
  lines.forEach((line, index) => {
    const last = pieces.at(-1);
    const own = /** @type {Run[]} */ (styled[index]);
    if (repeats(line, index)) {
      if (!last) pieces.push({ runs: own, lines: 1, count: 1, text: line, again: true });
      else if (last.lines === 1) last.count += 1;
      else {
        // The line that is repeated leaves its stretch.
        last.lines -= 1;
        last.runs.length -= /** @type {Run[]} */ (styled[index - 1]).length;
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

/**
 * Takes the last line of finished lines off.
 * @param {Run[]} runs
 * @returns {[head: Run[], last: Run[]]}
 */
export function splitLastLine(runs) {
  for (let index = runs.length - 1; index >= 0; index -= 1) {
    const [text, classes] = /** @type {Run} */ (runs[index]);
    const before = text.length - (index === runs.length - 1 ? 1 : 0); // its own newline does not count
    const cut = text.slice(0, before).lastIndexOf("\n");
    if (cut < 0) continue;
    const rest = text.slice(cut + 1);
    const head = [...runs.slice(0, index), /** @type {Run} */ ([text.slice(0, cut + 1), classes])];
    return [head, [...(rest ? [/** @type {Run} */ ([rest, classes])] : []), ...runs.slice(index + 1)]];
  }
  return [[], runs];
}

/**
 * @param {Run[]} runs
 * @returns {Run[][]} the runs of each finished line, newlines included
 */
export function styledLines(runs) {
  /** @type {Run[][]} */
  const lines = [];
  /** @type {Run[]} */
  let line = [];
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
