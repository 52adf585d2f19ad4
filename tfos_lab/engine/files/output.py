"""Brings home what nodes write to ``ctx.output_dir``: into the run's own folder, and nowhere else.

Nodes that see this machine's folder write there themselves: they find a file of a name that nobody can guess. All
others send what they have written. The server's thread calls; `notes` may be read from any.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from tfos_lab import messages as m
from tfos_lab.core.paths import OWN_MARK
from tfos_lab.engine.files.receiver import FileReceiver
from tfos_lab.engine.state.events import Event, NodeView, OutputProgressed
from tfos_lab.engine.state.instructions import Instruction, Publish, SendTo

# Often enough for a bar that grows.
_EVENT_S = 0.25


class _Bringing:
    """What one node brings."""

    def __init__(self, node: NodeView, files: FileReceiver, place: str) -> None:
        self.node = node
        self.files = files
        self.place = place
        self.size_bytes = self.total_bytes = 0
        self.told_s = 0.0

    def progress(self, now_s: float) -> OutputProgressed:
        self.told_s = now_s
        return OutputProgressed(
            time_s=now_s,
            node=self.node.node,
            files=len(self.files.held),
            size_bytes=self.size_bytes,
            total_bytes=self.total_bytes,
        )


class OutputReceiver:
    """The output of one cluster.

    Parameters
    ----------
    home : pathlib.Path
        Where it belongs; a folder in the run's own one, made with the first file.
    limit_bytes : int
        The most that a node on another host may bring.
    of_all : bool
        Whether it is wanted from all nodes, and not from the chief only.

    Attributes
    ----------
    probe : pathlib.Path
        The file by which nodes find out that they see the run's folder.
    notes : tuple of str
        Sentences on what came and what did not.
    moved_at : float
        When something came last, by `time.monotonic`.
    """

    def __init__(self, home: Path, *, limit_bytes: int, of_all: bool) -> None:
        self.home = home
        self.limit_bytes = limit_bytes
        self.probe = _leave_probe(home.parent)
        self.notes: tuple[str, ...] = ()
        self.moved_at = 0.0
        self._of_all = of_all
        self._said: list[str] = []
        self._coming: dict[int, _Bringing] = {}
        self._is_used = False
        self._is_concluded = False

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks of nodes on other hosts that have not brought all of their output yet."""
        return tuple(self._coming)

    def folder_of(self, node: str, *, is_chief: bool) -> Path | None:
        """Return where a node's output belongs, or None if it is not wanted."""
        if is_chief:
            return self.home
        return self.home / node.replace(":", "-") if self._of_all else None

    def handle(self, message: m.FromAgent, node: NodeView, now_s: float) -> list[Instruction]:
        """Take in what an agent says; return what to do."""
        match message:
            case m.OutputOpened(rank=rank, place=place):
                self._open(rank, node, place)
            case m.OutputComes(rank=rank, size_bytes=size_bytes) if rank in self._coming:
                self._coming[rank].total_bytes += size_bytes
            case m.FilePiece(rank=rank, folder="output"):
                return self._keep(message, now_s) if rank in self._coming else []
            case m.OutputGone(rank=rank, names=names) if rank in self._coming:
                self._coming[rank].files.remove(names)
            case m.OutputSent(rank=rank) if rank in self._coming:
                return self._finish(message, now_s)
        return []

    def _open(self, rank: int, node: NodeView, place: str) -> None:
        home = self.folder_of(node.node, is_chief=node.is_chief)
        if home is None:
            return
        self._is_used = True
        if place and rank not in self._coming:
            part = self.home.with_name(f".{self.home.name}-{rank}.part")
            self._coming[rank] = _Bringing(node, FileReceiver(home, part, self.limit_bytes), place)

    def _keep(self, piece: m.FilePiece, now_s: float) -> list[Instruction]:
        self.moved_at = time.monotonic()
        bringing = self._coming[piece.rank]
        answers: list[Instruction] = [SendTo(piece.rank, answer) for answer in bringing.files.take(piece)]
        bringing.size_bytes += len(piece.data)
        bringing.total_bytes = max(bringing.total_bytes, bringing.size_bytes)
        self._show()
        is_due = now_s - bringing.told_s >= _EVENT_S or bringing.size_bytes == bringing.total_bytes
        return [*answers, Publish(bringing.progress(now_s))] if is_due else answers

    def _finish(self, sent: m.OutputSent, now_s: float) -> list[Instruction]:
        bringing = self._coming.pop(sent.rank)
        bringing.files.drop()
        name, host = bringing.node.node, bringing.node.host
        if sent.left_out:
            files = _files(sent.left_out, sent.left_out_bytes)
            why = sent.problem or f"with them it would be more than output_limit_bytes={self.limit_bytes:,}"
            they = "it is" if sent.left_out == 1 else "they are"
            self._said.append(f"output of {name}: {files} did not come here ({why}); {they} on {host} in {sent.place}")
        if sent.links:
            links = "1 symbolic link" if sent.links == 1 else f"{sent.links:,} symbolic links"
            self._said.append(f"output of {name}: {links} did not come here")
        self._show()
        return [Publish(bringing.progress(now_s))]

    def _show(self) -> None:
        """Make `notes` tell how it stands."""
        coming = [
            f"output of {one.node.node}: {_size(one.size_bytes)} of {_size(one.total_bytes)} brought here"
            for one in self._coming.values()
            if one.size_bytes < one.total_bytes
        ]
        self.notes = (*self._said, *coming)

    def conclude(self, now_s: float, *, is_last: bool) -> Sequence[Event]:
        """The nodes have ended, one way or another; ``is_last`` unless others follow. Return what to publish."""
        for bringing in self._coming.values():
            bringing.files.drop()
            node = bringing.node
            what = f"{node.node} was gone before it said that all of its output had come"
            self._said.append(f"{what}: what is missing may be on {node.host} in {bringing.place}")
        self._coming.clear()
        events: Sequence[Event] = ()
        if is_last:
            self._tidy()
            if self._is_used:
                events = [self._sum(now_s)]
        self._show()
        self._is_concluded = is_last
        return events

    def _tidy(self) -> None:
        """Remove what only we needed, and what was half-written by us when its writer was killed."""
        with contextlib.suppress(OSError):
            self.probe.unlink(missing_ok=True)
            for path in (*self.home.glob(f"{OWN_MARK}*"), *self.home.glob(f"*-*/{OWN_MARK}*")):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def notes_at_the_end(self) -> tuple[str, ...]:
        """Return `notes`, with what is there, of a run that has ended while some of its nodes may not have gone."""
        if self._is_concluded or not self._is_used:
            return self.notes
        return (*self.notes, *self._summary(_sizes_below(self.home)))

    def _summary(self, sizes: Sequence[int]) -> list[str]:
        return [f"output: {_files(len(sizes), sum(sizes))} in {self.home}"] if sizes else []

    def _sum(self, now_s: float) -> Event:
        sizes = _sizes_below(self.home)
        self._said += self._summary(sizes)
        return OutputProgressed(
            time_s=now_s, node="", files=len(sizes), size_bytes=sum(sizes), total_bytes=sum(sizes), complete=True
        )


def _leave_probe(folder: Path) -> Path:
    probe = folder / f".home-{secrets.token_hex(16)}"
    probe.touch(mode=0o600)
    return probe


def _sizes_below(folder: Path) -> list[int]:
    sizes = []
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                sizes.append((Path(place) / name).lstat().st_size)
    return sizes


def _files(count: int, size_bytes: int) -> str:
    return f"{'1 file' if count == 1 else f'{count:,} files'} of {_size(size_bytes)}"


def _size(size_bytes: int) -> str:
    if size_bytes >= 1e5:
        return f"{size_bytes / 1e6:,.1f} MB"
    return "1 byte" if size_bytes == 1 else f"{size_bytes:,} bytes"
