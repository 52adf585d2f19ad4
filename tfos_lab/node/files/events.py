"""The chief's event files, for a driver that does not see the folder they are written to; it fetches what they grow by.

After a restart, those of the earlier nodes are listed too, if this host sees them: an earlier chief may have been
killed before they were fetched. It works in the agent's poll loop, and takes a bounded time after the function's end:
what is more stays where it is.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from tfos_lab.core import messages as m
from tfos_lab.core.paths import split_scheme
from tfos_lab.node.files.listed import ListedFolder, files_in

# TensorBoard looks for new lines about as often.
_PERIOD_S = 2.0
# Less than the driver waits for a node that has ended.
PATIENCE_S = 5.0
# The search is bounded: a folder that many runs share may be large, and the agent has other work.
_SEARCH_S = 1.0
# Clocks of file servers differ from the host's.
_CLOCK_SKEW_S = 5.0


class NodeEventFiles:
    """The event files that this node's function writes; none unless a folder is given."""

    def __init__(self, send: Callable[[m.FromAgent], None]) -> None:
        self._listed = ListedFolder("events", send)
        self._folder: Path | None = None
        self._since_s = self._began_s = 0.0
        self._probe: Path | None = None
        self._due_s = 0.0
        self._deadline_s: float | None = None

    def set_folder(self, folder: str, age_s: float) -> None:
        """Set the folder that the function is about to write to.

        The cluster is ``age_s`` seconds old: older files belong to other runs.
        """
        self._folder = Path(split_scheme(folder)[2])
        self._began_s = time.time() - _CLOCK_SKEW_S
        self._since_s = self._began_s - age_s

    def tick(self) -> None:
        """List what has grown, now and then; called often while the function runs."""
        if self._listed.is_answered and not self._listed.is_last and time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + _PERIOD_S
            self._list()

    def settle(self) -> bool:
        """List the rest, and return whether it is fetched, or has taken too long; called often after the end."""
        if self._folder is None:
            return True
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + PATIENCE_S
        if time.monotonic() < self._deadline_s:
            if self._listed.is_answered and not self._listed.is_last:
                self._list(last=True)
            if not self._listed.is_answered:
                return False
        self._end()
        return True

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about the files."""
        taken = self._listed.handle(message)
        if taken is None:
            return
        self._remove_probe()
        if taken.sees:
            self._end()

    def _end(self) -> None:
        self._remove_probe()
        self._folder = None

    def _list(self, *, last: bool = False) -> None:
        if self._folder is None:
            return
        since_ns, began_ns = self._since_s * 1e9, self._began_s * 1e9
        found = files_in(self._folder, patience_s=_SEARCH_S)[0].values()
        # Those that have changed since the cluster began.
        files = [file for file in found if "tfevents" in file.path.name and file.size and file.changed_ns >= since_ns]
        # This function's own files first, the smallest before others: files of scalars are small.
        files.sort(key=lambda file: (file.changed_ns < began_ns, file.size))
        if not files or (not last and {file.name: file for file in files} == self._listed.files):
            return
        if not self._listed.files:
            self._probe = self._folder / f".tfos-probe-{secrets.token_hex(8)}"
            with contextlib.suppress(OSError):  # the driver will not see a probe, and want the files
                self._probe.touch(mode=0o600, exist_ok=False)
        self._listed.list(files, last=last, probe=self._probe.name if self._probe else "")

    def _remove_probe(self) -> None:
        probe, self._probe = self._probe, None
        if probe is not None:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)
