"""Receives large results into the run's folder: a few at a time, as files, before the ends of their nodes are reported.

The driver's memory holds none of them: `tfos_lab.engine.results` maps a file when somebody looks at its value. The
server's thread calls.
"""

from __future__ import annotations

import shutil
import socket
from collections import deque
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.engine.files.receiver import FileReceiver
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.state.instructions import Instruction, SendTo
from tfos_lab.errors import ResultNotStored
from tfos_lab.node.invoke import RESULT_BYTES

# Nodes that send at a time.
_AT_ONCE = 4
# Who has sent nothing for so long makes room for others: it may be lost. It may go on when it can.
_STALLED_S = 10.0
# What results leave free of the disk, so that notebooks and models can still be saved: this, or this part of a small
# disk.
_FREE_BYTES = 1 << 30
_FREE_PART = 20


class _Coming:
    """A result that may be sent."""

    def __init__(self, path: Path, size_bytes: int, now_s: float) -> None:
        part = path.with_name(f".{path.name}.part")
        self.files = FileReceiver(path.parent, part, size_bytes, lambda name: name == path.name)
        self.left_bytes = size_bytes
        self.moved_s = now_s


class ResultReceiver:
    """Stores the large results of one cluster's nodes; those of a later start take the place of earlier ones.

    Parameters
    ----------
    run_dir : RunDir
        Where to store them.
    probe : Path
        A file there whose name nobody can guess: agents that see it move their files there.
    """

    def __init__(self, run_dir: RunDir, probe: Path) -> None:
        self._run_dir = run_dir
        self._probe = str(probe)
        self._coming: dict[int, _Coming] = {}
        self._waiting: deque[tuple[int, str, int]] = deque()

    def handle(self, message: m.FromAgent, node: str, now_s: float) -> list[Instruction]:
        """Handle an agent's message; return what to do."""
        match message:
            case m.ResultOffered(rank=rank) if rank in self._coming:
                return [self._want(rank, node)]  # the answer was lost, or late
            case m.ResultOffered(rank=rank, size_bytes=size_bytes):
                self._waiting = deque(offer for offer in self._waiting if offer[0] != rank)
                self._waiting.append((rank, node, size_bytes))
                return self._admit(now_s)
            case m.FilePiece(rank=rank, folder="result") if rank in self._coming:
                return self._store(message, self._coming[rank], now_s)
            case m.Ended(rank=rank) if self._coming.pop(rank, None):
                return self._admit(now_s)
        return []

    def _admit(self, now_s: float) -> list[Instruction]:
        """Have as many of those that wait send as may; refuse what the disk has no space for."""
        answers: list[Instruction] = []
        while self._waiting and sum(now_s - one.moved_s < _STALLED_S for one in self._coming.values()) < _AT_ONCE:
            rank, node, size_bytes = self._waiting.popleft()
            path = self._run_dir.result(node)
            problem = self._lacking(path.parent, size_bytes)
            if not problem:
                self._coming[rank] = _Coming(path, size_bytes, now_s)
            answers.append(self._want(rank, node, problem))
        return answers

    def _want(self, rank: int, node: str, problem: str = "") -> Instruction:
        return SendTo(rank, m.ResultWanted(str(self._run_dir.result(node)), self._probe, problem))

    def _lacking(self, folder: Path, size_bytes: int) -> str:
        """Return why a result of this size cannot be stored in a folder, which is made; or ""."""
        if size_bytes > RESULT_BYTES:  # no node of ours offers that
            return f"a result may take {RESULT_BYTES / 1e6:,.1f} MB"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
            disk = shutil.disk_usage(folder)
        except OSError as error:
            return str(ResultNotStored(place=_here(folder), reason=error.strerror or str(error)))
        promised = sum(one.left_bytes for one in self._coming.values())
        room = max(0, disk.free - promised - min(_FREE_BYTES, disk.total // _FREE_PART))
        if size_bytes <= room:
            return ""
        reason = f"it takes {size_bytes / 1e6:,.1f} MB, and the disk there has room for {room / 1e6:,.1f} MB"
        return str(ResultNotStored(place=_here(folder), reason=reason))

    def _store(self, piece: m.FilePiece, coming: _Coming, now_s: float) -> list[Instruction]:
        coming.moved_s = now_s
        coming.left_bytes = max(0, coming.left_bytes - len(piece.data))
        return [SendTo(piece.rank, answer) for answer in coming.files.take(piece)]

    def clear(self) -> None:
        """Forget who was to send: the nodes have ended."""
        for one in self._coming.values():
            one.files.drop()
        self._coming.clear()
        self._waiting.clear()


def _here(folder: Path) -> str:
    return f"{folder} on {socket.gethostname()}"
