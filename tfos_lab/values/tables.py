"""Encodes tables of pandas and Arrow as Arrow IPC bytes. Neither is imported before there is a table."""

from __future__ import annotations

from typing import Any

from tfos_lab.values.tags import Tag

PANDAS_KINDS = frozenset({"DataFrame", "Series", "Timestamp", "Timedelta", "NaTType", "NAType"})

# A Series is sent as a table with this column.
_COLUMN = "value"


def size_bytes(value: Any) -> int:
    """Return the approximate size of a pandas object."""
    usage = getattr(value, "memory_usage", None)
    if usage is None:
        return 24
    total = usage(index=True)
    return int(total.sum()) if hasattr(total, "sum") else int(total)


def encode_pandas(value: Any) -> list[Any] | None:
    """Return a pandas object as a tag and its parts, or None if Arrow cannot represent it."""
    name = type(value).__name__
    if name == "NaTType":
        return [Tag.NAT]
    if name == "NAType":
        return [Tag.NA]
    if name == "Timestamp":
        return [Tag.TIMESTAMP, int(value._value), value.unit, _zone_name(value)]  # noqa: SLF001 - `value` is always in nanoseconds, which may overflow
    if name == "Timedelta":
        return [Tag.PANDAS_TIMEDELTA, int(value._value), value.unit]  # noqa: SLF001
    if name == "Series":
        data = _frame_to_ipc(value.to_frame(_COLUMN))
        return None if data is None else [Tag.SERIES, value.name, data]
    data = _frame_to_ipc(value)
    return None if data is None else [Tag.FRAME, data]


def _zone_name(stamp: Any) -> str:
    """Return the name of a Timestamp's time zone, its offset if the zone has no name, or "" if there is no zone."""
    zone = stamp.tzinfo
    if zone is None:
        return ""
    named = getattr(zone, "key", None) or getattr(zone, "zone", None)
    return named if isinstance(named, str) else stamp.strftime("UTC%z")


def _frame_to_ipc(frame: Any) -> memoryview | None:
    import pyarrow as pa

    try:
        return to_ipc(pa.Table.from_pandas(frame))
    except (pa.ArrowException, ValueError, TypeError):
        return None  # a column of mixed objects, or two columns of the same name


def to_ipc(table: Any) -> memoryview:
    """Return an Arrow table as an IPC stream."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def from_ipc(data: bytes | memoryview) -> Any:
    """Return the Arrow table in an IPC stream."""
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()


def decode_frame(data: bytes | memoryview) -> Any:
    """Return the DataFrame in an IPC stream."""
    return from_ipc(data).to_pandas()


def decode_series(name: Any, data: bytes | memoryview) -> Any:
    """Return the Series in an IPC stream."""
    return decode_frame(data)[_COLUMN].rename(name)


def decode_timestamp(value: int, unit: str, zone: str) -> Any:
    """Return the Timestamp ``value`` units after the epoch."""
    import pandas as pd

    stamp = pd.Timestamp(value, unit=unit).as_unit(unit)
    return stamp.tz_localize("UTC").tz_convert(zone) if zone else stamp


def decode_timedelta(value: int, unit: str) -> Any:
    """Return the Timedelta of ``value`` units."""
    import pandas as pd

    return pd.Timedelta(value, unit=unit).as_unit(unit)


def decode_missing(tag: Tag) -> Any:
    """Return pandas' NaT or NA."""
    import pandas as pd

    return pd.NaT if tag is Tag.NAT else pd.NA
