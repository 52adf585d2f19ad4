"""Makes of what `ctx.show` is given what the driver keeps: a PNG, or the cells of a table.

Nothing is imported for it: whoever has a figure or a frame has its package.
"""

from __future__ import annotations

import builtins
import io
import math
import os
import struct
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import numpy as np

    from tfos_lab.node.context.reports import ReportMethods

_MAX_ROWS, _MAX_COLUMNS, _MAX_CLASSES = 100, 30, 100
_MAX_TEXT = 200
_KINDS = "a Matplotlib figure, an image of PIL, an array, a pandas DataFrame or an Arrow table"
_SHAPES = "(height, width), (height, width, 1, 3 or 4) or (count, height, width, channels)"

_PYPLOT = "module://tfos_lab.node.pyplot"
_OF_NOTEBOOKS = "module://matplotlib_inline.backend_inline"
# The context by which ``plt.show()`` and ``display`` show things in this process.
_showing: list[ReportMethods] = []
_untitled: Counter[str] = Counter()

Content = m.Picture | m.Table | m.Matrix | m.Unshown


def content_of(thing: Any, name: str, labels: Sequence[object] | None) -> Content:
    """Return what is sent to the driver; see `ctx.show`."""
    draw = _drawing(thing)
    content = draw() if draw is not None else _of_array(thing, name, labels)
    size = len(msgspec.msgpack.encode(content))
    if size <= m.SHOWN_BYTES:
        return content
    told = f"of {size / 1e6:.1f} MB: ctx.show takes up to {m.SHOWN_BYTES / 1e6:.0f} MB"
    if isinstance(content, m.Picture):
        return m.Unshown(f"A picture {told}. Show a smaller one, or a figure with fewer dots per inch (dpi).")
    return m.Unshown(f"A table {told}. Show fewer rows.")


def _drawing(thing: Any) -> Callable[[], Content] | None:
    """Return what draws a figure, what has one, an image or a table; None for anything else."""
    if hasattr(thing, "to_frame"):  # a Series
        thing = thing.to_frame()
    figure: Any = thing if hasattr(thing, "savefig") else getattr(thing, "figure", None)  # axes have one
    if hasattr(figure, "savefig"):
        return lambda: _saved(lambda file: figure.savefig(file, format="png", bbox_inches="tight"))
    if hasattr(thing, "column_names") and hasattr(thing, "slice"):
        return lambda: _arrow_table(thing)
    if hasattr(thing, "columns") and hasattr(thing, "itertuples"):
        return lambda: _pandas_table(thing)
    if hasattr(thing, "getbands"):
        image = thing if thing.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else thing.convert("RGB")
        return lambda: _saved(lambda file: image.save(file, "PNG"))
    return None


def _saved(save: Any) -> m.Picture:
    file = io.BytesIO()
    save(file)
    return m.Picture(file.getvalue())


def show_by(context: ReportMethods) -> None:
    """Have ``display``, which notebooks know without an import, and ``plt.show()`` show things by `ctx.show`.

    Call it before Matplotlib is imported. A backend that the user has chosen, other than a notebook's, stays.
    """
    _showing[:] = [context]
    builtins.display = display  # type: ignore[attr-defined]
    if os.environ.get("MPLBACKEND", _OF_NOTEBOOKS) == _OF_NOTEBOOKS:
        os.environ["MPLBACKEND"] = _PYPLOT


def display(*things: Any, **_named: object) -> None:
    """Show figures, images and tables, and print the rest, as IPython's `display` does in a notebook."""
    for thing in things:
        if _drawing(thing) is None:
            sys.stdout.write(f"{thing!r}\n")
        else:
            show_by_title(thing)


def show_by_title(thing: Any) -> None:
    """Show a figure by its title; what has none stays, as a step of ``figure`` or ``display``."""
    figure, titles = getattr(thing, "figure", thing), []
    if hasattr(figure, "savefig"):
        titles = [figure.get_label(), figure.get_suptitle(), *(axes.get_title() for axes in figure.axes)]
    title = next(filter(None, map(str, titles)), "")
    name, step = title, None
    if not title:
        name = "figure" if titles else "display"
        step = _untitled[name] = _untitled[name] + 1
    for context in _showing:
        context.show(thing, name, step=step)


