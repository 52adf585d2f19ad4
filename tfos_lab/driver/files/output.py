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
from pathlib import Path
from typing import NamedTuple

from tfos_lab.core import messages as m
from tfos_lab.core.paths import OWN_MARK
from tfos_lab.core.runtime_files import files_in
from tfos_lab.driver.files.fetcher import FileFetcher
from tfos_lab.driver.logs import room_on_disk
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.events import NodeView
from tfos_lab.driver.state.instructions import Instruction, SendTo
from tfos_lab.errors import ResultNotStored
from tfos_lab.node.files.listed import files_in as listed_in
from tfos_lab.node.invoke import RESULT_BYTES
from tfos_lab.texts import format_count


class _Transfer(NamedTuple):
    """The output of one node on another host."""

    node: NodeView
    files: FileFetcher


class OutputReceiver:
    """Stores the output of one cluster's nodes: of all, or of the chief only.

    `probe` is the file by which nodes find out that they see the run's folder.
    """

    def __init__(self, run_dir: RunDir, *, of_all: bool) -> None:
        self.home = run_dir.output
        self.probe = run_dir.make_probe()
        self._results = ResultReceiver(run_dir)
        self._run_dir = run_dir
        self._of_all = of_all
        self._final_notes: list[str] = []
        self._coming: dict[int, _Transfer] = {}
        # Of nodes that have all ended.
        self._final_summary: list[str] | None = None

    def notes(self, *, ended: bool) -> list[str]:
        """Return sentences on what was received, what is coming, and what is missing; of a run that has ended, all."""
        final_notes, summary = list(self._final_notes), self._final_summary
        if summary is None:
            summary = self._summary() if ended else []  # some of its nodes may still live
        coming = [
            f"output of {node.name}: {_size(files.taken_bytes)} of {_size(files.wanted_bytes)} copied here"
            for node, files in list(self._coming.values())
            if files.taken_bytes < files.wanted_bytes
        ]
        return [*final_notes, *coming, *summary]

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks of nodes on other hosts whose output is not all here yet."""
        return tuple(self._coming)

    def folder_of(self, node: str, *, is_chief: bool) -> Path | None:
        """Return where a node's output is stored, or None if it is not wanted."""
        if is_chief:
            return self.home
        return self._run_dir.output_of(node) if self._of_all else None

    def handle(self, message: m.FromAgent, node: NodeView) -> list[Instruction]:
        """Handle an agent's message; return the answers."""
        match message:
            case m.FilesListed(folder="output"):
                return self._fetch(message, node)
            case m.FilePiece(rank=rank, folder="output") if rank in self._coming:
                return self._coming[rank].files.take(message)
            case m.OutputSettled(rank=rank, place=place) if rank in self._coming:
                self._finish(self._coming.pop(rank), place)
            case m.OutputSettled(dropped=files, dropped_bytes=size_bytes) if files and not self._of_all:
                self._note_dropped(node, files, size_bytes)
        return self._results.handle(message, node.name)

    def _fetch(self, listed: m.FilesListed, node: NodeView) -> list[Instruction]:
        """Fetch the newest files that fit onto the disk, unless they are here; remove those that are gone."""
        home = self.folder_of(node.name, is_chief=node.is_chief)
        if home is None:
            return []
        if listed.rank not in self._coming:
            partial = self._run_dir.partial_output(listed.rank)
            self._coming[listed.rank] = _Transfer(node, FileFetcher("output", home, partial))
        files, fits = self._coming[listed.rank].files, {}
        held = sum(file.size_bytes for file in listed.files if not files.lacks(file))
        room = held + room_on_disk(self._run_dir.path)
        for file in sorted(listed.files, key=lambda file: (-file.changed_ns, file.name)):
            if file.size_bytes <= room:
                room -= file.size_bytes
                fits[file.name] = file
        files.remove([name for name in files.held if name not in fits])
        due = [file for file in fits.values() if files.lacks(file) and (file.settled or listed.last)]
        return files.fetch(listed, due)

    def _finish(self, transfer: _Transfer, place: str) -> None:
        node, files = transfer
        files.drop()
        if left := files.missing:
            what = _files(len(left), sum(file.size_bytes for file in left))
            why = next(iter(files.problems.values()), "the disk is nearly full")
            were, they = ("was", "it is") if len(left) == 1 else ("were", "they are")
            self._final_notes.append(
                f"output of {node.name}: {what} {were} not copied here ({why}); {they} on {node.host} in {place}"
            )
        if files.listed.links:
            links = format_count(files.listed.links, "symbolic link was", "symbolic links were")
            self._final_notes.append(f"output of {node.name}: {links} not copied here")

    def _note_dropped(self, node: NodeView, files: int, size_bytes: int) -> None:
        what = f"{node.name} has written {_files(files, size_bytes)} by relative paths"
        note = f"{what}, removed with the node: collect='all' copies them here"
        if not node.is_chief and note not in self._final_notes:
            self._final_notes.append(note)

    def conclude(self, *, is_last: bool) -> None:
        """Handle the end of the nodes, which is the last one unless others follow."""
        for node, files in self._coming.values():
            files.drop()
            what = f"{node.name} was lost before all of its output had been copied here"
            self._final_notes.append(f"{what}: what is missing may be on {node.host} in {files.listed.place}")
        self._coming.clear()
        self._results.clear()
        if is_last:
            self._tidy()
            self._final_summary = self._summary()

    def _tidy(self) -> None:
        """Remove files of our own, also those that a killed node left half-written."""
        with contextlib.suppress(OSError):
            self.probe.unlink(missing_ok=True)
        for path in files_in([self.home, *files_in([self.home], "*-*")], f"{OWN_MARK}*"):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def _summary(self) -> list[str]:
        sizes = [file.size for file in listed_in(self.home)[0].values()]
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


