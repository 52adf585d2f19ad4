"""Fetches the chief's event files, if they are in a folder that this machine does not see.

The chief's agent writes an empty file, the probe, beside them. If the driver finds it, both see the same folder, and no
file is fetched. Otherwise what they grow by comes into the run's folder, where TensorBoard shows it. After a restart
the chief may be on another host: the folder of the last one is shown. A node is not trusted: only so much is fetched,
and event files only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from tfos_lab.core import messages as m
from tfos_lab.core.paths import split_scheme
from tfos_lab.driver.files.fetcher import FileFetcher
from tfos_lab.driver.state.instructions import Instruction, SendTo

LIMIT_BYTES = 256 << 20


class EventFileReceiver:
    """Fetches the event files of one cluster. The head's thread calls; `folder` may be read from any.

    The nodes write them to ``log_dir``, and what is fetched comes into ``local_dir``; ``notify`` gets a sentence for
    the user about it.
    """

    def __init__(self, log_dir: str, local_dir: Path, notify: Callable[[str], None]) -> None:
        self._log_dir = log_dir
        self._local_dir = local_dir
        self._notify = notify
        self._files = FileFetcher("events", local_dir)
        # Whether the last chief's folder is seen here, and whether that of any was.
        self._sees = self._has_seen = False
        self._is_told = True

    @property
    def folder(self) -> str:
        """The folder of this machine with the last chief's event files, as far as is known."""
        return str(self._local_dir) if self._files.held and not self._sees else self._log_dir

    def handle(self, message: m.FromAgent) -> list[Instruction]:
        """Handle a message of the chief's agent; return the answers."""
        answers: list[Instruction] = []
        match message:
            case m.FilesListed(folder="events"):
                answers = self._fetch(message)
            case m.FilePiece(folder="events"):
                answers = self._files.take(message)
            case m.EventFilesPut(problem=problem) if problem:
                self._notify(f"event files: {problem}")
        if self._files.listed.last and self._files.is_answered:
            self.conclude()
        return answers

    def _fetch(self, listed: m.FilesListed) -> list[Instruction]:
        """Fetch what is listed, unless this machine sees the folder."""
        before, probe = self.folder, PurePosixPath(listed.probe).name
        self._sees = probe != "" and _sees(Path(split_scheme(self._log_dir)[2]) / probe)
        if not self._sees:
            self._is_told = False
            return self._files.fetch(listed, list(self._wanted(listed.files)))
        self._files.drop()
        self._has_seen = self._is_told = True
        if before != self._log_dir:
            earlier = f"those of the nodes before the restart are in {before}"
            self._notify(f"event files: now in {self._log_dir}; {earlier}")
        return [SendTo(listed.rank, m.FilesTaken("events", listed.number, sees=True))]

    def _wanted(self, files: list[m.ListedFile]) -> Iterator[m.ListedFile]:
        """Yield what is to be fetched, which is less than what there is of a file where the limit ends."""
        room = LIMIT_BYTES - sum(file.size_bytes for file in self._files.held.values())
        for file in files:
            begins_at = self._files.begins_at(file.name)
            size = min(file.size_bytes - begins_at, room)
            is_begun_or_fits = begins_at > 0 or file.size_bytes <= room
            if size > 0 and is_begun_or_fits and "tfevents" in PurePosixPath(file.name).name:
                room -= size
                yield m.ListedFile(file.name, begins_at + size)

    def conclude(self) -> None:
        """Say what has come, and what has not: the chief has ended."""
        if self._is_told:
            return
        self._is_told = True
        held = self._files.held
        sentence = f"event files: {len(held)} brought from the chief's host into {self._local_dir}"
        if held and self._has_seen:
            sentence += f"; those of the nodes before the restart are in {self._log_dir}"
        missing = [file.size_bytes - self._files.begins_at(file.name) for file in self._files.missing]
        if left := [size for size in missing if size > 0]:
            limits = f"more than {LIMIT_BYTES >> 20} MB, or more than fits into some seconds"
            sentence += f"; {sum(left) / 1e6:,.1f} MB of {len(left)} stay there in {self._log_dir}: they are {limits}"
        if problems := set(self._files.problems.values()):
            sentence += f"; {min(problems)}"
        self._notify(sentence)


def _sees(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
