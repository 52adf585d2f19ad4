"""Fetches what nodes write to ``ctx.output_dir`` and stores it in the run's own folder, and nowhere else.

Nodes that see this machine's folder write there themselves: they recognize it by a file whose name nobody can guess.
All others list what they have written, also while they work, and are asked for the newest files that fit onto the disk.
The head's thread calls; `OutputReceiver.notes` may be read from any.

Large results come into the run's folder, too, as files, before the ends of their nodes are reported. The driver's
memory holds none of them: `tfos_lab.driver.results` maps a file when somebody looks at its value. And so do the chief's
event files, where this machine does not see their folder; TensorBoard shows them there.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from tfos_lab.core import messages as m
from tfos_lab.core.paths import OWN_MARK, split_scheme
from tfos_lab.core.runtime_files import files_in
from tfos_lab.driver.logs import room_on_disk
from tfos_lab.driver.run_dir import RunDir, make_probe
from tfos_lab.driver.state.events import NodeView
from tfos_lab.driver.state.instructions import Instruction, SendTo
from tfos_lab.errors import ResultNotStored
from tfos_lab.node.files.fetcher import Asked, FileFetcher
from tfos_lab.node.files.listed import files_in as listed_in
from tfos_lab.node.invoke import RESULT_BYTES
from tfos_lab.texts import format_count

# What nodes list by themselves; traces are asked for.
_LISTED = ("output", "result", "events")


class OutputReceiver:
    """Stores what one cluster's nodes have written: the output of all or of the chief only, and more.

    That is large results and the chief's `events`; ``notify`` gets sentences about these. `probe` is the file by which
    nodes find out that they see the run's folder, and `event_probe` the same for that of event files.
    """

    def __init__(self, run_dir: RunDir, *, of_all: bool, notify: Callable[[str], None]) -> None:
        self.home = run_dir.output
        self.probe = make_probe(run_dir.path)
        self.events = EventFiles(run_dir, notify)
        self._event_probe = self.probe
        if not self.events.are_at_home:
            self._event_probe = make_probe(Path(split_scheme(run_dir.event_home)[2]))
        self._notify = notify
        self._run_dir = run_dir
        self._of_all = of_all
        self._final_notes: list[str] = []
        # Of what nodes list, and are asked for, by rank and folder.
        self._coming: dict[tuple[int, str], FileFetcher] = {}
        # Of nodes that have all ended.
        self._final_summary: list[str] | None = None

    def notes(self, *, ended: bool) -> list[str]:
        """Return sentences on what was received, what is coming, and what is missing; of a run that has ended, all."""
        final_notes, summary = list(self._final_notes), self._final_summary
        if summary is None:
            summary = self._summary() if ended else []  # some of its nodes may still live
        coming = [
            f"output of {files.node.name}: {_size(files.taken_bytes)} of {_size(files.wanted_bytes)} copied here"
            for files in list(self._coming.values())
            if isinstance(files, _Output) and files.taken_bytes < files.wanted_bytes
        ]
        return [*final_notes, *coming, *summary]

    @property
    def awaited(self) -> tuple[int, ...]:
        """The ranks of nodes on other hosts whose output is not all here yet."""
        return tuple(rank for rank, folder in list(self._coming) if folder == "output")

    @property
    def event_probe(self) -> str:
        """The probe beside event files; none once some were fetched: what follows comes into the same folder."""
        return "" if self.events.held and not self.events.are_at_home else str(self._event_probe)

    def folder_of(self, node: str, *, is_chief: bool) -> Path | None:
        """Return where a node's output is stored, or None if it is not wanted."""
        if is_chief:
            return self.home
        return self._run_dir.output_of(node) if self._of_all else None

    def fetch(self, files: FileFetcher, listed: m.FilesListed) -> list[Instruction]:
        """Ask for files of another folder of a node, which it has told of in its own way."""
        self._coming[listed.rank, listed.folder] = files
        return [SendTo(listed.rank, answer) for answer in files.choose(listed)]

    def handle(self, message: m.FromAgent, node: NodeView) -> list[Instruction]:
        """Handle an agent's message; return the answers."""
        return [SendTo(message.rank, answer) for answer in self._handle(message, node)]

    def _handle(self, message: m.FromAgent, node: NodeView) -> list[Asked]:
        match message:
            case m.FilesListed(rank=rank, folder=folder) if folder in _LISTED:
                files = self._coming.get((rank, folder)) or self._make(folder, node, rank)
                if files is not None:
                    self._coming[rank, folder] = files
                    return files.choose(message)
            case m.FilePiece(rank=rank, folder=folder) if (rank, folder) in self._coming:
                return self._coming[rank, folder].take(message)
            case m.OutputSettled(rank=rank, place=place) if (rank, "output") in self._coming:
                self._finish(self._coming.pop((rank, "output")), node, place)
            case m.OutputSettled(dropped=files, dropped_bytes=size_bytes) if files and not self._of_all:
                self._note_dropped(node, files, size_bytes)
            case m.Ended(rank=rank) if (rank, "result") in self._coming:
                self._coming.pop((rank, "result")).drop()
            case m.EventFilesPut(problem=problem) if problem:
                self._notify(f"event files: {problem}")
        return []

    def _make(self, folder: str, node: NodeView, rank: int) -> FileFetcher | None:
        """Return what fetches this folder of a node; None if it is not wanted."""
        match folder:
            case "output" if home := self.folder_of(node.name, is_chief=node.is_chief):
                return _Output(node, home, self._run_dir.partial_output(rank))
            case "result":
                return _Result(self._run_dir.result(node.name), self._coming)
            case "events" if node.is_chief:
                return self.events
        return None

    def _finish(self, files: FileFetcher, node: NodeView, place: str) -> None:
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
        for files in self._coming.values():
            files.drop()
            if isinstance(files, _Output):
                what = f"{files.node.name} was lost before all of its output had been copied here"
                self._final_notes.append(f"{what}: what is missing may be on {files.node.host} in {files.listed.place}")
        self._coming.clear()
        self.events.conclude(is_last=is_last)
        if is_last:
            self._tidy()
            self._final_summary = self._summary()

    def _tidy(self) -> None:
        """Remove files of our own, also those that a killed node left half-written."""
        for probe in (self.probe, self._event_probe):
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)
        for path in files_in([self.home, *files_in([self.home], "*-*")], f"{OWN_MARK}*"):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def _summary(self) -> list[str]:
        sizes = [file.size for file in listed_in(self.home)[0].values()]
        return [f"output: {_files(len(sizes), sum(sizes))} in {self.home}"] if sizes else []


