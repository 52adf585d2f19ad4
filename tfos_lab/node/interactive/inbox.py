"""Where a node's cells arrive: the session's thread puts them here, the main thread takes and runs them."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import TYPE_CHECKING

from tfos_lab.core import messages as m

if TYPE_CHECKING:
    from types import FrameType


class CellInbox:
    """The cells that wait for this process, and the interrupt of the one that runs."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[m.RunCell] = SimpleQueue()
        self._interrupted: set[int] = set()
        self._running: int | None = None

    def handle(self, message: m.RunCell | m.InterruptCell) -> None:
        """Apply the driver's message; called by the thread that receives."""
        if isinstance(message, m.RunCell):
            self._waiting.put(message)
            return
        self._interrupted.add(message.cell)
        if self._running == message.cell:
            # A signal, as from a keyboard: it also ends what waits in a system call, such as time.sleep.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def take(self) -> m.RunCell:
        """Wait for the next cell."""
        return self._waiting.get()

    @contextlib.contextmanager
    def running(self, cell: int) -> Iterator[None]:
        """Have an interrupt of this cell raise KeyboardInterrupt in the block, which the main thread runs.

        Interrupts are ignored from then on, until the next cell: one may have been sent just before the cell ended.
        """
        signal.signal(signal.SIGINT, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        try:
            self._running = cell
            if cell in self._interrupted:
                raise KeyboardInterrupt
            yield
        finally:
            try:
                self._running = None
            finally:  # also where it has come just before that
                self._running = None

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._running is not None:
            raise KeyboardInterrupt


INBOX = CellInbox()
