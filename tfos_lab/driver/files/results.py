"""Fetches large results into the run's folder, as files, before the ends of their nodes are reported.

The driver's memory holds none of them: `tfos_lab.driver.results` maps a file when somebody looks at its value. The
head's thread calls.
"""

from __future__ import annotations

import socket
from pathlib import Path

from tfos_lab.core import messages as m
from tfos_lab.driver.files.fetcher import FileFetcher
from tfos_lab.driver.logs.log_file import room_on_disk
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.instructions import Instruction, SendTo
from tfos_lab.errors import ResultNotStored
from tfos_lab.node.invoke import RESULT_BYTES


class _Coming:
    """A result that is fetched."""

    def __init__(self, offer: m.FilesListed, path: Path) -> None:
        self.number = offer.number
        [self.file] = offer.files
        self.files = FileFetcher("result", path.parent, path.with_name(f".{path.name}.part"))
        self.left_bytes = self.file.size_bytes


class ResultReceiver:
    """Stores the large results of one cluster's nodes; those of a later start take the place of earlier ones.

    Parameters
    ----------
    run_dir : RunDir
        Where to store them; nodes that see this folder move their results there themselves.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._coming: dict[int, _Coming] = {}

    def handle(self, message: m.FromAgent, node: str) -> list[Instruction]:
        """Handle an agent's message; return what to do."""
        match message:
            case m.FilesListed(folder="result"):
                return self._fetch(message, self._run_dir.result(node))
            case m.FilePiece(rank=rank, folder="result") if rank in self._coming:
                return self._take(message, self._coming[rank])
            case m.Ended(rank=rank):
                self._coming.pop(rank, None)
        return []

    def _fetch(self, offer: m.FilesListed, path: Path) -> list[Instruction]:
        self._coming.pop(offer.rank, None)  # that of a node that was started again
        if problem := self._refusal(offer, path):
            return [SendTo(offer.rank, m.FilesTaken("result", offer.number, problem=problem))]
        coming = self._coming[offer.rank] = _Coming(offer, path)
        return coming.files.fetch(offer.rank, [coming.file])

    def _refusal(self, offer: m.FilesListed, path: Path) -> str:
        """Return why a result cannot be taken, or ""."""
        if [file.name for file in offer.files] != [path.name]:
            return "it was not to come"
        return self._lacking(path.parent, offer.files[0].size_bytes)

    def _lacking(self, folder: Path, size_bytes: int) -> str:
        """Return why a result of this size cannot be stored in a folder, which is made; or ""."""
        if size_bytes > RESULT_BYTES:  # no node of ours offers that
            return f"a result may take {RESULT_BYTES / 1e6:,.1f} MB"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            return str(ResultNotStored(place=_here(folder), reason=error.strerror or str(error)))
        promised = sum(one.left_bytes for one in self._coming.values())
        room = max(0.0, room_on_disk(folder) - promised)
        if size_bytes <= room:
            return ""
        reason = f"it takes {size_bytes / 1e6:,.1f} MB, and the disk there has room for {room / 1e6:,.1f} MB"
        return str(ResultNotStored(place=_here(folder), reason=reason))

    def _take(self, piece: m.FilePiece, coming: _Coming) -> list[Instruction]:
        coming.left_bytes = max(0, coming.left_bytes - len(piece.data))
        questions = coming.files.take(piece)
        if not coming.files.is_idle:
            return questions
        problem = "".join(coming.files.problems.values())
        if problem:
            size = f"{coming.file.size_bytes / 1e6:,.1f} MB"
            problem = f"the result ({size}) could not be brought to the notebook: {problem}"
        return [SendTo(piece.rank, m.FilesTaken("result", coming.number, problem=problem))]

    def clear(self) -> None:
        """Forget who was to send: the nodes have ended."""
        for one in self._coming.values():
            one.files.drop()
        self._coming.clear()


def _here(folder: Path) -> str:
    return f"{folder} on {socket.gethostname()}"
