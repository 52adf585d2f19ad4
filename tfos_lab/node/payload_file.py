"""A large payload in the agent: fetched once for each host, and kept in a file that its nodes share.

The first agent that locks the unfinished file asks the driver for the payload, piece by piece; the others wait, and one
of them takes over if it ends. All that use the finished file hold a shared lock on it, and the last one removes it.
Agents that are killed remove nothing: the next one does.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import mmap
import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tfos_lab import messages as m
from tfos_lab.messages.payload import PIECE_BYTES

_PREFIX = "payload-"
_PART = ".part"
# Pieces that are asked for at a time.
_WINDOW = 4
# Pieces that have not come for so long are asked for again.
_STALLED_S = 5.0
# A younger file may not have been locked yet.
_YOUNG_S = 60.0


def payload_of(start: m.Start) -> bytes | mmap.mmap:
    """Return the payload of a start message that an agent has passed on."""
    if not start.payload_file:
        return start.payload
    with Path(start.payload_file).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class PayloadFile:
    """One node's payload; used in the agent's poll loop only.

    Parameters
    ----------
    rank : int
        The node's rank, for its messages.
    scratch : Path
        The agent's own folder; those of the host's other agents are beside it.
    send : callable
        Sends a message to the driver.
    on_ready : callable
        Called with the start message when its payload is here.
    on_problem : callable
        Called with a sentence if it cannot be kept.
    """

    def __init__(
        self,
        rank: int,
        scratch: Path,
        send: Callable[[m.FromAgent], None],
        *,
        on_ready: Callable[[m.Start], None],
        on_problem: Callable[[str], None],
    ) -> None:
        self._rank = rank
        self._root = scratch.resolve().parent  # not that of a link to the disks of a container
        self._send = send
        self._on_ready = on_ready
        self._on_problem = on_problem
        self._start: m.Start | None = None
        self._path = self._part_path = scratch
        self._part: int | None = None
        self._file: int | None = None
        self._taken = self._asked = 0
        self._digest = hashlib.sha256()
        self._moved_at = 0.0

    @property
    def is_awaited(self) -> bool:
        """Whether the payload is on its way."""
        return self._start is not None

    def handle(self, message: m.Start | m.PayloadPiece) -> None:
        """Handle the driver's message."""
        if isinstance(message, m.Start):
            self._begin(message)
        else:
            self._take(message)

    def _begin(self, start: m.Start) -> None:
        """Pass a start message on: at once if it has its payload."""
        if not start.payload_bytes:
            self._on_ready(start)
        elif self._start is None and self._file is None:
            self._start = start
            self._path = self._root / f"{_PREFIX}{start.cluster_id}-{start.payload_digest[:16]}"
            self._part_path = self._path.with_name(self._path.name + _PART)
            _sweep(self._root)
            self.tick(time.monotonic())

    def tick(self, now: float) -> None:
        """Look for the file, or ask for what it lacks; called often."""
        if self._start is None:
            return
        try:
            if self._part is not None:
                if now - self._moved_at > _STALLED_S:
                    self._ask_again(now)
            elif (file := _locked(self._path, fcntl.LOCK_SH)) is not None:
                self._finish(file)
            else:
                self._fetch(now)
        except OSError as error:
            self._fail(error)

    def _fetch(self, now: float) -> None:
        """Begin to fetch the payload, unless another agent does, or has just finished."""
        self._part = _locked(self._part_path, fcntl.LOCK_EX, os.O_CREAT)
        if self._part is None:
            return
        if self._path.exists():
            self.close()
            return
        os.ftruncate(self._part, 0)
        self._taken, self._digest = 0, hashlib.sha256()
        self._ask_again(now)

    def _ask_again(self, now: float) -> None:
        self._asked, self._moved_at = self._taken, now
        self._ask(_WINDOW)

    def _ask(self, pieces: int = 1) -> None:
        """Ask for the next pieces; beyond the end, this only says how much is here, which makes room for others."""
        for _ in range(pieces):
            self._send(m.PayloadWanted(rank=self._rank, offset=self._asked, taken=self._taken))
            self._asked += PIECE_BYTES

    def _take(self, piece: m.PayloadPiece) -> None:
        """Write a piece, and ask for further ones."""
        if self._part is None or self._start is None or piece.offset != self._taken:
            return
        try:
            os.pwrite(self._part, piece.data, piece.offset)
            self._digest.update(piece.data)
            self._taken += len(piece.data)
            self._moved_at = time.monotonic()
            self._ask()
            if self._taken >= self._start.payload_bytes:
                self._share()
        except OSError as error:
            self._fail(error)

    def _share(self) -> None:
        """Make the whole file available to the host's other agents."""
        assert self._start is not None
        assert self._part is not None
        if self._digest.hexdigest() != self._start.payload_digest:
            raise OSError(0, "it has changed on its way")
        self._part_path.replace(self._path)
        file, self._part = self._part, None
        fcntl.flock(file, fcntl.LOCK_SH)
        self._finish(file)

    def _finish(self, file: int) -> None:
        assert self._start is not None
        self._file = file
        start, self._start = self._start, None
        self._on_ready(msgspec.structs.replace(start, payload_file=str(self._path)))

    def _fail(self, error: OSError) -> None:
        assert self._start is not None
        size_mb, why = self._start.payload_bytes / 1e6, error.strerror or str(error)
        self._start = None
        self.close()
        self._on_problem(
            f"the function and its arguments ({size_mb:,.0f} MB) cannot be kept in {self._root}: {why}; "
            "capture less, feed the rows with data=..., or free space there"
        )

    def close(self) -> None:
        """Remove the file if no other agent uses it; may be called twice."""
        for file, path in ((self._part, self._part_path), (self._file, self._path)):
            if file is not None:
                with contextlib.suppress(OSError):  # another agent uses it
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
                os.close(file)
        self._part = self._file = None


def _locked(path: Path, lock: int, flags: int = 0) -> int | None:
    """Return the file with a lock, or None if there is none, or another process has locked it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, lock | fcntl.LOCK_NB)
        if os.path.samestat(path.stat(), os.fstat(file)):  # not finished or removed meanwhile
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(file)
    return None


def _sweep(root: Path) -> None:
    """Remove what agents have left that were killed."""
    for path in root.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another agent removes it, too
            is_old = time.time() - path.stat().st_mtime > _YOUNG_S
            if is_old and (file := _locked(path, fcntl.LOCK_EX)) is not None:
                path.unlink()
                os.close(file)
