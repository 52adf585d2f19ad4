"""Prepares what nodes print for display: carriage returns, backspaces and ANSI colours become runs of styled text.

A node's text arrives in pieces that may end anywhere. `LineBuffer` is a terminal of one line: it returns finished lines
and keeps the open one, which a progress bar may still rewrite. The dashboard, the saved output and plain lines are all
made from its runs.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Iterable, Iterator

from tfos_lab.core.markup import Html, h, join

# Text, and the CSS classes of its style, separated by spaces.
Run = tuple[str, str]

# Longer lines are cut, with a note of how much is missing: nobody reads them, and they freeze browsers.
MAX_LINE_CHARS = 10_000

# An escape sequence that has not ended after this many characters is garbage.
_MAX_HELD_CHARS = 300

_TOKEN = re.compile(
    "(?P<text>[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]+)"
    "|\x1b\\[(?P<sgr>[0-9;:]*)m"
    "|\x1b\\[(?P<erase>[0-3]?)K"
    "|(?P<ignored>\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[ -/]*[0-~])"
    "|(?P<control>.)",
    re.DOTALL,
)
_UNFINISHED = re.compile("\x1b(?:\\[[0-?]*[ -/]*|\\][^\x07\x1b]*\x1b?|[ -/]*)$")

# They show nothing: bell, vertical tab, form feed, shift in and out, a lone escape.
_INVISIBLE = frozenset("\x07\x0b\x0c\x0e\x0f\x1b")


class LineBuffer:
    r"""A terminal of one line: pieces of text go in, finished lines come out.

    Examples
    --------
    >>> buffer = LineBuffer()
    >>> buffer.feed("one\n10%\r20%")
    [('one\n', '')]
    >>> buffer.open_line
    [('20%', '')]
    """

    def __init__(self, max_line_chars: int = MAX_LINE_CHARS) -> None:
        self._max_line_chars = max_line_chars
        self._style = AnsiStyle()
        self._line = _Line(max_line_chars)
        self._rewound = False
        self._held = ""

    def feed(self, text: str) -> list[Run]:
        """Add a piece of text; return the lines that it finished, each with its newline."""
        text = self._held + text
        unfinished = _UNFINISHED.search(text, max(0, len(text) - _MAX_HELD_CHARS))
        end = unfinished.start() if unfinished else len(text)
        self._held = text[end:]
        finished: list[Run] = []
        for token in _TOKEN.finditer(text, 0, end):
            match token.lastgroup:
                case "text":
                    self._write(token.group())
                case "sgr":
                    self._style.change(token["sgr"])
                case "erase" if self._rewound or token["erase"] == "2":
                    self._line.clear()
                case "control" if token.group() == "\n":
                    finished += [*self._line.runs(), ("\n", "")]
                    self._line.clear()
                    self._rewound = False
                case "control":
                    self._control(token.group())
        return merge_runs(finished)

    @property
    def open_line(self) -> list[Run]:
        """The line that has not ended yet."""
        return self._line.runs()

    def flush(self) -> list[Run]:
        """Return the open line as if it had ended, and reset the buffer."""
        runs = self._line.runs()
        self._style, self._line, self._rewound, self._held = AnsiStyle(), _Line(self._max_line_chars), False, ""
        return [*runs, ("\n", "")] if runs else []

    def _write(self, text: str) -> None:
        if self._rewound:
            self._line.clear()
            self._rewound = False
        self._line.add(text, self._style.classes)

    def _control(self, char: str) -> None:
        if char == "\r":
            self._rewound = True
        elif char == "\b":
            if not self._rewound:
                self._line.backspace()
        elif char not in _INVISIBLE:
            self._write("\ufffd")


class _Line:
    """The characters of the open line, as runs; those above the limit are only counted."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._runs: list[list[str]] = []
        self._length = 0
        self._cut = 0

    def add(self, text: str, classes: str) -> None:
        free = self._max_chars - self._length
        if len(text) > free:
            self._cut += len(text) - free
            text = text[:free]
        if not text:
            return
        self._length += len(text)
        if self._runs and self._runs[-1][1] == classes:
            self._runs[-1][0] += text
        else:
            self._runs.append([text, classes])

    def backspace(self) -> None:
        if self._cut:
            self._cut -= 1
        elif self._runs:
            self._length -= 1
            self._runs[-1][0] = self._runs[-1][0][:-1]
            if not self._runs[-1][0]:
                self._runs.pop()

    def clear(self) -> None:
        self._runs, self._length, self._cut = [], 0, 0

    def runs(self) -> list[Run]:
        runs = [(text, classes) for text, classes in self._runs]
        return [*runs, (f" … {self._cut:,} more characters", "")] if self._cut else runs


def render_log(text: str, max_line_chars: int = MAX_LINE_CHARS) -> list[Run]:
    """Return a whole log as runs of finished lines."""
    buffer = LineBuffer(max_line_chars)
    return merge_runs([*buffer.feed(text), *buffer.flush()])


# ---- styles ----------------------------------------------------------------------------------------------------------

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_FLAG_ENDS = {21: (1,), 22: (1, 2), 23: (3,), 24: (4,), 27: (7,), 29: (9,)}


# What sets or ends one of the sixteen colours, of the text or behind it.
_COLOUR_CODES = {39: ("fg", ""), 49: ("bg", "")} | {
    first + place: (ground, f"{ground}-{bright}{colour}")
    for first, ground, bright in ((30, "fg", ""), (40, "bg", ""), (90, "fg", "bright-"), (100, "bg", "bright-"))
    for place, colour in enumerate(_COLOURS)
}


