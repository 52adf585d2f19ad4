"""Links to log files that open in JupyterLab: relative to the notebook, for files that its Jupyter server shows."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from tfos_lab.core import cluster_records

# In it the Jupyter server tells a kernel which notebook it was started for.
_NOTEBOOK = "JPY_SESSION_NAME"


def link_to(path: Path) -> str | None:
    """Return the link to a file, or None where it would lead nowhere.

    A Jupyter server shows what is below its root folder and not hidden; outside a notebook of such a server, in a
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
