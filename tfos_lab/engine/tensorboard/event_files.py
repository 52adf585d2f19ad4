"""Receives the chief's event files, if they are in a folder that this machine does not see.

The chief's agent writes an empty file, the probe, beside them. If the driver finds it, both see the same folder, and no
file is sent. Otherwise what they grow by is sent over the control channel into the run's folder, where TensorBoard
shows it. After a restart the chief may be on another host: the folder of the last one is shown. A node is not trusted:
only so many bytes are written, and only below one folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from tfos_lab import messages as m
from tfos_lab.core.paths import split_scheme
from tfos_lab.engine.files.receiver import path_below
from tfos_lab.engine.state.instructions import Instruction, SendTo

LIMIT_BYTES = 256 << 20


class EventFileReceiver:
    """Receives the event files of one cluster; used by the head's thread only.

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
        self._limit_bytes = 0
        self._held: dict[str, int] = {}
        self._problem = ""
        self.folder = log_dir

    def handle(self, message: m.FromAgent) -> list[Instruction]:
        """Handle a message of the chief's agent; return the answers."""
        match message:
            case m.EventFilesFound(rank=rank, probe=probe):
                seen = _sees(Path(split_scheme(self._log_dir)[2]) / PurePosixPath(probe).name)
                self._limit_bytes = 0 if seen else LIMIT_BYTES
                if seen:
                    self._use_shared_folder()
                return [SendTo(rank, m.EventFilesWanted(limit_bytes=self._limit_bytes, held=self._held))]
            case m.EventFilesGrown(rank=rank, pieces=pieces):
                for piece in pieces:
                    self._take(piece)
                return [SendTo(rank, m.EventFilesKept())]
            case m.EventFilesSent():
                self._finish(message)
            case m.EventFilesPut(problem=problem) if problem:
                self._notify(f"event files: {problem}")
        return []

    def _use_shared_folder(self) -> None:
        self._seen = True
        if self.folder != self._log_dir:
            self._notify(
                f"event files: now in {self._log_dir}; those of the nodes before the restart are in {self.folder}"
            )
        self.folder = self._log_dir

    def _take(self, piece: m.EventFilePiece) -> None:
        """Append a piece to its file; one that was not to come is dropped."""
        path = path_below(self._local_dir, piece.name)
        is_next = piece.offset == self._held.get(piece.name, 0)
        fits = sum(self._held.values()) + len(piece.data) <= self._limit_bytes
        if path is None or "tfevents" not in path.name or not is_next or not fits:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            begin = os.O_APPEND if piece.offset else os.O_TRUNC
            flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | begin
            with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
                file.write(piece.data)
        except OSError as error:
            self._problem = f"they cannot be kept in {self._local_dir} ({error.strerror})"
            return
        self._held[piece.name] = piece.offset + len(piece.data)
        self.folder = str(self._local_dir)

    def _finish(self, sent: m.EventFilesSent) -> None:
        sentence = f"event files: {len(self._held)} brought from the chief's host into {self._local_dir}"
        if self._held and self._seen and self.folder != self._log_dir:
            sentence += f"; those of the nodes before the restart are in {self._log_dir}"
        if sent.left_out:
            size_mb = sent.left_out_bytes / 1e6
            limits = f"more than {LIMIT_BYTES >> 20} MB, or more than fits into some seconds"
            sentence += f"; {size_mb:,.1f} MB of {sent.left_out} stay there in {self._log_dir}: they are {limits}"
        if self._problem:
            sentence += f"; {self._problem}"
        self._notify(sentence)


def _sees(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
