"""The child's connection to its agent: sends the node's messages, receives the driver's, and holds the feed.

One thread (``tfos-session``) receives; the user's function and its callbacks send. The inline launcher uses the same
class over a socket pair within the kernel.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.frames import FrameSocket
from tfos_lab.core.paths import remember_default_fs
from tfos_lab.core.processes import kill_below, state_of
from tfos_lab.core.roles import Role
from tfos_lab.core.states import NodeState
from tfos_lab.node.activity.sampler import ActivitySampler
from tfos_lab.node.activity.steps import FITS
from tfos_lab.node.context.context import NodeContext
from tfos_lab.node.feed.reader import FeedReader
from tfos_lab.node.interactive import INBOX
from tfos_lab.node.lock_step import STEP_COUNT, LockStep
from tfos_lab.node.profile import start_profile
from tfos_lab.node.stacks import take_stacks

# How often a child looks at its agent, and how long that may be stopped: the driver has called the node lost by then.
_CHECK_S = 1.0
_STOPPED_S = 6.0
# Exit code of a child whose agent has ended.
_ORPHANED = 113
# How long the last messages may take that a session in the kernel is sent.
_LAST_MESSAGES_S = 5.0


class NodeSession:
    """What a node's function needs: its context, its feed, and the connection to the driver.

    This process ends with its ``agent``, unless that is part of it (None). ``port`` holds the node's port for
    TensorFlow. `finish` is set when the driver lets this process exit.
    """

    def __init__(
        self,
        control: FrameSocket,
        start: m.Start,
        scratch: Path,
        *,
        agent: AgentWatch | None = None,
        port: socket.socket | None = None,
    ) -> None:
        remember_default_fs(start.default_fs)
        self._control = control
        self._scratch = scratch
        self._lock = threading.Lock()
        self.finish = threading.Event()
        self._agent = agent
        self.feed = FeedReader(start.rank, self._send)
        self._lock_step = LockStep(start, self._send)
        self.context = NodeContext(
            start, self.feed, self._send, self.finish, port, scratch=scratch, lock_step=self._lock_step
        )
        self._activity = ActivitySampler(
            self._send,
            self.feed.count_rows,
            in_lock_step=self._lock_step.nodes > 1,
            counts_fetches=Role.PS not in start.cluster_spec,
        )
        self._receiver = threading.Thread(target=self._receive, name="tfos-session", daemon=True)
        self._receiver.start()

    def _send(self, message: m.FromAgent) -> None:
        with self._lock:
            try:
                self._control.send(m.encode(message))
            except OSError:
                self._end_orphaned()  # in the kernel, the receiving thread first takes what had come

    def _receive(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                for frame in self._control.available(_CHECK_S):
                    self._handle(m.decode_to_agent(frame.data))
                if self._agent is not None and self._agent.agent_is_gone():
                    self._agent.end_agent()
                    self._end_orphaned()
        self._end_orphaned()
        self.finish.set()
        self.feed.give_up()

    def _handle(self, message: m.ToAgent) -> None:
        if isinstance(message, m.Finish):
            self.finish.set()
        elif isinstance(message, m.StepsAgreed | m.PeerReturned):
            self._lock_step.handle(message)
        elif isinstance(message, m.StacksWanted):
            self._send(take_stacks(message.request))
        elif isinstance(message, m.ProfileWanted):
            start_profile(message, self._scratch, self._send)
        elif isinstance(message, m.RunCell | m.InterruptCell):
            INBOX.handle(message)
        else:
            self.feed.handle(message)

    def _end_orphaned(self) -> None:
        """End a child whose agent has ended: nobody is left who wants the result."""
        if self._agent is not None:
            kill_below(os.getpid())
            os._exit(_ORPHANED)

    def send_running(self) -> None:
        """Report that the user's function starts now."""
        self._send(m.Progressed(state=NodeState.RUNNING, pid=os.getpid()))
        self._activity.start()

    def send_ended(self, outcome: m.Outcome) -> None:
        """Report how the function ended."""
        self._activity.stop()
        self.context._report_rate.flush()  # noqa: SLF001 - users see no such method
        self.feed.flush()
        self._lock_step.close()
        outcome = msgspec.structs.replace(
            outcome,
            steps=STEP_COUNT.steps,
            dataset_ended=STEP_COUNT.ended,
            stopped_after=FITS.stopped_after,
            keeps_rows=FITS.keeps_rows,
        )
        self._send(m.Ended(outcome=outcome))

    def close(self) -> None:
        """End the receiving thread, which takes what has been sent by now (inline only; a child simply exits)."""
        self._control.end_receiving()
        self._receiver.join(_LAST_MESSAGES_S)
        self._control.close()


class AgentWatch:
    """Watches an agent; for one thread, which asks at least once a second.

    A pause in which this process did not run counts for two seconds at most: a host that sleeps, a container that is
    frozen or a function that holds the interpreter's lock says nothing about the agent. Neither does a debugger that
    holds the agent at a breakpoint.

    ``pid`` is 0 if the agent is not known.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._checked_at = time.monotonic()
        self._stopped_s = 0.0

    def agent_is_gone(self) -> bool:
        """Whether the agent has ended, or has been stopped for too long."""
        now = time.monotonic()
        passed_s = now - self._checked_at
        if passed_s < _CHECK_S or not self._pid:
            return False
        self._checked_at = now
        state = state_of(self._pid)
        self._stopped_s = self._stopped_s + min(passed_s, 2 * _CHECK_S) if state == "T" else 0.0
        return state in ("", "Z", "X") or self._stopped_s >= _STOPPED_S

    def end_agent(self) -> None:
        """Have an agent that is stopped go on and end: it sends its node's output first."""
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGTERM)
            os.kill(self._pid, signal.SIGCONT)
