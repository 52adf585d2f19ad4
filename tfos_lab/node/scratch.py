"""An agent's own folder on its host, for its spool and logs.

The agent locks it, so that agents in other containers, whose pids are different, see that it is in use.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tfos_lab.node.folder_lock import make_and_lock
from tfos_lab.node.forkserver.leftovers import sweep


class Scratch:
    """One agent's folder; what killed processes have left is removed first (see `forkserver.leftovers`).

    Parameters
    ----------
    root : Path
        Contains the folders of all agents.
    cluster_id, rank : str, int
        The node.

    Attributes
    ----------
    path : Path
        The folder; only the user can open it.
    """

    def __init__(self, root: Path, cluster_id: str, rank: int) -> None:
        sweep(root)
        self.path = root / f"{cluster_id}-{rank}-{os.getpid()}"
        self._lock = make_and_lock(self.path)

    def remove(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)
