"""An agent's own folder on its host, for its spool and logs.

The agent locks it, so that agents in other containers, whose pids are different, see that it is in use.
"""

from __future__ import annotations

import os

from tfos_lab.core.runtime_files import scratch_root, spool_root
from tfos_lab.node.folder_lock import make_and_lock
from tfos_lab.node.forkserver.leftovers import remove_folder, sweep


class Scratch:
    """One agent's folder; what killed processes have left is removed first (see `forkserver.leftovers`).

    All such folders of a user on a host are side by side, and their paths short enough for a socket. In a container of
    YARN, what is there is a link to a folder on the container's own disks.

    Parameters
    ----------
    cluster_id, rank : str, int
        The node.

    Attributes
    ----------
    path : Path
        The folder; only the user can open it.
    """

    def __init__(self, cluster_id: str, rank: int) -> None:
        root, spools = scratch_root(), spool_root()
        sweep(root)
        name = f"{cluster_id}-{rank}-{os.getpid()}"
        self.path = root / name
        self._lock = make_and_lock(spools / name)
        if spools != root:
            self.path.symlink_to(spools / name)

    def remove(self) -> None:
        """Remove the folder and its contents."""
        remove_folder(self.path)
        os.close(self._lock)
