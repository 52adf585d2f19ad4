"""Sends a large result to the driver before the end of its function is reported: a run that is done has its results.

It works in the agent's poll loop. The driver has so many nodes send at a time, and the others wait for their turn; all
of them go on with their heartbeats and logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tfos_lab import messages as m
from tfos_lab.errors import ResultNotStored
from tfos_lab.node.files.found import FoundFile
from tfos_lab.node.files.sender import FileSender

NAME = "result"
# Offers, and answers, may be lost.
_REPEAT_S = 2.0


class ResultSender:
    """One node's result.

    Parameters
    ----------
    rank : int
        The node's rank, for its messages.
    scratch : Path
        The agent's own folder, where the child has written the file.
    send : callable
        Sends a message to the driver.
    """

    def __init__(self, rank: int, scratch: Path, send: Callable[[m.FromAgent], None]) -> None:
        self._rank = rank
        self._path = scratch / NAME
        self._send = send
        self._sender = FileSender(rank, NAME, send)
        self._outcome: m.Outcome | None = None
        self._is_wanted = False
        self._offered_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a result is on its way."""
        return self._outcome is not None

    def report(self, outcome: m.Outcome) -> None:
        """Tell the driver how the function has ended, after its result if that is large."""
        if outcome.stored_bytes:
            self._outcome = outcome
            self.work()
        else:
            self._send(m.Ended(rank=self._rank, outcome=outcome))

    def work(self) -> None:
        """Offer or send the result; called often."""
        if self._outcome is None:
            return
        if not self._is_wanted:
            self._offer(self._outcome.stored_bytes)
            return
        self._sender.send_due()
        if self._sender.is_idle:
            self._finish(*self._sender.refused.values())

    def _offer(self, size_bytes: int) -> None:
        if time.monotonic() - self._offered_at > _REPEAT_S:
            self._offered_at = time.monotonic()
            self._send(m.ResultOffered(rank=self._rank, size_bytes=size_bytes))

    def handle(self, message: m.ToAgent) -> None:
        """Handle the driver's message about the result."""
        self._sender.handle(message)
        if not isinstance(message, m.ResultWanted) or self._outcome is None or self._is_wanted:
            return
        if message.problem:
            self._end(m.Outcome(kind="raised", error=ResultNotStored.__name__, message=message.problem))
        elif self._moves_to(message):
            self._end(self._outcome)
        else:
            self._begin(Path(message.path).name)

    def _moves_to(self, wanted: m.ResultWanted) -> bool:
        """Move the file to where the driver wants it, if this host sees that folder on the same disk."""
        try:
            if wanted.probe and Path(wanted.probe).exists():
                self._path.rename(wanted.path)
                return True
        except OSError:
            pass
        return False

    def _begin(self, name: str) -> None:
        self._is_wanted = True
        try:
            stat = self._path.lstat()
        except OSError as error:
            self._finish(error.strerror or str(error))
            return
        self._sender.add([FoundFile(name, self._path, stat.st_size, stat.st_mtime_ns)])
        self.work()

    def _finish(self, problem: str = "") -> None:
        assert self._outcome is not None
        outcome = self._outcome
        if problem:
            message = f"the result ({outcome.stored_bytes / 1e6:,.1f} MB) could not be sent to the notebook: {problem}"
            outcome = m.Outcome(kind="raised", error="ResultNotSendable", message=message)
        self._end(outcome)

    def _end(self, outcome: m.Outcome) -> None:
        assert self._outcome is not None
        steps = {"steps": self._outcome.steps, "dataset_ended": self._outcome.dataset_ended}
        self._outcome = None
        self._path.unlink(missing_ok=True)
        self._send(m.Ended(rank=self._rank, outcome=msgspec.structs.replace(outcome, **steps)))

    def stop(self) -> None:
        """Send no more of it: the cluster is stopped."""
        if self._outcome is not None:
            self._end(m.Outcome(kind="stopped"))
