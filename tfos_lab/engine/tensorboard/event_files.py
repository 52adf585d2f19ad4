"""Brings event files home: those that the chief wrote to a folder which this machine does not see.

The chief's agent leaves an empty file beside them. Where the driver finds it, both see the same folder, and nothing is
to be done; otherwise the files come through the control channel into the run's own folder, so that TensorBoard shows
them when the nodes have gone. After a restart the chief may be on another host: the folder of the last one is shown.
What comes from a node is taken for what it is: so many bytes, below one folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath

from tfos_lab import messages as m
from tfos_lab.core.paths import split_scheme
from tfos_lab.engine.files.receiver import FileReceiver
from tfos_lab.engine.state.instructions import Instruction, SendTo

LIMIT_BYTES = 64 << 20


class EventFileReceiver:
    """The event files of one cluster; the server's thread calls `handle`.

    Parameters
    ----------
    log_dir : str
        Where the nodes write them.
    home : pathlib.Path
        Where they are brought if this machine does not see that folder.
    tell : callable
        Called with a sentence about what was brought.

    Attributes
    ----------
    folder : str
        Where those of the last chief are on this machine, as far as is known.
    """

    def __init__(self, log_dir: str, home: Path, tell: Callable[[str], None]) -> None:
        self._log_dir = log_dir
        self._home = home
        self._tell = tell
        self._seen = False
        self._files = self._keeper(0)
        self.folder = log_dir

    def handle(self, message: m.FromAgent) -> list[Instruction]:
        """Take in what the chief's agent says; return what to answer."""
        match message:
            case m.EventFilesFound(rank=rank, probe=probe):
                seen = _sees(Path(split_scheme(self._log_dir)[2]) / PurePosixPath(probe).name)
                limit_bytes = 0 if seen else LIMIT_BYTES
                self._files = self._keeper(limit_bytes)
                if seen:
                    self._show_near()
                return [SendTo(rank, m.EventFilesWanted(limit_bytes=limit_bytes))]
            case m.FilePiece(rank=rank, folder="events"):
                return [SendTo(rank, answer) for answer in self._files.take(message)]
            case m.EventFilesSent():
                self._finish(message)
        return []

    def _keeper(self, limit_bytes: int) -> FileReceiver:
        part = self._home.with_name(f".{self._home.name}.part")
        return FileReceiver(self._home, part, limit_bytes, lambda name: "tfevents" in name.rpartition("/")[2])

    def _show_near(self) -> None:
        """The folder of the nodes is seen from here."""
        self._seen = True
        if self.folder != self._log_dir:
            self._tell(
                f"event files: now in {self._log_dir}; those of the nodes before the restart are in {self.folder}"
            )
        self.folder = self._log_dir

    def _finish(self, sent: m.EventFilesSent) -> None:
        self._files.drop()
        whole = self._files.held
        if whole:
            self.folder = str(self._home)
        said = f"event files: {len(whole)} brought from the chief's host into {self._home}"
        if whole and self._seen and self.folder != self._log_dir:
            said += f"; those of the nodes before the restart are in {self._log_dir}"
        if sent.left_out:
            size_mb = sent.left_out_bytes / 1e6
            limits = f"more than {LIMIT_BYTES >> 20} MB, or more than fits into some seconds"
            said += f"; {sent.left_out} of {size_mb:,.1f} MB stay there in {self._log_dir}: they are {limits}"
        self._files = self._keeper(0)
        self._tell(said)


def _sees(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
