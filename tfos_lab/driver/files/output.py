"""Fetches what nodes write to ``ctx.output_dir`` and stores it in the run's own folder, and nowhere else.

Nodes that see this machine's folder write there themselves: they recognize it by a file whose name nobody can guess.
All others list what they have written, also while they work, and are asked for the newest files that fit onto the disk.
The head's thread calls; `OutputReceiver.notes` may be read from any.

Large results come into the run's folder, too, as files, before the ends of their nodes are reported. The driver's
memory holds none of them: `tfos_lab.driver.results` maps a file when somebody looks at its value.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from tfos_lab.core import messages as m
from tfos_lab.core.paths import OWN_MARK
from tfos_lab.core.runtime_files import files_in
from tfos_lab.driver.files.fetcher import FileFetcher
from tfos_lab.driver.logs import room_on_disk
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.events import Event, NodeView, OutputProgressed
from tfos_lab.driver.state.instructions import Instruction, Publish, SendTo
from tfos_lab.errors import ResultNotStored
from tfos_lab.node.files.listed import files_in as listed_in
from tfos_lab.node.invoke import RESULT_BYTES
from tfos_lab.texts import format_count

# Often enough for a progress bar.
_EVENT_S = 0.25


class _Transfer:
    """The output of one node on another host, which lies there in ``origin``."""

    def __init__(self, rank: int, node: NodeView, files: FileFetcher, origin: str) -> None:
        self.node = node
        self.files = files
        self.origin = origin
        self.listed = m.FilesListed("output", 0, [], rank=rank)
        self.fits: dict[str, m.ListedFile] = {}
        self.is_answered = True
        self.size_bytes = self.total_bytes = 0
        self.published_s = 0.0

    def progress(self, now_s: float) -> OutputProgressed:
        self.published_s = now_s
        return OutputProgressed(
            time_s=now_s,
            node=self.node.name,
            files=len(self.files.held),
            size_bytes=self.size_bytes,
            total_bytes=self.total_bytes,
        )

    @property
    def left_out(self) -> list[m.ListedFile]:
        """The files that were listed last and are not here."""
        return [file for file in self.listed.files if self.files.lacks(file)]


class OutputReceiver:
    """Stores the output of one cluster's nodes: of all, or of the chief only.

    `probe` is the file by which nodes find out that they see the run's folder, and `notes` are sentences on what was
    received and what is missing. `moved_at` is when something was received last, by `time.monotonic`.
    """

    def __init__(self, run_dir: RunDir, *, of_all: bool) -> None:
        self.home = run_dir.output
        self.probe = run_dir.make_probe()
        self.notes: tuple[str, ...] = ()
        self.moved_at = 0.0
        self.results = ResultReceiver(run_dir)
        self._run_dir = run_dir
        self._of_all = of_all
        self._final_notes: list[str] = []
        self._coming: dict[int, _Transfer] = {}
        self._is_used = False
        self._is_concluded = False

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks of nodes on other hosts whose output is not all here yet."""
        return tuple(self._coming)

    def folder_of(self, node: str, *, is_chief: bool) -> Path | None:
        """Return where a node's output is stored, or None if it is not wanted."""
        if is_chief:
            return self.home
        return self._run_dir.output_of(node) if self._of_all else None

    def handle(self, message: m.FromAgent, node: NodeView, now_s: float) -> list[Instruction]:
        """Handle an agent's message; return what to do."""
        match message:
            case m.OutputOpened(rank=rank, place=place):
                self._open(rank, node, place)
            case m.FilesListed(rank=rank, folder="output") if rank in self._coming:
                return self._fetch(message, self._coming[rank], now_s)
            case m.FilePiece(rank=rank, folder="output") if rank in self._coming:
                return self._take(message, self._coming[rank], now_s)
            case m.OutputSettled(rank=rank, place=place) if rank in self._coming:
                return self._finish(self._coming.pop(rank), place, now_s)
            case m.OutputSettled(dropped=files, dropped_bytes=size_bytes) if files and not self._of_all:
                self._note_dropped(node, files, size_bytes)
        return []

    def _open(self, rank: int, node: NodeView, place: str) -> None:
        home = self.folder_of(node.name, is_chief=node.is_chief)
        if home is None:
            return
        self._is_used = True
        if place and rank not in self._coming:
            files = FileFetcher("output", home, self._run_dir.partial_output(rank))
            self._coming[rank] = _Transfer(rank, node, files, place)

    def _fetch(self, listed: m.FilesListed, transfer: _Transfer, now_s: float) -> list[Instruction]:
        """Fetch the newest files that fit onto the disk, unless they are here; remove those that are gone."""
        transfer.listed, transfer.fits, transfer.is_answered = listed, {}, False
        held = sum(file.size_bytes for file in listed.files if not transfer.files.lacks(file))
        room = held + room_on_disk(self._run_dir.path)
        for file in sorted(listed.files, key=lambda file: (-file.changed_ns, file.name)):
            if file.size_bytes <= room:
                room -= file.size_bytes
                transfer.fits[file.name] = file
        files = transfer.files
        files.remove([name for name in files.held if name not in transfer.fits])
        due = [file for file in transfer.fits.values() if files.lacks(file) and (file.settled or listed.last)]
        transfer.total_bytes = transfer.size_bytes + sum(file.size_bytes for file in due)
        return [*files.fetch(listed.rank, due), *self._when_taken(transfer, now_s)]

    def _take(self, piece: m.FilePiece, transfer: _Transfer, now_s: float) -> list[Instruction]:
        self.moved_at = time.monotonic()
        transfer.size_bytes = min(transfer.total_bytes, transfer.size_bytes + len(piece.data))
        return [*transfer.files.take(piece), *self._when_taken(transfer, now_s)]

    def _when_taken(self, transfer: _Transfer, now_s: float) -> list[Instruction]:
        self._update_notes()
        is_taken = transfer.files.is_idle and not transfer.is_answered
        is_due = transfer.size_bytes and (is_taken or now_s - transfer.published_s >= _EVENT_S)
        instructions: list[Instruction] = [Publish(transfer.progress(now_s))] if is_due else []
        if is_taken:
            listed, transfer.is_answered = transfer.listed, True
            taken = m.FilesTaken("output", listed.number, left_out=len(transfer.left_out))
            instructions.append(SendTo(listed.rank, taken))
        return instructions

    def _finish(self, transfer: _Transfer, place: str, now_s: float) -> list[Instruction]:
        transfer.files.drop()
        name, host, left = transfer.node.name, transfer.node.host, transfer.left_out
        if left:
            files = _files(len(left), sum(file.size_bytes for file in left))
            problems = [why for file, why in transfer.files.problems.items() if file in transfer.fits]
            why = problems[0] if problems else "the disk is nearly full"
            were, they = ("was", "it is") if len(left) == 1 else ("were", "they are")
            self._final_notes.append(
                f"output of {name}: {files} {were} not copied here ({why}); {they} on {host} in {place}"
            )
        if transfer.listed.links:
            links = format_count(transfer.listed.links, "symbolic link was", "symbolic links were")
            self._final_notes.append(f"output of {name}: {links} not copied here")
        self._update_notes()
        return [Publish(transfer.progress(now_s))]

    def _note_dropped(self, node: NodeView, files: int, size_bytes: int) -> None:
        what = f"{node.name} has written {_files(files, size_bytes)} by relative paths"
        note = f"{what}, removed with the node: collect='all' copies them here"
        if not node.is_chief and note not in self._final_notes:
            self._final_notes.append(note)
            self._update_notes()

    def _update_notes(self) -> None:
        coming = [
            f"output of {one.node.name}: {_size(one.size_bytes)} of {_size(one.total_bytes)} copied here"
            for one in self._coming.values()
            if one.size_bytes < one.total_bytes
        ]
        self.notes = (*self._final_notes, *coming)

    def conclude(self, now_s: float, *, is_last: bool) -> Sequence[Event]:
        """Handle the end of the nodes, which is the last one unless others follow; return what to publish."""
        for transfer in self._coming.values():
            transfer.files.drop()
            node = transfer.node
            what = f"{node.name} was lost before all of its output had been copied here"
            self._final_notes.append(f"{what}: what is missing may be on {node.host} in {transfer.origin}")
        self._coming.clear()
        self.results.clear()
        events: Sequence[Event] = ()
        if is_last:
            self._tidy()
            if self._is_used:
                sizes = _sizes_below(self.home)
                self._final_notes += self._summary(sizes)
                size_bytes = sum(sizes)
                events = [
                    OutputProgressed(
                        time_s=now_s,
                        node="",
                        files=len(sizes),
                        size_bytes=size_bytes,
                        total_bytes=size_bytes,
                        complete=True,
                    )
                ]
        self._update_notes()
        self._is_concluded = is_last
        return events

    def _tidy(self) -> None:
        """Remove files of our own, also those that a killed node left half-written."""
        with contextlib.suppress(OSError):
            self.probe.unlink(missing_ok=True)
        for path in files_in([self.home, *files_in([self.home], "*-*")], f"{OWN_MARK}*"):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def notes_at_the_end(self) -> tuple[str, ...]:
        """Return `notes` and a summary of the output, for a run that has ended though some of its nodes still live."""
        if self._is_concluded or not self._is_used:
            return self.notes
        return (*self.notes, *self._summary(_sizes_below(self.home)))

    def _summary(self, sizes: Sequence[int]) -> list[str]:
        return [f"output: {_files(len(sizes), sum(sizes))} in {self.home}"] if sizes else []