def saving_note(saving: m.SavesTo, chief: NodeView) -> str:
    """Return a sentence if the chief saves its model where this machine will not find it, or else nothing."""
    if not saving.mark or Path(saving.mark).exists():
        return ""
    return (
        f"{chief.name} saves to {saving.path} on {chief.host}, where this machine does not see it: use "
        "ctx.save_model or ctx.output_dir to have it here, or give ctx.model_dir the full path of a folder that is "
        "shared"
    )


def _files(count: int, size_bytes: int) -> str:
    return f"{format_count(count, 'file')} of {_size(size_bytes)}"


def _size(size_bytes: int) -> str:
    if size_bytes >= 1e5:
        return f"{size_bytes / 1e6:,.1f} MB"
    return format_count(size_bytes, "byte")


class _Output(FileFetcher):
    """The output of a node on another host: the newest files that fit onto the disk."""

    def __init__(self, node: NodeView, home: Path, part: Path) -> None:
        super().__init__("output", home, part)
        self.node = node
        self._disk = part.parent

    def choose(self, listed: m.FilesListed) -> list[Asked]:
        """Ask for files that are not here, or not as they are now; remove those that are gone."""
        fits = {}
        room = room_on_disk(self._disk) + sum(file.size_bytes for file in listed.files if not self.lacks(file))
        for file in sorted(listed.files, key=lambda file: (-file.changed_ns, file.name)):
            if file.size_bytes <= room:
                room -= file.size_bytes
                fits[file.name] = file
        self.remove([name for name in self.held if name not in fits])
        return self.fetch(listed, [one for one in fits.values() if self.lacks(one) and (one.settled or listed.last)])


# ---- large results ---------------------------------------------------------------------------------------------------


