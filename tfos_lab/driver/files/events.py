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
    """Fetches the event files of one cluster; used by the head's thread only.

    The nodes write them to ``log_dir``, and what is fetched comes into ``local_dir``; ``notify`` gets a sentence for
    the user about it. `folder` is the folder of this machine with the last chief's event files, as far as is known.
    """

    def __init__(self, log_dir: str, local_dir: Path, notify: Callable[[str], None]) -> None:
        self._log_dir = log_dir
        self._local_dir = local_dir
        self._notify = notify
        self._seen = False
        self._files = FileFetcher("events", local_dir)
        self._listed: m.FilesListed | None = None
        self.folder = log_dir

    def handle(self, message: m.FromAgent) -> list[Instruction]:
        """Handle a message of the chief's agent; return the answers."""
        match message:
            case m.FilesListed(rank=rank, folder="events", number=number, probe=probe):
                if probe and _sees(Path(split_scheme(self._log_dir)[2]) / PurePosixPath(probe).name):
                    self._seen, self._listed = True, None
                    if self.folder != self._log_dir:
                        earlier = f"those of the nodes before the restart are in {self.folder}"
                        self._notify(f"event files: now in {self._log_dir}; {earlier}")
                    self.folder = self._log_dir
                    return [SendTo(rank, m.FilesTaken("events", number, sees=True))]
                self._listed = message
                return [*self._files.fetch(rank, list(self._wanted(message.files))), *self._when_taken()]
            case m.FilePiece(folder="events") if self._listed is not None:
                questions = self._files.take(message)
                if self._files.held:
                    self.folder = str(self._local_dir)
                return [*questions, *self._when_taken()]
            case m.EventFilesPut(problem=problem) if problem:
                self._notify(f"event files: {problem}")
        return []

    def _wanted(self, files: list[m.ListedFile]) -> Iterator[m.ListedFile]:
        """Yield what is to be fetched, which is less than what there is of a file where the limit ends."""
        room = LIMIT_BYTES - self._files.held_bytes
        for file in files:
            held = self._files.held.get(file.name)
            begins_at = held.size_bytes if held else 0
            size = min(file.size_bytes - begins_at, room)
            is_begun_or_fits = held is not None or file.size_bytes <= room
            if size > 0 and is_begun_or_fits and "tfevents" in PurePosixPath(file.name).name:
                room -= size
                yield m.ListedFile(file.name, begins_at + size)

    def _when_taken(self) -> list[Instruction]:
        if not self._files.is_idle or self._listed is None:
            return []
        listed = self._listed
        if listed.last:
            self.conclude()
        return [SendTo(listed.rank, m.FilesTaken("events", listed.number))]

    def conclude(self) -> None:
        """Say what has come, and what has not: the chief has ended."""
        listed, self._listed = self._listed, None
        if listed is None:
            return
        held = self._files.held
        sentence = f"event files: {len(held)} brought from the chief's host into {self._local_dir}"
        if held and self._seen and self.folder != self._log_dir:
            sentence += f"; those of the nodes before the restart are in {self._log_dir}"
        missing = [
            file.size_bytes - held[file.name].size_bytes if file.name in held else file.size_bytes
            for file in listed.files
        ]
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
