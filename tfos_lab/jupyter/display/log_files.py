"""The nodes' log files: links that open them in JupyterLab, and pieces for pages that download them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from tfos_lab.core import cluster_records

PIECE_BYTES = 1 << 20

# The Jupyter server sets it to the path of the notebook that the kernel was started for.
_NOTEBOOK = "JPY_SESSION_NAME"


def link_to(path: Path) -> str | None:
    """Return the link to a file, relative to the notebook, or None where it would not work.

    A Jupyter server shows files below its root folder that are not hidden. Outside a notebook of such a server, in a
    script or in another editor, there is nothing to link to.
    """
    root, notebook = cluster_records.own_server_root(), os.environ.get(_NOTEBOOK, "")
    if not root or not Path(notebook).is_absolute():
        return None
    try:
        shown = path.resolve().relative_to(Path(root).resolve())
        here = Path(notebook).parent.resolve()
    except (OSError, ValueError):
        return None
    if any(part.startswith(".") for part in shown.parts) or not here.is_dir() or not path.is_file():
        return None
    return quote(os.path.relpath(path.resolve(), here))


class Piece(NamedTuple):
    """Some bytes of a file, and the current size of the whole file."""

    data: bytes
    size: int


def read_piece(path: Path, offset: object) -> Piece:
    """Return the bytes from ``offset`` on; a file that does not exist (yet) counts as empty."""
    if not isinstance(offset, int) or offset < 0 or not path.exists():
        return Piece(b"", 0)
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(min(offset, size))
        return Piece(file.read(PIECE_BYTES), size)