class _Result(FileFetcher):
    """The large result of a node that does not see the run's folder; that of a later start takes its place."""

    def __init__(self, path: Path, coming: Mapping[tuple[int, str], FileFetcher]) -> None:
        super().__init__("result", path.parent, path.with_name(f".{path.name}.part"))
        self._path = path
        self._coming = coming

    def choose(self, listed: m.FilesListed) -> list[Asked]:
        """Ask for it, or refuse it."""
        if problem := self._refusal(listed):
            return [m.FilesTaken("result", listed.number, problem=problem)]
        return self.fetch(listed, listed.files)

    def answer(self) -> m.FilesTaken:
        """Return the answer, with a sentence for the user if the result is not here."""
        [file] = self.listed.files
        problem = "".join(self.problems.values())
        if problem:
            problem = f"the result ({file.size_bytes / 1e6:,.1f} MB) could not be brought to the notebook: {problem}"
        return m.FilesTaken("result", self.listed.number, problem=problem)

    def _refusal(self, offer: m.FilesListed) -> str:
        """Return why a result cannot be stored, or ""; its folder is made."""
        self.drop()
        if [file.name for file in offer.files] != [self._path.name]:
            return "it was not to come"
        folder, size_bytes = self._home, offer.files[0].size_bytes
        if size_bytes > RESULT_BYTES:  # no node offers that
            return f"a result may take {RESULT_BYTES / 1e6:,.1f} MB"
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            return str(ResultNotStored(place=_here(folder), reason=error.strerror or str(error)))
        others = [one for one in self._coming.values() if isinstance(one, _Result)]
        room = max(0.0, room_on_disk(folder) - sum(one.wanted_bytes - one.taken_bytes for one in others))
        if size_bytes <= room:
            return ""
        reason = f"it takes {size_bytes / 1e6:,.1f} MB, and the disk there has room for {room / 1e6:,.1f} MB"
        return str(ResultNotStored(place=_here(folder), reason=reason))


def _here(folder: Path) -> str:
    return f"{folder} on {socket.gethostname()}"


# ---- event files -----------------------------------------------------------------------------------------------------

LIMIT_BYTES = 256 << 20


class EventFiles(FileFetcher):
    """The chief's event files, which grow, from a host whose folder for them is not that of this machine.

    After a restart the chief may be on another host. Only so much is fetched, and event files only. They `are_at_home`
    where they are written to the run's folder by nodes that see it.
    """

    def __init__(self, run_dir: RunDir, notify: Callable[[str], None]) -> None:
        super().__init__("events", run_dir.events)
        self._log_dir = run_dir.event_home
        self.are_at_home = self._log_dir == str(run_dir.events)
        self._notify = notify
        self._is_told = True
        self._is_split = False

    @property
    def folder(self) -> str:
        """The folder of this machine with the last chief's event files, as far as is known."""
        return str(self._home) if self.held else self._log_dir

    def choose(self, listed: m.FilesListed) -> list[Asked]:
        """Ask for what has grown, which is less than what there is of a file where the limit ends."""
        self._is_told, wanted = False, []
        room = LIMIT_BYTES - sum(file.size_bytes for file in self.held.values())
        for file in listed.files:
            begins_at = self.begins_at(file.name)
            size = min(file.size_bytes - begins_at, room)
            is_begun_or_fits = begins_at > 0 or file.size_bytes <= room
            if size > 0 and is_begun_or_fits and "tfevents" in PurePosixPath(file.name).name:
                room -= size
                wanted.append(m.ListedFile(file.name, begins_at + size))
        return self.fetch(listed, wanted)

    def answer(self) -> m.FilesTaken:
        """Return the answer; with that to the last list, say what has come."""
        if self.listed.last:
            self.conclude(is_last=True)
        return super().answer()

    def conclude(self, *, is_last: bool) -> None:
        """Say what has come, and what has not, unless other nodes follow."""
        self._is_split = self._is_split or not (is_last or self.held)
        if self._is_told or not is_last:
            return
        self._is_told = True
        sentence = f"event files: {len(self.held)} brought from the chief's host into {self._home}"
        if self.held and self._is_split:
            sentence += f"; those of the nodes before the restart are in {self._log_dir}"
        missing = [file.size_bytes - self.begins_at(file.name) for file in self.missing]
        if left := [size for size in missing if size > 0]:
            limits = f"more than {LIMIT_BYTES >> 20} MB, or more than fits into some seconds"
            sentence += f"; {sum(left) / 1e6:,.1f} MB of {len(left)} stay there in {self._log_dir}: they are {limits}"
        if problems := set(self.problems.values()):
            sentence += f"; {min(problems)}"
        self._notify(sentence)
