"""Sends the chief's event files to a driver that does not see the folder they are written to, while they grow.

After a restart, those of the earlier nodes are sent too, if this host sees them: an earlier chief may have been killed
before it could send. It works in the agent's poll loop, and takes a bounded time after the function's end: what is more
stays where it is.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from stat import S_ISREG

from tfos_lab import messages as m
from tfos_lab.core.paths import split_scheme
from tfos_lab.node.files.found import FoundFile

# TensorBoard looks for new lines about as often.
_PERIOD_S = 2.0
_AT_ONCE_BYTES = 1 << 20
# Less than the driver waits for a node that has ended.
PATIENCE_S = 5.0
# The search is bounded: a folder that many runs share may be large, and the agent must send heartbeats.
_SEARCH_S = 1.0
# Clocks of file servers differ from the host's.
_CLOCK_SKEW_S = 5.0


class EventFileSender:
    """Sends the event files that this node's function writes; none unless a folder is given.

    Parameters
    ----------
    rank : int
        The node's rank, for its messages.
    send : callable
        Sends a message to the driver.
    """

    def __init__(self, rank: int, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._send = send
        self._folder: Path | None = None
        self._since_s = self._began_s = 0.0
        self._probe: Path | None = None
        # How much the driver takes, which it says when it has looked for the probe; what it has of each file.
        self._limit_bytes: int | None = None
        self._sent: dict[str, int] = {}
        self._awaits_answer = False
        self._due_s = 0.0
        self._deadline_s: float | None = None

    def set_folder(self, folder: str, age_s: float = 0.0) -> None:
        """Set the folder that the function is about to write to.

        The cluster is ``age_s`` seconds old: older files belong to other runs.
        """
        self._folder = Path(split_scheme(folder)[2])
        self._began_s = time.time() - _CLOCK_SKEW_S
        self._since_s = self._began_s - age_s

    def tick(self) -> None:
        """Send what has grown, now and then; called often while the function runs."""
        if time.monotonic() >= self._due_s and not self._awaits_answer:
            self._due_s = time.monotonic() + _PERIOD_S
            self._send_next()

    def settle(self) -> bool:
        """Send the rest, and return whether that is done, or has taken too long; called often after the end."""
        if self._folder is None:
            return True
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + PATIENCE_S
        if time.monotonic() < self._deadline_s and (self._awaits_answer or self._send_next()):
            return False
        self._remove_probe()
        if self._limit_bytes:
            left = [file.size - self._sent.get(file.name, 0) for file in self._files()]
            left = [size for size in left if size > 0]
            self._send(m.EventFilesSent(rank=self._rank, left_out=len(left), left_out_bytes=sum(left)))
        self._folder = None
        return True

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about the files."""
        match message:
            case m.EventFilesWanted(limit_bytes=limit, held=held):
                self._remove_probe()
                self._limit_bytes, self._sent = limit, dict(held)
            case m.EventFilesKept():
                pass
            case _:
                return
        self._awaits_answer, self._due_s = False, 0.0

    def _send_next(self) -> bool:
        """Send a message about the files, and return whether there was one to send."""
        if self._folder is None or self._limit_bytes == 0:
            return False
        files = sorted(self._files(), key=self._priority)
        if not files:
            return False
        if self._limit_bytes is None:
            self._offer(self._folder)
        elif pieces := list(self._grown(files, self._limit_bytes)):
            self._send(m.EventFilesGrown(rank=self._rank, pieces=pieces))
        else:
            return False
        self._awaits_answer = True
        return True

    def _offer(self, folder: Path) -> None:
        probe = self._probe = folder / f".tfos-probe-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):  # the driver will not see a probe, and want the files
            probe.touch(mode=0o600, exist_ok=False)
        self._send(m.EventFilesFound(rank=self._rank, probe=probe.name))

    def _priority(self, file: FoundFile) -> tuple[bool, int]:
        """Send this function's own files first, the smallest before others: files of scalars are small."""
        return file.changed_ns < self._began_s * 1e9, file.size

    def _grown(self, files: list[FoundFile], limit_bytes: int) -> Iterator[m.EventFilePiece]:
        at_once, room = _AT_ONCE_BYTES, limit_bytes - sum(self._sent.values())
        for file in files:
            offset, data = self._sent.get(file.name, 0), b""
            size = min(file.size - offset, room, at_once)
            if size > 0 and (offset or file.size <= room):  # a file that does not fit is not begun
                with contextlib.suppress(OSError):  # removed meanwhile
                    data = _read(file.path, offset, size)
            if data:
                self._sent[file.name] = offset + len(data)
                at_once, room = at_once - len(data), room - len(data)
                yield m.EventFilePiece(file.name, offset, data)

    def _remove_probe(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

    def _files(self) -> Iterator[FoundFile]:
        """Yield the event files below the folder that have changed since the cluster began."""
        assert self._folder is not None
        until_s = time.monotonic() + _SEARCH_S
        for parent, _, names in os.walk(self._folder):
            if time.monotonic() > until_s:
                return
            for name in names:
                path = Path(parent) / name
                with contextlib.suppress(OSError):
                    stat = path.lstat()
                    if "tfevents" in name and S_ISREG(stat.st_mode) and stat.st_size and stat.st_mtime >= self._since_s:
                        name_below = path.relative_to(self._folder).as_posix()
                        yield FoundFile(name_below, path, stat.st_size, stat.st_mtime_ns)


def _read(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)
