"""Short texts for any object, and the parts of dates."""

from __future__ import annotations

import datetime as dt
from typing import Any

TEXT_LIMIT = 2000


def describe(value: Any) -> str:
    """Return the ``repr`` of a value, shortened; also of a value whose ``repr`` fails."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a repr may fail in any way
        text = f"<{type_name(value)}, whose repr failed: {type(error).__name__}>"
    if len(text) > TEXT_LIMIT:
        text = f"{text[:TEXT_LIMIT]}… ({len(text):,} characters)"
    return text.encode("utf-8", "backslashreplace").decode()


def type_name(value: Any) -> str:
    """Return the name of a value's type, with its module unless that is builtins or the notebook."""
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def time_parts(value: dt.datetime | dt.time) -> tuple[str, int, str]:
    """Return the ISO text, the fold, and the name of the time zone; a zone without a name keeps only its offset."""
    zone = getattr(value.tzinfo, "key", None)
    if isinstance(zone, str):
        return value.replace(tzinfo=None).isoformat(), value.fold, zone
    return value.isoformat(), value.fold, ""
