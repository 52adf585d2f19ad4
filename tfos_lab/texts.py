"""Errors as short text, and what sentences are written with: numbers as people read them, and likely corrections."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable

_MAX_CHARACTERS = 300
_MAX_NAMES = 20


def nearest(text: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like ``text``, if one is similar enough."""
    found = difflib.get_close_matches(text, list(candidates), n=1, cutoff=0.55)
    return found[0] if found else None


def suggest(text: str, candidates: Iterable[str]) -> str:
    """Return ``did you mean stop?`` where a candidate is similar enough, else ``there are start, stop``."""
    every = list(dict.fromkeys(candidates))
    if close := nearest(text, every):
        return f"did you mean {close}?"
    more = [f"and {len(every) - _MAX_NAMES} more"] if len(every) > _MAX_NAMES else []
    return f"there are {', '.join([*every[:_MAX_NAMES], *more]) or 'none yet'}"


def format_count(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 row``, ``1,797 rows``."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {many or one + 's'}"


def format_seconds(seconds: float) -> str:
    """Return a duration, such as ``0.12 s``, ``12.3 s``, ``4:05`` or ``1:02:03``."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def format_seconds_if_known(seconds: float) -> str:
    """Return what `format_seconds` does, or nothing for NaN, which tables have for what there is not."""
    return "" if math.isnan(seconds) else format_seconds(seconds)


def format_step(seconds: float) -> str:
    """Return the duration of a step, such as ``3.2 ms`` or ``1.25 s``."""
    if seconds < 0.00995:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e3:.0f} ms" if seconds < 0.9995 else format_seconds(seconds)


def format_left(seconds: float) -> str:
    """Return how long the rest takes, such as ``40 s left``, ``4:05 left`` or ``about 3 h left``."""
    if seconds < 59.5:
        return f"{seconds:.0f} s left"
    if seconds < 10 * 3600:
        return f"{format_seconds(seconds)} left"
    return f"about {seconds / 3600:.0f} h left"


def format_rate(per_s: float) -> str:
    """Return a rate with three significant digits, as a whole number from 100 on."""
    if per_s >= 100:
        digits = max(0, len(str(int(per_s))) - 3)
        return f"{round(per_s, -digits):,.0f}"
    return f"{per_s:.3g}"


def format_bytes(count: float) -> str:
    """Return a size, such as ``812 B`` or ``14.6 MB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.3g} {unit}"


def format_metric(value: float) -> str:
    """Return a metric with four significant digits; or ``NaN`` and ``inf``.

    Examples
    --------
    >>> format_metric(0.98765), format_metric(3e-7), format_metric(1234567)
    ('0.9877', '3e-7', '1.235e6')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else str(value)
    if needs_exponent(value):
        return with_exponent(value, 3)
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def needs_exponent(value: float) -> bool:
    """Whether a number is so small or large that it is written with a power of ten."""
    return value != 0 and not 1e-4 <= abs(value) < 1e6


def with_exponent(value: float, digits: int) -> str:
    """Return a number with a power of ten, and as many digits behind the point as it needs, or ``digits``."""
    mantissa, _, power = f"{value:.{digits}e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"


def shorten(text: str, limit: int) -> str:
    """Return a text, or so many characters of it and how many there are more."""
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"


def encodable(text: str) -> str:
    r"""Return a text with ``\udcff`` for what is no UTF-8, as in names of old files."""
    return text.encode(errors="backslashreplace").decode()


def first_line(error: BaseException | str) -> str:
    r"""Return the first line of an error's message, to be quoted in a sentence: cut where very long, no full stop.

    What a line announces by a colon at its end is quoted, too. An error without a message is quoted by the name of its
    type.

    Examples
    --------
    >>> first_line(ValueError("no such column.\nThere are a and b."))
    'no such column'
    >>> first_line(ValueError("wrong options:\n\n  lr is negative"))
    'wrong options: lr is negative'
    >>> first_line(KeyboardInterrupt())
    'KeyboardInterrupt'
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return "" if isinstance(error, str) else type(error).__name__
    line = " ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".")
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]}…"
