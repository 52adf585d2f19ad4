"""Receives the chief's event files, if they are in a folder that this machine does not see.

The chief's agent writes an empty file, the probe, beside them. If the driver finds it, both see the same folder, and no
file is sent. Otherwise the files are sent over the control channel into the run folder, so that TensorBoard can show
them after the nodes have ended. After a restart the chief may be on another host: the folder of the last one is shown.
A node is not trusted: only so many bytes are written, and only below one folder.
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
    """Receives the event files of one cluster; used by the server thread only.

    Parameters
    ----------
    log_dir : str
        Folder that the nodes write them to.
    local_dir : pathlib.Path
        Folder of this machine for files that are received.
    notify : callable
        Called with a sentence for the user about what was received.

    Attributes
    ----------
    folder : str
        Folder of this machine with the last chief's event files, as far as is known.
    """

    def __init__(self, log_dir: str, local_dir: Path, notify: Callable[[str], None]) -> None:
        self._log_dir = log_dir
        self._local_dir = local_dir
        self._notify = notify
        self._seen = False
        self._files = self._receiver(0)
        self.folder = log_dir

    def handle(self, message: m.FromAgent) -> list[Instruction]:
        """Handle a message of the chief's agent; return the answers."""
        match message:
            case m.EventFilesFound(rank=rank, probe=probe):
                seen = _sees(Path(split_scheme(self._log_dir)[2]) / PurePosixPath(probe).name)
                limit_bytes = 0 if seen else LIMIT_BYTES
                self._files = self._receiver(limit_bytes)
                if seen:
                    self._use_shared_folder()
                return [SendTo(rank, m.EventFilesWanted(limit_bytes=limit_bytes))]
            case m.FilePiece(rank=rank, folder="events"):
                return [SendTo(rank, answer) for answer in self._files.take(message)]
            case m.EventFilesSent():
                self._finish(message)
            case m.EventFilesPut(problem=problem) if problem:
                self._notify(f"event files: {problem}")
        return []

    def _receiver(self, limit_bytes: int) -> FileReceiver:
        part = self._local_dir.with_name(f".{self._local_dir.name}.part")
        return FileReceiver(self._local_dir, part, limit_bytes, lambda name: "tfevents" in name.rpartition("/")[2])

    def _use_shared_folder(self) -> None:
        self._seen = True
        if self.folder != self._log_dir:
            self._notify(
                f"event files: now in {self._log_dir}; those of the nodes before the restart are in {self.folder}"
            )
        self.folder = self._log_dir

    def _finish(self, sent: m.EventFilesSent) -> None:
        self._files.drop()
        received = self._files.held
        if received:
            self.folder = str(self._local_dir)
        sentence = f"event files: {len(received)} brought from the chief's host into {self._local_dir}"
        if received and self._seen and self.folder != self._log_dir:
            sentence += f"; those of the nodes before the restart are in {self._log_dir}"
        if sent.left_out:
            size_mb = sent.left_out_bytes / 1e6
            limits = f"more than {LIMIT_BYTES >> 20} MB, or more than fits into some seconds"
            sentence += f"; {sent.left_out} of {size_mb:,.1f} MB stay there in {self._log_dir}: they are {limits}"
        self._files = self._receiver(0)
        self._notify(sentence)


def _sees(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
