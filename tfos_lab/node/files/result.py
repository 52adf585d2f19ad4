"""Has the driver fetch a large result before the end of its function is reported: a run that is done has its results.

It works in the agent's poll loop, which goes on with heartbeats and logs. A node that sees the run's folder moves the
file there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.errors import ResultNotStored
from tfos_lab.node.files.listed import FoundFile, ListedFolder
from tfos_lab.node.files.output import is_shared

NAME = "result"


class NodeResult:
    """One node's result; if it is large, the child has written it to a file of the agent's own folder."""

    def __init__(self, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
        self._path = scratch / NAME
        self._send = send
        self._listed = ListedFolder(NAME, send)
        self._home = self._probe = ""
        self._outcome: m.Outcome | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a result is on its way."""
        return self._outcome is not None

    def prepare(self, start: m.Start) -> None:
        """Take from the start message where the result belongs."""
        self._home, self._probe = start.result_path, start.output_probe

    def report(self, outcome: m.Outcome) -> None:
        """Tell the driver how the function has ended, after its result if that is large."""
        self._outcome = outcome
        if not outcome.stored_bytes or self._moves_home():
            self._end(outcome)
            return
        try:
            stat = self._path.lstat()
        except OSError as error:
            self._refuse(str(error))
            return
        name = Path(self._home).name
        self._listed.list([FoundFile(name, self._path, stat.st_size, stat.st_mtime_ns)], last=True)

    def _moves_home(self) -> bool:
        """Move the file to where the driver wants it, if this host sees that folder on the same disk."""
        with contextlib.suppress(OSError):
            if is_shared(self._probe):
                Path(self._home).parent.mkdir(mode=0o700, exist_ok=True)
                self._path.rename(self._home)
                return True
        return False

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about the result."""
        taken = self._listed.handle(message)
        if taken is None or self._outcome is None:
            return
        if taken.problem:
            self._refuse(taken.problem)
        else:
            self._end(self._outcome)

    def _refuse(self, problem: str) -> None:
        self._end(m.Outcome(kind="raised", error=ResultNotStored.__name__, message=problem))

    def _end(self, outcome: m.Outcome) -> None:
        assert self._outcome is not None
        steps = {"steps": self._outcome.steps, "dataset_ended": self._outcome.dataset_ended}
        self._outcome = None
        self._path.unlink(missing_ok=True)
        self._send(m.Ended(outcome=msgspec.structs.replace(outcome, **steps)))

    def stop(self) -> None:
        """Have no more of it fetched: the cluster is stopped."""
        if self._outcome is not None:
            self._end(m.Outcome(kind="stopped"))
