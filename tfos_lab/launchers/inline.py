"""The `inline` launcher: a cluster of one in this very process, for breakpoints, ``%debug`` and plain stack traces.

A small agent thread exchanges the same messages with the server as a real agent does. The user's function runs inside
`Cluster.wait`, on the calling thread, which raises its exceptions unchanged.
"""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core import messages as m
from tfos_lab.core.frames import FrameSocket, frame_pair
from tfos_lab.core.poll_loop import PollLoop
from tfos_lab.errors import LaunchFailed
from tfos_lab.launchers.base import Launcher
from tfos_lab.node.activity.reporter import ActivityReporter
from tfos_lab.node.driver_link import DriverLink
from tfos_lab.node.feed.store import FeedStore
from tfos_lab.node.files.remote_log import RemoteLog
from tfos_lab.node.invoke import call_map_fun, returned_outcome
from tfos_lab.node.profile import trace_piece
from tfos_lab.node.remote_files import register_file_systems
from tfos_lab.node.scratch import Scratch
from tfos_lab.node.session import NodeSession
from tfos_lab.node.traceback_text import format_remote

if TYPE_CHECKING:
    from tfos_lab.driver.head import Head

# How often whoever waits for the start looks whether it was given up.
_LOOK_S = 0.1


@contextmanager
def _environment(added: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process for a block."""
    before = dict(os.environ)
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in added.keys() & before.keys()})


class InlineLauncher(Launcher):
    """One rank, taken by this process itself."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._started = threading.Event()
        self._session: NodeSession | None = None
        self._has_run = False
        self._cancelled = False
        self._agent = _InlineAgent(head, self._on_start)

    def _on_start(self, start: m.Start, session_end: FrameSocket, scratch: Path) -> None:
        self._session = NodeSession(session_end, start, scratch)
        self._started.set()

    def launch(self) -> None:
        """Start the agent thread."""
        register_file_systems()
        self._agent.thread.start()

    def run_here(self) -> None:
        """Run the function now, on this thread; its exceptions are raised here, unwrapped."""
        while not self._started.wait(_LOOK_S) and not self._head.over.is_set():
            pass
        if self._has_run or self._cancelled or self._session is None:
            return
        self._has_run = True
        map_fun, args = self._cluster.call
        session = self._session
        session.context.args = args
        session.send_running()
        try:
            with _environment(self._cluster.config.env):
                value = call_map_fun(map_fun, args, session.context)
        except BaseException as error:
            name, message, _ = format_remote(error)
            session.send_ended(m.Outcome(kind="raised", error=name, message=message))
            raise
        outcome = returned_outcome(value, implicit=bool(getattr(map_fun, "__tfos_implicit__", False)))
        session.send_ended(outcome)
        if outcome.kind == "raised":
            raise LaunchFailed(reason=outcome.message)

    def cancel(self) -> None:
        """Keep the function from running, if it has not begun."""
        self._cancelled = True
        self._started.set()

    def close(self) -> None:
        """End the agent thread; may be called twice."""
        self._agent.close()
        if self._session is not None:
            self._session.close()


class _InlineAgent:
    """Does for the kernel what `tfos_lab.node.agent` does for a child: the same messages, without process and log."""

    def __init__(self, head: Head, on_start: Callable[[m.Start, FrameSocket, Path], None]) -> None:
        self._on_start = on_start
        # A function that holds the interpreter's lock is no reason to end the kernel.
        self._driver = DriverLink(head.address, hung_after_s=math.inf)
        self._scratch = Scratch(head.cluster.id, 0)
        self._control, theirs = frame_pair()
        self._theirs: socket.socket = theirs
        self._feeds = FeedStore("127.0.0.1", self._scratch.path, self._driver.tell, self._send_to_session)
        self._activity = ActivityReporter(self._driver.tell, group=False)
        self._remote_log = RemoteLog(self._scratch.path, self._driver.tell)
        self._is_draining = False
        self._leaving = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"tfos-inline-{head.cluster.id}", daemon=True)

    def _run(self) -> None:
        try:
            loop = PollLoop()
            loop.watch(self._driver, self._on_driver)
            loop.watch(self._control, lambda: self._relay(loop))
            loop.watch(self._feeds.fileno(), self._feeds.pump)
            self._driver.reserve(m.Reserve(rank=0, host=socket.gethostname(), address="localhost:0", pid=os.getpid(),
                                 executor="this kernel", gpus=[]))  # fmt: skip
            while not self._leaving.is_set() and not self._driver.is_over:
                loop.watch_writing(self._driver, wanted=self._driver.has_unsent)
                loop.turn(200)
                self._driver.spooled_bytes = self._feeds.spooled_bytes
                self._activity.tick()
                if self._is_draining and self._remote_log.settle():
                    self._is_draining = False
                    self._driver.tell(m.Drained())
        finally:
            self._feeds.close()
            self._control.close()
            self._driver.close()
            self._scratch.remove()

    def _on_driver(self) -> None:
        for message in self._driver.messages():
            match message:
                case m.Start():
                    start = self._remote_log.prepare(message, {})
                    self._on_start(start, FrameSocket(self._theirs), self._scratch.path)
                case m.Stop():
                    self._driver.tell(m.Ended(outcome=m.Outcome(kind="stopped")))
                    self._is_draining = True
                case m.StacksWanted() | m.ProfileWanted():
                    self._send_to_session(message)
                case m.PieceWanted():
                    self._driver.tell(trace_piece(message, self._scratch.path))
                case m.Finish():
                    self._send_to_session(message)
                    self._is_draining = True
                case m.Shutdown():
                    self._leaving.set()
                case m.DriverHeartbeat() | m.LogCredit() | m.FreeSlot():
                    pass
                case _:
                    self._feeds.handle(message)

    def _relay(self, loop: PollLoop) -> None:
        try:
            for data, _ in self._control.available():
                message = m.decode_from_agent(data)
                self._activity.take(message)
                if isinstance(message, m.Ended):
                    self._activity.end()
                if not isinstance(message, m.Activity) and self._feeds.on_child_message(message):
                    self._driver.tell(message)
        except OSError:
            loop.unwatch(self._control)

    def _send_to_session(self, message: m.ToAgent) -> None:
        try:
            self._control.send(m.encode(message))
        except OSError:
            return

    def close(self) -> None:
        """End the thread; may be called twice."""
        self._leaving.set()
        if self.thread.is_alive():
            self.thread.join(3.0)