# ---- tables ---------------------------------------------------------------------------------------------------------


def _arrow_table(table: Any) -> m.Table:
    names = table.column_names[:_MAX_COLUMNS]
    columns = [table.column(place).slice(0, _MAX_ROWS).to_pylist() for place in range(len(names))]
    return _table(names, zip(*columns, strict=True), table.num_rows)


def _pandas_table(frame: Any) -> m.Table:
    head = frame.iloc[:_MAX_ROWS, :_MAX_COLUMNS]
    if type(frame.index).__name__ != "RangeIndex":
        head = head.rename_axis(index=lambda name: name or "").reset_index(allow_duplicates=True)
    return _table(head.columns, head.itertuples(index=False, name=None), len(frame))


def _table(names: Any, rows: Any, count: int) -> m.Table:
    return m.Table([_title(name)[:_MAX_TEXT] for name in names], [list(map(_cell, row)) for row in rows], count)


def _title(name: Any) -> str:
    """Return a column's name: of several levels, as ``groupby(...).agg(["mean", "sum"])`` has, those that are given."""
    return " ".join(part for part in map(str, name) if part) if isinstance(name, tuple) else str(name)


def _cell(value: Any) -> str | int | float | None:
    value = value.item() if hasattr(value, "item") and not getattr(value, "shape", ()) else value
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53):
        return value
    text = str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


# ---- arrays ---------------------------------------------------------------------------------------------------------


def _of_array(thing: Any, name: str, labels: Sequence[object] | None) -> Content:
    import numpy as np

    array = np.asarray(thing)
    if array.dtype.kind not in "biuf":
        raise ConfigError(
            [f"ctx.show({name!r}): what is of type {type(thing).__name__} cannot be shown; give {_KINDS}"]
        )
    is_square = array.ndim == 2 and array.shape[0] == array.shape[1] and array.size > 0
    if labels is not None or (is_square and array.dtype.kind in "iu" and array.dtype != np.uint8):
        return _matrix(array, name, labels)
    if array.ndim == 4 and array.size:
        array = _side_by_side(array)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or array.shape[2] not in (1, 3, 4) or not array.size:
        raise ConfigError(
            [f"ctx.show({name!r}): an array of shape {array.shape} is no picture; it has to be {_SHAPES}"]
        )
    return m.Picture(_png(_as_bytes(array)))


def _matrix(array: np.ndarray, name: str, labels: Sequence[object] | None) -> Content:
    names = [str(label)[:_MAX_TEXT] for label in (range(len(array)) if labels is None else labels)]
    if array.shape != (len(names), len(names)):
        asked = f"{len(names)} labels need a square array of that size"
        raise ConfigError([f"ctx.show({name!r}): {asked}, and this one has the shape {array.shape}"])
    if len(names) > _MAX_CLASSES:
        return m.Unshown(f"A confusion matrix of {len(names):,} classes: ctx.show takes up to {_MAX_CLASSES}.")
    return m.Matrix(names, array.astype(float).tolist())


def _side_by_side(pictures: np.ndarray) -> np.ndarray:
    import numpy as np

    count, height, width, channels = pictures.shape
    across = math.ceil(math.sqrt(count))
    down = -(-count // across)
    whole = np.zeros((down * across, height, width, channels), pictures.dtype)
    whole[:count] = pictures
    rows = whole.reshape(down, across, height, width, channels).swapaxes(1, 2)
    return rows.reshape(down * height, across * width, channels)


def _as_bytes(array: np.ndarray) -> np.ndarray:
    import numpy as np

    if array.dtype == np.uint8:
        return array
    values = np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    most = 255.0 if array.dtype.kind in "iu" else 1.0
    if low >= 0 and high <= most:
        low, high = 0.0, most
    return np.round((values - low) * (255 / ((high - low) or 1.0))).astype(np.uint8)


def _png(array: np.ndarray) -> bytes:
    import numpy as np

    height, width, channels = array.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), array.reshape(height, -1)], axis=1)
    colour = {1: 0, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*chunk) for chunk in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
