"""Makes what nodes print fit to show: carriage returns, backspaces and ANSI colours, as runs of styled text.

A node's text arrives in pieces that may end anywhere. `LineBuffer` is a terminal of one line: it gives out the lines
that are finished and keeps the open one, which a progress bar may still rewrite. Text comes out as runs of
``(text, css_classes)``: the dashboard, the static bundle and the plain lines all draw from them.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

Run = tuple[str, str]

# Longer lines are cut and say by how much: nobody reads them, and a browser chokes on them.
MAX_LINE_CHARS = 10_000

# A sequence that has not ended within so many characters is rubbish, not a colour.
_MAX_HELD_CHARS = 300

# Everything that plain text is not: control characters except tab and newline, and halves of surrogate pairs.
_SPECIAL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")

_TOKEN = re.compile(
    "(?P<text>[^\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]+)"
    "|\x1b\\[(?P<sgr>[0-9;:]*)m"
    "|\x1b\\[(?P<erase>[0-3]?)K"
    "|(?P<ignored>\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[ -/]*[0-~])"
    "|(?P<control>.)",
    re.DOTALL,
)
_UNFINISHED = re.compile("\x1b(?:\\[[0-?]*[ -/]*|\\][^\x07\x1b]*\x1b?|[ -/]*)$")

# Heard, not seen: bell, vertical tab, form feed, shift in and out, a lone escape.
_SILENT = frozenset("\x07\x0b\x0c\x0e\x0f\x1b")

_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_FLAGS = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 7: "inverse", 9: "strike"}
_FLAG_ENDS = {21: (1,), 22: (1, 2), 23: (3,), 24: (4,), 27: (7,), 29: (9,)}


class LineBuffer:
    r"""A terminal of one line: text goes in as it comes, finished lines come out.

    Examples
    --------
    >>> buffer = LineBuffer()
    >>> plain_text(buffer.feed("one\n10%\r20%"))
    'one\n'
    >>> plain_text(buffer.open_line)
    '20%'
    """

    def __init__(self, max_line_chars: int = MAX_LINE_CHARS) -> None:
        self._max_line_chars = max_line_chars
        self._pen = _Pen()
        self._line = _Line(max_line_chars)
        self._rewound = False
        self._held = ""

    def feed(self, text: str) -> list[Run]:
        """Take a piece of text in; return the lines that it finished, each with its newline."""
        if not self._held and self._is_plain and not _SPECIAL.search(text):
            return self._feed_plain(text)
        return self._feed_terminal(text)

    @property
    def open_line(self) -> list[Run]:
        """The line that has not ended yet."""
        return self._line.runs()

    def flush(self) -> list[Run]:
        """Return the open line as if it had ended, and start afresh."""
        runs = self._line.runs()
        self._pen, self._line, self._rewound, self._held = _Pen(), _Line(self._max_line_chars), False, ""
        return [*runs, ("\n", "")] if runs else []

    @property
    def _is_plain(self) -> bool:
        return not self._rewound and not self._pen.classes

    def _feed_plain(self, text: str) -> list[Run]:
        head, newline, tail = text.rpartition("\n")
        finished: list[Run] = []
        if newline:
            first, newline, rest = head.partition("\n")
            self._line.add(first, "")
            finished = self._finish_line()
            if newline:
                finished = merge_runs([*finished, (_bounded(rest, self._max_line_chars) + "\n", "")])
        if tail:
            self._line.add(tail, "")
        return finished

    def _feed_terminal(self, text: str) -> list[Run]:
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
                    self._pen.change(token["sgr"])
                case "erase":
                    self._erase(token["erase"])
                case "control" if token.group() == "\n":
                    finished += self._finish_line()
                case "control":
                    self._control(token.group())
        return merge_runs(finished)

    def _write(self, text: str) -> None:
        if self._rewound:
            self._line.clear()
            self._rewound = False
        self._line.add(text, self._pen.classes)

    def _erase(self, how: str) -> None:
        if self._rewound or how == "2":
            self._line.clear()

    def _control(self, char: str) -> None:
        if char == "\r":
            self._rewound = True
        elif char == "\b":
            if not self._rewound:
                self._line.backspace()
        elif char not in _SILENT:
            self._write("\ufffd")

    def _finish_line(self) -> list[Run]:
        runs = [*self._line.runs(), ("\n", "")]
        self._line.clear()
        self._rewound = False
        return runs


class _Line:
    """The characters of the open line, as runs; what is over the bound is only counted."""

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._runs: list[list[str]] = []
        self._length = 0
        self._cut = 0

    def add(self, text: str, classes: str) -> None:
        room = self._max_chars - self._length
        if len(text) > room:
            self._cut += len(text) - room
            text = text[:room]
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
        return [*runs, (_cut_note(self._cut), "")] if self._cut else runs


class _Pen:
    """The colours and weight that the next characters get (SGR, ``ESC [ … m``)."""

    def __init__(self) -> None:
        self._foreground = ""
        self._background = ""
        self._flags: set[int] = set()
        self.classes = ""

    def change(self, parameters: str) -> None:
        codes = [int(code) if code.isdigit() else 0 for code in parameters.replace(":", ";").split(";")]
        while codes:
            self._apply(codes.pop(0), codes)
        names = [_FLAGS[flag] for flag in sorted(self._flags)] + [self._foreground, self._background]
        self.classes = " ".join(f"tfos-{name}" for name in names if name)

    def _apply(self, code: int, rest: list[int]) -> None:
        if code == 0:
            self._foreground = self._background = ""
            self._flags.clear()
        elif code in _FLAGS:
            self._flags.add(code)
        elif code in _FLAG_ENDS:
            self._flags.difference_update(_FLAG_ENDS[code])
        elif code == 38:
            self._foreground = _named("fg", _extended_colour(rest))
        elif code == 48:
            self._background = _named("bg", _extended_colour(rest))
        elif 30 <= code <= 37 or code == 39 or 90 <= code <= 97:
            self._foreground = _named("fg", _basic_colour(code))
        elif 40 <= code <= 47 or code == 49 or 100 <= code <= 107:
            self._background = _named("bg", _basic_colour(code - 10))


def _basic_colour(code: int) -> str:
    if code == 39:
        return ""
    return _COLOURS[code - 30] if code < 90 else f"bright-{_COLOURS[code - 90]}"


def _extended_colour(rest: list[int]) -> str:
    """Take the parameters of a 256-colour or RGB colour off ``rest``; return the nearest of the 16."""
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


def _named(ground: str, colour: str) -> str:
    return f"{ground}-{colour}" if colour else ""


def _bounded(lines: str, max_chars: int) -> str:
    if len(lines) <= max_chars:
        return lines
    return "\n".join(
        line if len(line) <= max_chars else line[:max_chars] + _cut_note(len(line) - max_chars)
        for line in lines.split("\n")
    )


def _cut_note(chars: int) -> str:
    return f" … {chars:,} more characters"


def merge_runs(runs: Iterable[Run]) -> list[Run]:
    """Join neighbours of the same style, so that plain text is one run whatever it was made of."""
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
    wanted = keep + 1  # newlines to pass: the last line's own one, and one before each line that is kept
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


def count_lines(runs: Iterable[Run]) -> int:
    """Return how many newlines the runs hold."""
    return sum(text.count("\n") for text, _ in runs)


def plain_text(runs: Iterable[Run]) -> str:
    """Return the text without its styles."""
    return "".join(text for text, _ in runs)


def html_text(runs: Iterable[Run]) -> str:
    """Return the text as escaped HTML, with a span for each styled run."""
    parts = []
    for text, classes in runs:
        escaped = html.escape(text)
        parts.append(f'<span class="{classes}">{escaped}</span>' if classes else escaped)
    return "".join(parts)


def render_log(text: str, max_line_chars: int = MAX_LINE_CHARS) -> list[Run]:
    """Return a whole log as runs of finished lines."""
    buffer = LineBuffer(max_line_chars)
    return merge_runs([*buffer.feed(text), *buffer.flush()])
