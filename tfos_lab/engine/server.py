"""The cluster's own thread in the kernel: receives messages, asks the state machines, and acts on what they return."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from tfos_lab import messages as m
from tfos_lab.core.states import RunState
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.files.output import OutputReceiver
from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.instructions import Failure, Finished, Instruction, Publish, SendTo, StartAll
from tfos_lab.engine.tensorboard.event_files import EventFileReceiver
from tfos_lab.engine.tensorboard.tunnel import Tunnel
from tfos_lab.transport.link import Listener

logger = logging.getLogger(__name__)

TICK_S = 0.2

# Builds the `Start` for a rank from the cluster spec.
MakeStart = Callable[[int, dict[str, list[str]]], m.Start]


class Server:
    """One thread (``tfos-server-<cluster>``) that owns the listener and lets one message at a time change the state.

    Other threads read the cluster state and the feed state under `lock`, and change them through `request`.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        listener: Listener,
        cluster_state: ClusterState,
        feed_state: FeedState,
        bus: Bus,
        logs: LogWriter,
        event_files: EventFileReceiver,
        output: OutputReceiver,
        make_start: MakeStart,
        on_saving: Callable[[m.SavesTo], None],
        on_executor_gone: Callable[[str], None],
    ) -> None:
        self.address = listener.address
        self.lock = threading.RLock()
        self.over = threading.Event()
        self._listener = listener
        self._cluster_state = cluster_state
        self._feed_state = feed_state
        self._bus = bus
        self._logs = logs
        self._event_files = event_files
        self._output = output
        self._make_start = make_start
        self._on_saving = on_saving
        self._on_executor_gone = on_executor_gone
        self._tunnel: Tunnel | None = None
        self._on_over: Callable[[], None] | None = None
        self._identities: dict[int, bytes] = {}
        self._log_sequences: dict[bytes, int] = {}
        self._thread = threading.Thread(target=self._serve, name=f"tfos-server-{cluster_id}", daemon=True)

    def start(self, tunnel: Tunnel | None, on_over: Callable[[], None]) -> None:
        """Begin to listen: also for the tunnel, if there is one. ``on_over`` is called at the thread's end.

        May be called twice.
        """
        with self.lock:
            if self._thread.ident is not None:
                return
            self._tunnel = tunnel
            self._on_over = on_over
            self._thread.start()

    def request(self, change: Callable[[float], list[Instruction]]) -> None:
        """Have ``change(now_s)`` made by the server's thread; what it returns is carried out. Safe from any thread."""
        self._listener.post(change)

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        last_tick_s = 0.0
        try:
            while not self.over.is_set():
                for item in self._listener.poll(TICK_S):
                    with self.lock:
                        self._take_safely(item)
                now_s = time.time()
                if now_s - last_tick_s >= TICK_S:
                    last_tick_s = now_s
                    with self.lock:
                        self._carry_out(self._cluster_state.tick(now_s))
        finally:
            self.over.set()
            if self._tunnel is not None:
                self._tunnel.close()
            self._logs.close()
            self._listener.close()
            if self._on_over is not None:
                self._on_over()

    def _take_safely(self, item: Any) -> None:
        """A fault of ours must not leave the cluster without a driver, which would look like a hang."""
        try:
            self._take(item)
        except Exception as error:
            logger.exception("the driver could not handle %r", item)
            failure = Failure("driver", type(error).__name__, str(error))
            self._carry_out(self._cluster_state.fail(failure, time.time()))

    def _take(self, item: Any) -> None:
        now_s = time.time()
        if callable(item):
            self._carry_out(item(now_s))
            return
        identity, data = item
        try:
            message = m.decode_from_agent(data)
        except msgspec.DecodeError as error:
            logger.warning("dropped a message that is none of ours: %s", error)
            return
        self._hear(identity, message, now_s)

    def _hear(self, identity: bytes, message: m.FromAgent, now_s: float) -> None:
        if isinstance(message, m.Reserve):
            self._meet(identity, message, now_s)
        elif self._identities.get(message.rank) != identity:
            # An agent of an earlier generation, or one that came too late: it has no rank here.
            self._listener.send(identity, m.encode(m.Stop(grace_s=0.0)))
            self._listener.send(identity, m.encode(m.Shutdown()))
        elif isinstance(message, m.Logs):
            self._keep_logs(identity, message)
        elif isinstance(message, m.SavesTo):
            self._on_saving(message)
        elif isinstance(message, m.ExecutorGone):
            self._on_executor_gone(self._cluster_state.views[message.rank].executor)
        else:
            self._carry_out(self._cluster_state.handle(message, now_s))
            self._carry_out(self._feed_state.handle(message, now_s))
            self._carry_out(self._event_files.handle(message))
            if isinstance(message, m.FilePiece | m.OutputOpened | m.OutputComes | m.OutputGone | m.OutputSent):
                self._carry_out(self._output.handle(message, self._cluster_state.views[message.rank], now_s))
            if self._tunnel is not None:
                self._tunnel.handle(message)

    def _meet(self, identity: bytes, message: m.Reserve, now_s: float) -> None:
        known = self._identities.get(message.rank)
        if known not in (None, identity) and not self._cluster_state.views[message.rank].state.is_replaceable:
            self._listener.send(identity, m.encode(m.Stop(grace_s=0.0)))
            self._listener.send(identity, m.encode(m.Shutdown()))
            return
        self._identities[message.rank] = identity
        if self._tunnel is not None:
            self._tunnel.handle(message)
        self._carry_out(self._cluster_state.handle(message, now_s))

    def _keep_logs(self, identity: bytes, message: m.Logs) -> None:
        if message.sequence >= self._log_sequences.get(identity, 0):
            self._log_sequences[identity] = message.sequence + 1
            node = self._cluster_state.views[message.rank].node
            for event in self._logs.write(node, message.records):
                self._bus.publish(event)
        self._listener.send(identity, m.encode(m.LogCredit(sequence=message.sequence)))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendTo(rank=rank, message=message):
                    self._send(rank, message)
                case StartAll(spec=spec):
                    for rank in list(self._identities):
                        self._send(rank, self._make_start(rank, spec))
                case Publish(event=event):
                    self._bus.publish(event)
                case Finished():
                    is_last = self._cluster_state.state is not RunState.RESTARTING
                    for event in self._output.conclude(time.time(), is_last=is_last):
                        self._bus.publish(event)
                    self.over.set()

    def _send(self, rank: int, message: m.ToAgent) -> None:
        identity = self._identities.get(rank)
        if identity is not None:
            with contextlib.suppress(OSError):
                self._listener.send(identity, m.encode(message))
