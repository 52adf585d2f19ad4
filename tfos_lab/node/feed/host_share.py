"""A node's share of the disk under its spool, which the nodes of a host divide among themselves.

Each node writes how much it holds into a file of its scratch folder, and reads those of the others: nodes of all
clusters of the same user on the host, whose folders are side by side. No node waits for another, and what a node that
was killed has left counts as used until it is removed.

So that nodes do not take the same last bytes, a node claims what will be written, in another file, before it looks at
the others' claims and then at the free space: of nodes that ask at once, the last to look sees the claims of all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
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
    free_bytes : callable
        Returns the free space of the disk under a folder.

    Attributes
    ----------
    nodes : int
        How many nodes of this host had a spool when the share was last computed.
    """

    def __init__(self, folder: Path, free_bytes: Callable[[Path], int] | None = None) -> None:
        self._folder = folder
        self._free_bytes = free_bytes or _free_bytes
        self._limit_bytes = 0
        # A node's agent and its child claim apart.
        self._claim_file = f"{os.getpid()}.claim"
        self._claimed_bytes = self._unused_bytes = 0
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
            self._tell(_FILE, held_bytes)
        others = list(self._others())
        self.nodes = 1 + len(others)
        disk_bytes = self.free() + held_bytes + sum(others)
        self._limit_bytes = int(disk_bytes * SHARE_OF_FREE) // self.nodes

    def free(self) -> int:
        """Return the free space of the disk, in bytes."""
        return self._free_bytes(self._folder)

    def take(self, size_bytes: int, in_flight_bytes: int) -> bool:
        """Claim space for bytes that will be written; False if the disk has none for them and the claims of all nodes.

        ``in_flight_bytes`` were claimed before, and may not be written yet.
        """
        if size_bytes > self._unused_bytes:
            # Some more, so that a node looks at the others once for many batches.
            more_bytes = self._limit_bytes // _FRESH_PART
            needed_bytes = in_flight_bytes + size_bytes
            if self._claim(needed_bytes + more_bytes):
                self._unused_bytes = size_bytes + more_bytes
            elif self._claim(needed_bytes):
                self._unused_bytes = size_bytes
            else:
                self._unused_bytes = 0
                self.settle(in_flight_bytes)
                return False
        self._unused_bytes -= size_bytes
        return True

    def settle(self, in_flight_bytes: int) -> None:
        """Claim no more for what has been written or given up; ``in_flight_bytes`` are still to be written."""
        size_bytes = in_flight_bytes + self._unused_bytes
        if size_bytes != self._claimed_bytes:
            with contextlib.suppress(OSError):  # a claim that is too large stays
                self._tell_claim(size_bytes)

    def _claim(self, size_bytes: int) -> bool:
        try:
            self._tell_claim(size_bytes)
        except OSError:
            return False  # there is not even a block for the file
        # Read before the free space: what a node claims no more is written.
        claims_bytes = size_bytes + sum(self._claims())
        return self.free() >= claims_bytes

    def _claims(self) -> Iterator[int]:
        """Yield the others' claims, with those of nodes that were killed: tasks may still write to their files."""
        for path in files_in(self._nodes(), "*.claim"):
            with contextlib.suppress(OSError, ValueError):  # it ends now
                if path != self._folder / self._claim_file:
                    yield _number(path)

    def _tell_claim(self, size_bytes: int) -> None:
        self._tell(self._claim_file, size_bytes)
        self._claimed_bytes = size_bytes

    def _tell(self, file: str, size_bytes: int) -> None:
        descriptor = os.open(self._folder / file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, f"{size_bytes:020d} {size_bytes:020d}".encode(), 0)
        finally:
            os.close(descriptor)

    def _nodes(self) -> Iterator[Path]:
        """Return the scratch folders of all nodes."""
        return self._folder.parent.glob("*-*-*")

    def _others(self) -> Iterator[int]:
        for path in files_in(self._nodes(), _FILE):
            with contextlib.suppress(OSError, ValueError):  # it ends now
                if path.parent != self._folder and _is_alive(path.parent):
                    yield _number(path)


def _free_bytes(folder: Path) -> int:
    disk = shutil.disk_usage(folder)
    return max(0, disk.free - min(_SPARE_BYTES, disk.total // _SPARE_PART))


def _number(path: Path) -> int:
    # Twice in the file, and 0 if it is empty yet: of a number that is read while another is written, one is whole.
    return max(map(int, path.read_text().split()), default=0)


def _is_alive(folder: Path) -> bool:
    try:
        os.kill(int(folder.name.rpartition("-")[2]), 0)
    except ProcessLookupError:
        return False
    return True
