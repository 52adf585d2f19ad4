"""A node's folder of rows, and how large it may grow.

A feed that is read once may be larger than the folder: its tasks wait until the function has taken rows, whose files
then go. A feed whose rows are needed again or all at once has to fit.
"""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from tfos_lab.errors import FeedError

# Of what is free on the disk, when nothing else is said.
_SHARE_OF_FREE = 0.8
_WAIT_STEP_S = 0.5


def not_written(folder: Path | None, error: OSError) -> FeedError:
    """Return what is to be said when the spool's disk does not take a file."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return FeedError(reason=f"the node's spool in {folder} cannot be written: {why}")


class Spool:
    """Counts what lies in the folder, and what it was brought in all.

    Flight's threads call `make_room`; the agent's loop the rest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.brought_bytes = 0
        self._changed = threading.Condition()
        self._limit_bytes = 0
        self._keeps_all = ""
        self._shuffles = False
        self._sizes: dict[Path, int] = {}
        self._unread: set[Path] = set()
        self._read: list[Path] = []
        self._closed = False

    def open(self, limit_bytes: int, *, epochs: int) -> None:
        """Make the folder and set its limit, for a feed that will be read ``epochs`` times."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with self._changed:
            self._limit_bytes = limit_bytes or int(shutil.disk_usage(self.folder).free * _SHARE_OF_FREE) + self._size
            self._keeps_all = f"are read {epochs} times" if epochs > 1 else ""

    def shuffles(self) -> None:
        """The function wants the rows in a random order, for which all of them have to be here."""
        with self._changed:
            self._shuffles = True
            self._changed.notify_all()

    @property
    def _size(self) -> int:
        return sum(self._sizes.values())

    def make_room(self, path: Path, size_bytes: int) -> None:
        """Wait until there is room for so many bytes more in a file; called before they are written.

        Raises
        ------
        FeedError
            If there is no room, and none can be made by waiting.
        """
        with self._changed:
            while self._size + size_bytes > self._limit_bytes:
                if self._read:
                    self._forget(self._read.pop(0))
                elif self._keeps_all or self._shuffles:
                    raise FeedError(reason=self._too_small())
                elif self._unread and not self._closed:
                    self._changed.wait(_WAIT_STEP_S)
                else:
                    break  # a partition that is larger than the limit has to lie here whole before it counts
            self._sizes[path] = self._sizes.get(path, 0) + size_bytes
            self.brought_bytes += size_bytes

    def _too_small(self) -> str:
        why = self._keeps_all or "are shuffled"
        return (
            f"the rows do not fit into the node's spool of {self._limit_bytes / 1e9:.3g} GB in {self.folder}, and have "
            f"to, as they {why}; feed fewer columns or rows, raise spool_bytes, or read them once and unshuffled"
        )

    def committed(self, path: Path) -> None:
        """The file's rows count: the function will read them."""
        with self._changed:
            self._unread.add(path)

    def was_read(self, path: Path) -> None:
        """The function has taken all rows of a file; it may go when room is needed."""
        with self._changed:
            if path in self._unread:
                self._unread.discard(path)
                self._read.append(path)
                self._changed.notify_all()

    def remove(self, path: Path) -> None:
        """Remove a file that nobody needs."""
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
        """Let nobody wait any longer."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
