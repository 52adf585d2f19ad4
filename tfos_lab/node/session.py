"""The child's side of the conversation with its agent: says what happens, hears what comes, holds the feed.

One thread (``tfos-session``) reads; the user's function and its callbacks write. The inline launcher uses the same
class over a socket pair within the kernel.
"""

from __future__ import annotations

import os
import threading

from tfos_lab import messages as m
from tfos_lab.core.states import NodeState
from tfos_lab.node.context import NodeContext
from tfos_lab.node.feed.reader import FeedReader
from tfos_lab.transport.frames import ConnectionClosed, FrameSocket


class NodeSession:
    """What a node's function stands on: its context, its feed, and the way to the notebook."""

    def __init__(self, control: FrameSocket, start: m.Start, *, leave_when_alone: bool = True) -> None:
        self._control = control
        self._rank = start.rank
        self._lock = threading.Lock()
        self._finish = threading.Event()
        self._leave_when_alone = leave_when_alone
        self.feed = FeedReader(self._rank, self._send)
        self.context = NodeContext(start, self.feed, self._send, self._finish)
        self._reader = threading.Thread(target=self._listen, name="tfos-session", daemon=True)
        self._reader.start()

    def _send(self, message: m.FromAgent) -> None:
        with self._lock:
            try:
                self._control.send(m.encode(message))
            except (ConnectionClosed, OSError):
                self._alone()

    def _listen(self) -> None:
        try:
            while True:
                data, _ = self._control.receive()
                message = m.decode_to_agent(data)
                if isinstance(message, m.Finish):
                    self._finish.set()
                else:
                    self.feed.handle(message)
        except (ConnectionClosed, OSError):
            self._alone()

    def _alone(self) -> None:
        """The agent has gone, and with it whoever wanted this work."""
        if self._leave_when_alone:
            os._exit(113)
        self._finish.set()
        self.feed.handle(m.FeedsEnded())

    def send_running(self) -> None:
        """The user's first line is next."""
        self._send(m.Progressed(rank=self._rank, state=NodeState.RUNNING, pid=os.getpid()))

    def send_ended(self, outcome: m.Outcome) -> None:
        """The function has ended."""
        self.context.flush()
        self._send(m.Ended(rank=self._rank, outcome=outcome))

    def wait_for_finish(self) -> None:
        """Wait until the driver lets this process go."""
        while not self._finish.wait(60.0):
            pass

    def close(self) -> None:
        """End the reading thread (inline launcher only; a child simply leaves)."""
        self._control.close()