class AnsiStyle:
    """The colours and flags of the characters that follow; `classes` are their CSS classes."""

    def __init__(self) -> None:
        self._colours = {"fg": "", "bg": ""}
        self._flags: set[int] = set()
        self.classes = ""

    def change(self, parameters: str) -> None:
        """Apply the parameters of one sequence, such as ``1;31``."""
        codes = [int(code) if code.isdigit() else 0 for code in parameters.replace(":", ";").split(";")]
        while codes:
            code = codes.pop(0)
            if code == 0:
                self._colours = {"fg": "", "bg": ""}
                self._flags.clear()
            elif code in _FLAGS:
                self._flags.add(code)
            elif code in _FLAG_ENDS:
                self._flags.difference_update(_FLAG_ENDS[code])
            elif code in (38, 48):
                ground, colour = "fg" if code == 38 else "bg", _extended_colour(codes)
                self._colours[ground] = f"{ground}-{colour}" if colour else ""
            elif code in _COLOUR_CODES:
                ground, name = _COLOUR_CODES[code]
                self._colours[ground] = name
        names = [*(_FLAGS[flag] for flag in sorted(self._flags)), *self._colours.values()]
        self.classes = " ".join(f"tfos-{name}" for name in names if name)


def _extended_colour(rest: list[int]) -> str:
    """Remove the parameters of a 256-colour or RGB colour from ``rest``; return the nearest of the 16 colours."""
    kind = rest.pop(0) if rest else 0
    if kind == 5 and rest:
        return _nearest(*_palette(rest.pop(0)))
    if kind == 2 and len(rest) >= 3:
        red, green, blue = rest[:3]
        del rest[:3]
        return _nearest(red, green, blue)
    return ""


def _palette(index: int) -> tuple[int, int, int]:
    if index < 16:
        if index == 8:
            return (128, 128, 128)
        level = 255 if index > 8 else 170
        return (level * (index & 1), level * (index >> 1 & 1), level * (index >> 2 & 1))
    if index < 232:
        cube = index - 16
        return (cube // 36 * 51, cube // 6 % 6 * 51, cube % 6 * 51)
    grey = 8 + (min(index, 255) - 232) * 10
    return (grey, grey, grey)


def _nearest(red: int, green: int, blue: int) -> str:
    high = max(red, green, blue)
    if high - min(red, green, blue) < 32:
        return "black" if high < 48 else "bright-black" if high < 150 else "white"
    bits = sum(1 << bit for bit, level in enumerate((red, green, blue)) if level > high * 0.55)
    return _COLOURS[bits] if high < 200 else f"bright-{_COLOURS[bits]}"


# ---- runs of styled text ---------------------------------------------------------------------------------------------


def merge_runs(runs: Iterable[Run]) -> list[Run]:
    """Join neighbours of the same style, so that unstyled text is one run, however many pieces it came in."""
    merged: list[tuple[list[str], str]] = []
    for text, classes in runs:
        if merged and merged[-1][1] == classes:
            merged[-1][0].append(text)
        else:
            merged.append(([text], classes))
    return [("".join(texts), classes) for texts, classes in merged]


def last_lines(runs: list[Run], keep: int) -> list[Run]:
    """Return the last ``keep`` lines of finished lines."""
    kept: list[Run] = []
    wanted = keep + 1  # newlines to pass: the one that ends the last line, and one before each line that is kept
    for text, classes in reversed(runs):
        found = text.count("\n")
        if found < wanted:
            kept.append((text, classes))
            wanted -= found
            continue
        tail = "\n".join(text.split("\n")[-wanted:])
        if tail:
            kept.append((tail, classes))
        break
    return kept[::-1]


# Text that repeats in more places is shown as it is: each count is an element of the page.
_MAX_COUNTS = 60


def fold_repeats(runs: list[Run]) -> list[Run]:
    r"""Return finished lines with those that repeat the one before left out, and counted; blank ones stay.

    Examples
    --------
    >>> fold_repeats([("one\nsame\nsame\n", "")])
    [('one\nsame ', ''), ('× 2', 'tfos-times'), ('\n', '')]
    """
    texts = plain_text(runs).split("\n")
    if not any(map(operator.eq, texts, texts[1:])):
        return runs
    alike = [list(group) for _, group in itertools.groupby(_split_lines(runs), key=plain_text)]
    if sum(len(group) > 1 for group in alike) > _MAX_COUNTS:
        return runs
    return merge_runs(run for group in alike for run in _counted(group))


def _split_lines(runs: Iterable[Run]) -> Iterator[list[Run]]:
    line: list[Run] = []
    for text, classes in runs:
        for piece in re.findall(r"[^\n]*\n|[^\n]+", text):
            line.append((piece, classes))
            if piece.endswith("\n"):
                yield line
                line = []


def _counted(lines: list[list[Run]]) -> Iterator[Run]:
    first, *again = lines
    if not again or not plain_text(first).strip():
        yield from itertools.chain(*lines)
        return
    *start, (text, classes) = first
    yield from [*start, (text[:-1], classes)] if len(text) > 1 else start
    yield from [(" ", ""), (f"× {len(lines):,}", "tfos-times"), ("\n", "")]


def count_lines(runs: Iterable[Run]) -> int:
    """Return how many newlines the runs hold."""
    return sum(text.count("\n") for text, _ in runs)


def plain_text(runs: Iterable[Run]) -> str:
    """Return the text without its styles."""
    return "".join(text for text, _ in runs)


def html_text(runs: Iterable[Run]) -> Html:
    """Return the text as HTML, with a span for each styled run."""
    return join(*(h("span", text, cls=classes) if classes else text for text, classes in runs))
