"""What ``data`` names: files by paths and patterns, or a table."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from tfos_lab.core.paths import split_scheme

_WILD = re.compile(r"[*?\[]")


def names_files(data: Any) -> bool:
    """Whether these are names of files, folders or a table: a text, a path, or a list of them."""
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(one, str | os.PathLike) for one in data)
    return isinstance(data, str | os.PathLike)


def paths_of(data: Any) -> list[str]:
    """Return names of files as texts."""
    return [os.fspath(one) for one in (data if isinstance(data, list | tuple) else [data])]


def is_table(data: Any) -> bool:
    """Whether a text is the name of a table: no ``/``, no wildcards, and no file of that name.

    Examples
    --------
    >>> [is_table(name) for name in ("sales.orders", "/data/orders", "orders-*.parquet", "s3://bucket/orders")]
    [True, False, False, False]
    """
    if not isinstance(data, str) or "/" in data or _WILD.search(data) or split_scheme(data)[0]:
        return False
    return not Path(data).expanduser().exists()


def text_of(data: Any) -> str:
    """Return how to name the data in messages."""
    paths = paths_of(data)
    return f"data={paths[0]!r}" if len(paths) == 1 else f"data={paths[:2]!r}" + (" and more" if len(paths) > 2 else "")
