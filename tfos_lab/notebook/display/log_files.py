"""The nodes' log files at the Jupyter server: links that open them in JupyterLab, and where pages download them."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from tfos_lab.core import cluster_records
from tfos_lab.notebook.display.base import WatchedCluster

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


class ServedLogs:
    """Where pages find the log files of a cluster's nodes: below the ``files/`` of their Jupyter server.

    Asked several times a second for each node, so it looks at no disk.
    """

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self._root = cluster_records.own_server_root()

    def path_of(self, node: str) -> str | None:
        """Return the path of a node's log below the server's root, or None where the server does not serve it."""
        if not self._root:
            return None
        try:
            path = self._cluster.log_path(node).relative_to(self._root)
        except (KeyError, ValueError):
            return None
        return None if any(part.startswith(".") for part in path.parts) else quote(path.as_posix())