def saving_note(saving: m.SavesTo, chief: NodeView) -> str:
    """Return a sentence if the chief saves its model where this machine will not find it, or else nothing."""
    problems = []
    is_elsewhere = saving.mark != "" and not Path(saving.mark).exists()
    if is_elsewhere:
        problems.append("where this machine does not see it")
    if saving.vanishes:
        problems.append("in Spark's folder for the job, which Spark removes")
    if not problems:
        return ""
    folder = ", or give ctx.model_dir the full path of a folder that is shared" if is_elsewhere else ""
    return (
        f"{chief.name} saves to {saving.path} on {chief.host}, {' and '.join(problems)}: use ctx.save_model or "
        f"ctx.output_dir to have it here{folder}"
    )


def _sizes_below(folder: Path) -> list[int]:
    return [file.size for file in listed_in(folder)[0].values()]


def _files(count: int, size_bytes: int) -> str:
    return f"{format_count(count, 'file')} of {_size(size_bytes)}"


def _size(size_bytes: int) -> str:
    if size_bytes >= 1e5:
        return f"{size_bytes / 1e6:,.1f} MB"
    return format_count(size_bytes, "byte")


# ---- large results ---------------------------------------------------------------------------------------------------


class _Coming:
    """A result that is fetched."""

    def __init__(self, offer: m.FilesListed, path: Path) -> None:
        self.number = offer.number
        [self.file] = offer.files
        self.files = FileFetcher("result", path.parent, path.with_name(f".{path.name}.part"))
        self.left_bytes = self.file.size_bytes


class ResultReceiver:
    """Stores the large results of one cluster's nodes; those of a later start take the place of earlier ones.

    Nodes that see the run's folder move their results there themselves.
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
        """Return why a result cannot be stored, or ""; its folder is made."""
        if [file.name for file in offer.files] != [path.name]:
            return "it was not to come"
        folder, size_bytes = path.parent, offer.files[0].size_bytes
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
