"""Errors as short text, and what they are written with."""

from __future__ import annotations

_MAX_CHARACTERS = 300


def format_count(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 row``, ``1,797 rows``."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def first_line(error: BaseException | str) -> str:
    r"""Return the first line of an error's message, to be quoted in a sentence: cut where very long, no full stop.

    An error without a message is quoted by the name of its type.

    Examples
    --------
    >>> first_line(ValueError("no such column.\nThere are a and b."))
    'no such column'
    >>> first_line(KeyboardInterrupt())
    'KeyboardInterrupt'
    """
    lines = str(error).strip().splitlines()
    if not lines:
        return "" if isinstance(error, str) else type(error).__name__
    line = lines[0].rstrip(".")
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"
