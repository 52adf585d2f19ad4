"""A node's folder of rows, and how large it may grow.

A feed that is read once may be larger than the folder: its tasks wait until the function has taken rows, whose files
are then removed. A feed whose rows are needed again, or all at once, has to fit.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
from pathlib import Path

from tfos_lab.errors import FeedError

# The default limit, as a share of the free disk space.
SHARE_OF_FREE = 0.8
_WAIT_STEP_S = 0.5


def not_written(folder: Path | None, error: OSError) -> FeedError:
    """Return the error for a file that cannot be written to the spool."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return FeedError(reason=f"on {socket.gethostname()}, the node's spool in {folder} cannot be written: {why}")


def too_small(limit_bytes: int, folder: Path, why: str) -> str:
    """Return the message for rows that have to fit into the folder, and do not."""
    return (
        f"the rows do not fit into the node's spool of {limit_bytes / 1e9:.3g} GB in {folder}, and have to, as they "
        f"{why}; feed fewer columns or rows, raise spool_bytes, or read them once and unshuffled"
    )


class Spool:
    """Counts the bytes in the folder, and all that it has ever received.

    Flight's threads call `reserve`; the agent's loop the rest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.received_bytes = 0
        self._changed = threading.Condition()
        self._limit_bytes = 0
        self._keeps_all = ""
        self._is_shuffled = False
        self._sizes: dict[Path, int] = {}
        self._unread: set[Path] = set()
        self._read: list[Path] = []
        self._closed = False

    def open(self, limit_bytes: int, *, epochs: int) -> None:
        """Create the folder and set its limit, for a feed that will be read ``epochs`` times."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with self._changed:
            self._limit_bytes = limit_bytes or int(shutil.disk_usage(self.folder).free * SHARE_OF_FREE) + self._size
            self._keeps_all = f"are read {epochs} times" if epochs > 1 else ""

    def keep_all(self) -> None:
        """Keep all rows, as the function reads them in a random order."""
        with self._changed:
            self._is_shuffled = True
            self._changed.notify_all()

    @property
    def _size(self) -> int:
        return sum(self._sizes.values())

    def reserve(self, path: Path, size_bytes: int) -> None:
        """Wait until there is space for more bytes in a file; call it before they are written.

        Raises
        ------
        FeedError
            If there is no space, and waiting would not free any.
        """
        with self._changed:
            while self._size + size_bytes > self._limit_bytes:
                if self._read:
                    self._forget(self._read.pop(0))
                elif self._keeps_all or self._is_shuffled:
                    raise FeedError(reason=too_small(self._limit_bytes, self.folder, self._keeps_all or "are shuffled"))
                elif self._unread and not self._closed:
                    self._changed.wait(_WAIT_STEP_S)
                else:
                    break  # a partition that is larger than the limit has to be stored whole before it counts
            self._sizes[path] = self._sizes.get(path, 0) + size_bytes
            self.received_bytes += size_bytes

    def committed(self, path: Path) -> None:
        """Record that a file's rows count: the function will read them."""
        with self._changed:
            self._unread.add(path)

    def was_read(self, path: Path) -> None:
        """Record that the function has taken all rows of a file; it may be removed when space is needed."""
        with self._changed:
            if path in self._unread:
                self._unread.discard(path)
                self._read.append(path)
                self._changed.notify_all()

    def remove(self, path: Path) -> None:
        """Remove a file that is not needed."""
        with self._changed:
            self._unread.discard(path)
            if path in self._read:
                self._read.remove(path)
            self._forget(path)
            self._changed.notify_all()

    def _forget(self, path: Path) -> None:
        self._sizes.pop(path, None)
        path.unlink(missing_ok=True)

    def close(self) -> None:
        """Wake up all that wait for space."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
