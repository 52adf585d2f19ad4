"""A node's folder of rows, and how large it may grow.

Without a limit of the user's, that is most of what its disk has free. A feed that is read once may be larger than the
folder: its tasks wait until the function has taken rows, whose files are then removed. A feed whose rows are needed
again, or all at once, has to fit. Nodes of one host take from the same disk, as rows come to each of them.
"""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
from collections import OrderedDict
from pathlib import Path

from tfos_lab.errors import FeedError

# The part of the disk's free space, as a feed is opened, that rows fill before some have to be read. What is left over
# is for partitions that have to be stored whole, and for what others write.
_SHARE_OF_FREE = 0.8
# Stays free: for the heads of record batches, the ends of blocks, and small files; the smaller of the two.
_SPARE_BYTES = 32 << 20
_SPARE_PART = 16
_WAIT_STEP_S = 0.5
# How long a node that has no rows to free waits for space taken by the host's other nodes.
_PATIENCE_S = 20.0


def not_written(folder: Path | None, error: OSError) -> FeedError:
    """Return the error for a file that cannot be written to the spool."""
    why = os.strerror(error.errno) if error.errno else str(error)
    return FeedError(reason=f"on {socket.gethostname()}, the node's spool in {folder} cannot be written: {why}")


def free_bytes(folder: Path) -> int:
    """Return the free space of a folder's disk, in bytes, without what has to stay free."""
    disk = shutil.disk_usage(folder)
    return max(0, disk.free - min(_SPARE_BYTES, disk.total // _SPARE_PART))


def left_to_others(folder: Path, held_bytes: int = 0) -> int:
    """Return how much of a folder's disk a feed that begins leaves to others, in bytes, where it holds some already."""
    return int((1 - _SHARE_OF_FREE) * (free_bytes(folder) + held_bytes))


def too_small(limit_bytes: int, folder: Path, why: str) -> str:
    """Return the message for rows that have to fit into the folder, and do not."""
    return (
        f"the rows do not fit into the node's spool of {limit_bytes / 1e9:.3g} GB in {folder}, and have to, as they "
        f"{why}; feed fewer columns or rows, raise spool_bytes, or read them once and unshuffled"
    )


def disk_full(free_bytes: int, folder: Path) -> str:
    """Return the message for a partition that has to be stored whole, on a disk that has no space for it."""
    return (
        f"on {socket.gethostname()}, a partition does not fit onto the disk under the node's spool in {folder}, which "
        f"has {free_bytes / 1e6:,.1f} MB left; cut the rows into more partitions (repartition), feed fewer columns, or "
        "free some space"
    )


class Spool:
    """Counts the bytes in the folder, and all that it has ever received.

    Tasks' threads call `reserve`; the agent's loop the rest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.received_bytes = 0
        self._changed = threading.Condition()
        self._limit_bytes = 0
        self._left_to_others = 0
        self._keeps_all = ""
        self._is_shuffled = False
        self._sizes: dict[Path, int] = {}
        self._size = 0
        # By file, what was reserved last: with the next of its batches, or when it is stored, it has been written.
        self._in_flight: dict[Path, int] = {}
        self._unread: set[Path] = set()
        self._read: OrderedDict[Path, None] = OrderedDict()
        self._closed = False

    def open(self, limit_bytes: int, *, epochs: int) -> None:
        """Create the folder and set its limit, for a feed that will be read ``epochs`` times."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        with self._changed:
            self._limit_bytes = limit_bytes
            self._left_to_others = left_to_others(self.folder, self._size)
            self._keeps_all = f"are read {epochs} times" if epochs > 1 else ""

    def keep_all(self) -> None:
        """Keep all rows, as the function reads them in a random order."""
        with self._changed:
            self._is_shuffled = True
            self._changed.notify_all()

    def reserve(self, path: Path, size_bytes: int) -> None:
        """Wait until there is space for more bytes in a file; call it before they are written, and after all others.

        Raises FeedError if there is no space, and waiting would not free any.
        """
        with self._changed:
            self._in_flight.pop(path, None)
            patient_until = time.monotonic() + _PATIENCE_S
            # The disk may have less than the limit allows for: others may have filled it meanwhile.
            while self._size + size_bytes > self._limit() or self._free_bytes() < size_bytes:
                if self._read:
                    self._forget(self._read.popitem(last=False)[0])
                elif self._keeps_all or self._is_shuffled:
                    raise FeedError(reason=too_small(self._limit(), self.folder, self._keeps_all or "are shuffled"))
                elif self._unread and not self._closed:
                    self._changed.wait(_WAIT_STEP_S)
                elif self._free_bytes() >= size_bytes:
                    break  # a partition that is larger than the limit has to be stored whole before it counts
                elif self._may_be_freed() and time.monotonic() < patient_until and not self._closed:
                    self._changed.wait(_WAIT_STEP_S)
                else:
                    raise FeedError(reason=disk_full(free_bytes(self.folder), self.folder))
            self._in_flight[path] = size_bytes
            self._sizes[path] = self._sizes.get(path, 0) + size_bytes
            self._size += size_bytes
            self.received_bytes += size_bytes

    def _free_bytes(self) -> int:
        return max(0, free_bytes(self.folder) - sum(self._in_flight.values()))

    def _may_be_freed(self) -> bool:
        """Whether the host's other nodes may remove what they have read, or what is counted twice may be written."""
        nodes = self.folder.parent.parent.glob(f"*-*-*/{self.folder.name}")
        return bool(self._in_flight) or any(folder != self.folder for folder in nodes)

    def _limit(self) -> int:
        return self._limit_bytes or self._size + max(0, self._free_bytes() - self._left_to_others)

    def stored(self, path: Path) -> None:
        """Record that all that was reserved for a file has been written."""
        with self._changed:
            self._in_flight.pop(path, None)
            self._changed.notify_all()

    def committed(self, path: Path) -> None:
        """Record that a file's rows count: the function will read them."""
        self.stored(path)
        with self._changed:
            self._unread.add(path)

    def was_read(self, path: Path) -> None:
        """Record that the function has taken all rows of a file; it may be removed when space is needed."""
        with self._changed:
            if path in self._unread:
                self._unread.discard(path)
                self._read[path] = None
                self._changed.notify_all()

    def remove(self, path: Path) -> None:
        """Remove a file that is not needed."""
        with self._changed:
            self._unread.discard(path)
            self._read.pop(path, None)
            self._forget(path)
            self.stored(path)

    def _forget(self, path: Path) -> None:
        self._size -= self._sizes.pop(path, 0)
        path.unlink(missing_ok=True)

    def close(self) -> None:
        """Wake up all that wait for space."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
