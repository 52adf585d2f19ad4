"""Brings event files home: those that the chief wrote to a folder which this machine does not see.

The chief's agent leaves an empty file beside them. Where the driver finds it, both see the same folder, and nothing is
to be done; otherwise the files come through the control channel into the run's own folder, so that TensorBoard shows
them when the nodes have gone. After a restart the chief may be on another host: the folder of the last one is shown.
What comes from a node is taken for what it is: so many bytes, below one folder.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from tfos_lab import messages as m
from tfos_lab.engine.instructions import Instruction, SendTo
from tfos_lab.paths import split_scheme

logger = logging.getLogger(__name__)

LIMIT_BYTES = 64 << 20
_MAX_DEPTH = 16


class EventFileKeeper:
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
        self._room = 0
        self._seen = False
        self._sizes: dict[str, int] = {}
        self.folder = log_dir

    def handle(self, message: m.FromAgent) -> list[Instruction]:
        """Take in what the chief's agent says; return what to answer."""
        match message:
            case m.EventFilesFound(seat=seat, probe=probe):
                seen = _sees(Path(split_scheme(self._log_dir)[2]) / PurePosixPath(probe).name)
                self._room = 0 if seen else LIMIT_BYTES
                self._sizes.clear()
                if seen:
                    self._show_near()
                return [SendTo(seat, m.EventFilesWanted(limit_bytes=self._room))]
            case m.EventFilePiece(seat=seat, data=data):
                self._keep(message)
                return [SendTo(seat, m.EventFileCredit(size=len(data)))]
            case m.EventFilesSent():
                self._finish(message)
        return []

    def _show_near(self) -> None:
        """The folder of the nodes is seen from here."""
        self._seen = True
        if self.folder != self._log_dir:
            self._tell(
                f"event files: now in {self._log_dir}; those of the nodes before the restart are in {self.folder}"
            )
        self.folder = self._log_dir

    def _keep(self, piece: m.EventFilePiece) -> None:
        """Write a piece, unless it is none that was to come."""
        at = self._sizes.get(piece.name, 0)
        path = self._place_of(piece.name)
        if path is None or piece.offset != at or len(piece.data) > self._room:
            self._refuse(piece)
            return
        self._room -= len(piece.data)
        self._sizes[piece.name] = at + len(piece.data)
        partial = path.with_name(f".{path.name}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("ab" if at else "wb") as file:
                file.write(piece.data)
            if piece.last:
                partial.replace(path)
        except OSError as error:
            logger.warning("event files cannot be kept in %s: %s", self._home, error)
            self._room = 0

    def _place_of(self, name: str) -> Path | None:
        """Return where a file of that name belongs, if it is a name for an event file."""
        parts = name.split("/")
        if len(parts) > _MAX_DEPTH or any(part in ("", ".", "..") or "\0" in part for part in parts):
            return None
        return self._home.joinpath(*parts) if "tfevents" in parts[-1] else None

    def _refuse(self, piece: m.EventFilePiece) -> None:
        if self._room:
            logger.warning("dropped a piece of an event file that was not to come: %r", piece.name)

    def _finish(self, sent: m.EventFilesSent) -> None:
        whole = {name for name in self._sizes if (self._home / name).is_file()}
        for name in self._sizes.keys() - whole:
            path = self._home / name
            with contextlib.suppress(OSError):
                path.with_name(f".{path.name}.part").unlink(missing_ok=True)
        if whole:
            self.folder = str(self._home)
        said = f"event files: {len(whole)} brought from the chief's host into {self._home}"
        if whole and self._seen and self.folder != self._log_dir:
            said += f"; those of the nodes before the restart are in {self._log_dir}"
        if sent.left_out:
            size_mb = sent.left_out_bytes / 1e6
            limits = f"more than {LIMIT_BYTES >> 20} MB, or more than fits into some seconds"
            said += f"; {sent.left_out} of {size_mb:,.1f} MB stay there in {self._log_dir}: they are {limits}"
        self._room = 0
        self._tell(said)


def _sees(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False
