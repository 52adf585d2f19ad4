"""Values in words: short texts for any object, and what dates are made of."""

from __future__ import annotations

import datetime as dt
from typing import Any

TEXT_LIMIT = 2000


def describe(value: Any) -> str:
    """Return a short text for any value, whatever its ``repr`` does."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a repr may fail in any way
        text = f"<{type_name(value)}, whose repr failed: {type(error).__name__}>"
    if len(text) > TEXT_LIMIT:
        text = f"{text[:TEXT_LIMIT]}… ({len(text):,} characters)"
    return text.encode("utf-8", "backslashreplace").decode()


def type_name(value: Any) -> str:
    """Return the name of a value's type, with its module where that helps."""
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def time_parts(value: dt.datetime | dt.time) -> tuple[str, int, str]:
    """Return the ISO text, the fold, and the name of the zone; zones without a name keep their offset only."""
    zone = getattr(value.tzinfo, "key", None)
    if isinstance(zone, str):
        return value.replace(tzinfo=None).isoformat(), value.fold, zone
    return value.isoformat(), value.fold, ""
