"""The chief's event files on their way to the driver, where it does not see the folder that they were written to.

After a restart, those of the nodes before come too, where this host sees them: the chief before may have been killed.
Works inside the agent's poll loop when the child has ended. Takes a bounded time: what is too much stays where it is.
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
from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.node.files.sender import FileSender, FoundFile

# The driver waits some seconds longer for a node that has ended.
PATIENCE_S = 5.0
# A folder that many runs share may be large, and the agent has other things to do.
_LOOK_S = 1.0
# Clocks of file servers are not quite the host's.
_CLOCKS_DIFFER_S = 5.0


class EventFiles:
    """The event files that this node's function has written; none where no folder is named.

    Parameters
    ----------
    rank : int
        The node's rank, which its messages bear.
    send : callable
        Says something to the driver.
    """

    def __init__(self, rank: int, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._send = send
        self._folder: Path | None = None
        self._since_s = self._began_s = 0.0
        self._found: list[FoundFile] = []
        self._sender = FileSender(rank, "events", send)
        self._probe: Path | None = None
        self._until = 0.0
        self._under_way = False
        self._begun = False
        self._over = False

    def look_in(self, log_dir: str, age_s: float = 0.0) -> None:
        """The function begins, and will write to this folder, as other nodes of its cluster may have done.

        The cluster is ``age_s`` seconds old: what is older is of other runs.
        """
        if is_local(log_dir):  # else every machine sees it
            self._folder = Path(split_scheme(log_dir)[2])
            self._began_s = time.time() - _CLOCKS_DIFFER_S
            self._since_s = self._began_s - age_s

    def settle(self) -> bool:
        """Offer the files, send them if they are wanted, and return whether that is over; called often."""
        if not self._begun:
            self._begun = True
            self._offer()
        if self._under_way:
            self._go_on()
        if not self._over and time.monotonic() > self._until:
            self._end()
        return self._over

    def handle(self, message: m.ToAgent) -> None:
        """Take in what the driver says about them."""
        match message:
            case m.EventFilesWanted(limit_bytes=limit) if not self._over:
                self._remove_probe()
                if limit:
                    self._under_way = True
                    self._sender.add(self._that_have_room(limit))
                else:
                    self._over = True
            case m.FileCredit() | m.FileKept():
                self._sender.handle(message)

    def _offer(self) -> None:
        if self._folder is not None:
            self._found = sorted(_event_files(self._folder, self._since_s), key=self._place_in_row)
        if self._folder is None or not self._found:
            self._over = True
            return
        probe = self._probe = self._folder / f".tfos-probe-{secrets.token_hex(8)}"
        with contextlib.suppress(OSError):  # the driver will not see it, and takes what is brought
            probe.touch(mode=0o600, exist_ok=False)
        self._until = time.monotonic() + PATIENCE_S
        self._send(m.EventFilesFound(rank=self._rank, probe=probe.name))

    def _place_in_row(self, file: FoundFile) -> tuple[bool, int]:
        """This function's own files go first, and of them the smallest: the scalars of a run are small."""
        return file.changed_ns < self._began_s * 1e9, file.size

    def _that_have_room(self, limit: int) -> Iterator[FoundFile]:
        for file in self._found:
            if file.size <= limit:
                limit -= file.size
                yield file

    def _go_on(self) -> None:
        self._sender.go_on()
        if self._sender.is_idle:
            self._end()

    def _end(self) -> None:
        """Say that nothing more comes."""
        self._remove_probe()
        self._over, self._under_way = True, False
        left_out = [file.size for file in self._found if file.name not in self._sender.kept]
        self._send(m.EventFilesSent(rank=self._rank, left_out=len(left_out), left_out_bytes=sum(left_out)))

    def _remove_probe(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)


def _event_files(folder: Path, since_s: float) -> Iterator[FoundFile]:
    """Yield the event files below a folder that were changed since then."""
    until = time.monotonic() + _LOOK_S
    for place, _, names in os.walk(folder):
        if time.monotonic() > until:
            return
        for name in names:
            path = Path(place) / name
            with contextlib.suppress(OSError):
                stat = path.lstat()
                if "tfevents" in name and S_ISREG(stat.st_mode) and stat.st_size and stat.st_mtime >= since_s:
                    yield FoundFile(path.relative_to(folder).as_posix(), path, stat.st_size, stat.st_mtime_ns)