def _files(count: int, size_bytes: int) -> str:
    return f"{format_count(count, 'file')} of {_size(size_bytes)}"


def _size(size_bytes: int) -> str:
    if size_bytes >= 1e5:
        return f"{size_bytes / 1e6:,.1f} MB"
    return format_count(size_bytes, "byte")


# ---- large results ---------------------------------------------------------------------------------------------------


class _Result(FileFetcher):
    """A result that is fetched."""

    def answer(self) -> m.FilesTaken:
        """Return the answer, with a sentence for the user if the result is not here."""
        [file] = self.listed.files
        problem = "".join(self.problems.values())
        if problem:
            problem = f"the result ({file.size_bytes / 1e6:,.1f} MB) could not be brought to the notebook: {problem}"
        return m.FilesTaken("result", self.listed.number, problem=problem)


class ResultReceiver:
    """Stores the large results of one cluster's nodes; those of a later start take the place of earlier ones.

    Nodes that see the run's folder move their results there themselves.
    """

    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir
        self._coming: dict[int, FileFetcher] = {}

    def handle(self, message: m.FromAgent, node: str) -> list[Instruction]:
        """Handle an agent's message; return the answers."""
        match message:
            case m.FilesListed(folder="result"):
                return self._fetch(message, self._run_dir.result(node))
            case m.FilePiece(rank=rank, folder="result") if rank in self._coming:
                return self._coming[rank].take(message)
            case m.Ended(rank=rank) if rank in self._coming:
                self._coming.pop(rank).drop()
        return []

    def _fetch(self, offer: m.FilesListed, path: Path) -> list[Instruction]:
        self._coming.pop(offer.rank, None)  # that of a node that was started again
        if problem := self._refusal(offer, path):
            return [SendTo(offer.rank, m.FilesTaken("result", offer.number, problem=problem))]
        coming = _Result("result", path.parent, path.with_name(f".{path.name}.part"))
        self._coming[offer.rank] = coming
        return coming.fetch(offer, offer.files)

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
        promised = sum(one.wanted_bytes - one.taken_bytes for one in self._coming.values())
        room = max(0.0, room_on_disk(folder) - promised)
        if size_bytes <= room:
            return ""
        reason = f"it takes {size_bytes / 1e6:,.1f} MB, and the disk there has room for {room / 1e6:,.1f} MB"
        return str(ResultNotStored(place=_here(folder), reason=reason))

    def clear(self) -> None:
        """Forget who was to send: the nodes have ended."""
        for one in self._coming.values():
            one.drop()
        self._coming.clear()


def _here(folder: Path) -> str:
    return f"{folder} on {socket.gethostname()}"
