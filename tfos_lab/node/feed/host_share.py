"""A node's share of the disk under its spool, which the nodes of a host divide among themselves.

Each node writes how much it holds into a file of its scratch folder, and reads those of the others: nodes of all
clusters of the same user on the host, whose folders are side by side. No node waits for another, and what a node that
was killed has left counts as used until it is removed. What is left over is for partitions that are larger than a
share and have to be stored whole, and for what nodes write while others look.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from tfos_lab.core.runtime_files import files_in

# What all nodes of a host take together, as a share of the space that they hold or that is free.
SHARE_OF_FREE = 0.8
_FILE = "spool.size"
# A node looks at the others again after this time, or this part of its share.
_FRESH_S = 0.2
_FRESH_PART = 64
# Stays free: for the heads of record batches, the ends of blocks, and small files; the smaller of the two.
_SPARE_BYTES = 32 << 20
_SPARE_PART = 16


class HostShare:
    """How much of the disk one node may take.

    Parameters
    ----------
    folder : Path
        The node's scratch folder, ``<cluster>-<rank>-<pid of its agent>``.

    Attributes
    ----------
    nodes : int
        How many nodes of this host had a spool when the share was last computed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._limit_bytes = 0
        self._looked_at = (0, -_FRESH_S)
        self.nodes = 1

    def limit(self, held_bytes: int) -> int:
        """Return how many bytes the node may hold, given what it holds."""
        seen_bytes, seen_s = self._looked_at
        is_near = abs(held_bytes - seen_bytes) <= self._limit_bytes // _FRESH_PART
        if not is_near or time.monotonic() - seen_s >= _FRESH_S:
            self._look(held_bytes)
        return self._limit_bytes

    def _look(self, held_bytes: int) -> None:
        self._looked_at = held_bytes, time.monotonic()
        # Told first: of two nodes that begin at once, at least one sees the other.
        with contextlib.suppress(OSError):  # on a full disk, the last size stays
            self._tell(held_bytes)
        others = list(self._others())
        self.nodes = 1 + len(others)
        disk_bytes = self.free() + held_bytes + sum(others)
        self._limit_bytes = int(disk_bytes * SHARE_OF_FREE) // self.nodes

    def free(self) -> int:
        """Return the free space of the disk, in bytes, but for what is to stay free."""
        disk = shutil.disk_usage(self._folder)
        return max(0, disk.free - min(_SPARE_BYTES, disk.total // _SPARE_PART))

    def has(self, size_bytes: int) -> bool:
        """Whether the disk has space for more bytes."""
        return self.free() >= size_bytes

    def _tell(self, size_bytes: int) -> None:
        descriptor = os.open(self._folder / _FILE, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, f"{size_bytes:020d} {size_bytes:020d}".encode(), 0)
        finally:
            os.close(descriptor)

    def _others(self) -> Iterator[int]:
        for path in files_in(self._folder.parent.glob("*-*-*"), _FILE):  # of all nodes
            with contextlib.suppress(OSError, ValueError):  # it ends now
                if path.parent != self._folder and _is_alive(path.parent):
                    yield _number(path)


def _number(path: Path) -> int:
    # Twice in the file, and 0 if it is empty yet: of a number that is read while another is written, one is whole.
    return max(map(int, path.read_text().split()), default=0)


def _is_alive(folder: Path) -> bool:
    try:
        os.kill(int(folder.name.rpartition("-")[2]), 0)
    except ProcessLookupError:
        return False
    return True
