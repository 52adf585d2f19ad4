"""Sends the chief's event files to a driver that does not see the folder they were written to.

After a restart, those of the earlier nodes are sent too, if this host sees them: an earlier chief may have been killed
before it could send. It works in the agent's poll loop after the child's end, and takes a bounded time: files beyond
the limits stay where they are.
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
from tfos_lab.node.files.sender import FileSender

# Less than the driver waits for a node that has ended.
PATIENCE_S = 5.0
# The search is bounded: a folder that many runs share may be large, and the agent must send heartbeats.
_SEARCH_S = 1.0
# Clocks of file servers differ from the host's.
_CLOCK_SKEW_S = 5.0


class EventFileSender:
    """Sends the event files that this node's function has written; none unless a folder is given.

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
        self._found: list[FoundFile] = []
        self._sender = FileSender(rank, "events", send)
        self._probe: Path | None = None
        self._deadline = 0.0
        self._is_sending = False
        self._has_offered = False
        self._is_done = False

    def set_folder(self, folder: str, age_s: float = 0.0) -> None:
        """Set the folder that the function is about to write to.

        The cluster is ``age_s`` seconds old: older files belong to other runs.
        """
        self._folder = Path(split_scheme(folder)[2])
        self._began_s = time.time() - _CLOCK_SKEW_S
        self._since_s = self._began_s - age_s

    def settle(self) -> bool:
        """Offer the files, send them if the driver wants them, and return whether that is done; called often."""
        if not self._has_offered:
            self._has_offered = True
            self._offer()
        if self._is_sending:
            self._continue()
        if not self._is_done and time.monotonic() > self._deadline:
            self._end()
        return self._is_done

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about the files."""
        match message:
            case m.EventFilesWanted(limit_bytes=limit) if not self._is_done:
                self._remove_probe()
                if limit:
                    self._is_sending = True
                    self._sender.add(self._files_within(limit))
                else:
                    self._is_done = True
            case m.FileCredit() | m.FileKept():
                self._sender.handle(message)

    def _offer(self) -> None:
        if self._folder is not None:
            self._found = sorted(_event_files(self._folder, self._since_s), key=self._priority)
        if self._folder is None or not self._found:
            self._is_done = True
            return
        probe = self._probe = self._folder / f".tfos-probe-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):  # the driver will not see a probe, and want the files
            probe.touch(mode=0o600, exist_ok=False)
        self._deadline = time.monotonic() + PATIENCE_S
        self._send(m.EventFilesFound(rank=self._rank, probe=probe.name))

    def _priority(self, file: FoundFile) -> tuple[bool, int]:
        """Send this function's own files first, the smallest before others: files of scalars are small."""
        return file.changed_ns < self._began_s * 1e9, file.size

    def _files_within(self, limit: int) -> Iterator[FoundFile]:
        for file in self._found:
            if file.size <= limit:
                limit -= file.size
                yield file

    def _continue(self) -> None:
        self._sender.send_due()
        if self._sender.is_idle:
            self._end()

    def _end(self) -> None:
        """Report that no more files are sent."""
        self._remove_probe()
        self._is_done, self._is_sending = True, False
        left_out = [file.size for file in self._found if file.name not in self._sender.kept]
        self._send(m.EventFilesSent(rank=self._rank, left_out=len(left_out), left_out_bytes=sum(left_out)))

    def _remove_probe(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)


def _event_files(folder: Path, since_s: float) -> Iterator[FoundFile]:
    """Yield the event files below a folder that have changed since ``since_s``."""
    until = time.monotonic() + _SEARCH_S
    for parent, _, names in os.walk(folder):
        if time.monotonic() > until:
            return
        for name in names:
            path = Path(parent) / name
            with contextlib.suppress(OSError):
                stat = path.lstat()
                if "tfevents" in name and S_ISREG(stat.st_mode) and stat.st_size and stat.st_mtime >= since_s:
                    yield FoundFile(path.relative_to(folder).as_posix(), path, stat.st_size, stat.st_mtime_ns)
