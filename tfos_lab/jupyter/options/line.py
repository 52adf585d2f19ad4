"""Splits the line of a ``%%tfos`` cell into option names and the text of their values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

_KEY = re.compile(r"(?P<dashes>--)?(?P<key>[A-Za-z_][\w-]*)")
_EQUALS = re.compile(r"\s*=(?!=)\s*")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Item(NamedTuple):
    """One option as written; ``value`` is None for a bare flag. ``start`` and ``end`` are positions in the line."""

    key: str
    value: str | None
    start: int
    end: int


class Line(NamedTuple):
    """The items of a line, and what is wrong with it."""

    items: list[Item]
    problems: list[str]


def split_line(line: str, takes_value: Callable[[str], bool] = lambda _key: False) -> Line:
    """Split ``key=value``, ``--key value``, ``--key=value`` and bare flags.

    Values end at a space that is not within brackets or quotes. A ``#`` begins a comment.

    Parameters
    ----------
    line : str
        What follows ``%%tfos``.
    takes_value : callable
        Whether ``--key`` is followed by its value.
    """
    items: list[Item] = []
    problems: list[str] = []
    position = _skip_spaces(line, 0)
    while position < len(line) and line[position] != "#":
        start = position
        found = _KEY.match(line, position)
        equals = _EQUALS.match(line, found.end()) if found else None
        if found and (equals or _at_boundary(line, found.end())):
            key = found["key"].replace("-", "_")
            position = found.end()
            value = None
            if equals or (found["dashes"] and takes_value(key)):
                value, position, problem = _read_value(line, equals.end() if equals else _skip_spaces(line, position))
                if problem:
                    problems.append(f"{key}={value}: {problem}")
                    break
            items.append(Item(key, value, start, position))
        else:
            word, position, _ = _read_value(line, position)
            problems.append(
                f"{word!r}: options are written key=value, and a value with spaces needs brackets or quotes around it"
            )
        position = _skip_spaces(line, position)
    return Line(items, problems)


def _skip_spaces(line: str, position: int) -> int:
    while position < len(line) and line[position].isspace():
        position += 1
    return position


def _at_boundary(line: str, position: int) -> bool:
    return position == len(line) or line[position].isspace()


def _read_value(line: str, start: int) -> tuple[str, int, str]:
    """Return the text of a value, its end, and what is not closed in it, if anything."""
    open_: list[str] = []
    position = start
    while position < len(line):
        char = line[position]
        if char in "\"'":
            end = _end_of_string(line, position)
            if end is None:
                return line[start:], len(line), f"the quote {char} is not closed"
            position = end
            continue
        if char in _CLOSING:
            open_.append(_CLOSING[char])
        elif open_ and char == open_[-1]:
            open_.pop()
        elif char.isspace() and not open_:
            break
        position += 1
    problem = f"the bracket for {open_[-1]!r} is not closed" if open_ else ""
    return line[start:position], position, problem


def _end_of_string(line: str, start: int) -> int | None:
    """Return the position after a string that begins with the quote at ``start``."""
    quote = line[start] * 3 if line.startswith(line[start] * 3, start) else line[start]
    position = start + len(quote)
    while position < len(line):
        if line[position] == "\\":
            position += 2
        elif line.startswith(quote, position):
            return position + len(quote)
        else:
            position += 1
    return None
