"""The driver's thread for one generation: passes messages to the state machines, and acts on what they return."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from tfos_lab import messages as m
from tfos_lab.core.states import RunState
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.cells import Cells
from tfos_lab.engine.files.output import OutputReceiver
from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.payloads import PayloadSender
from tfos_lab.engine.profile.profiles import Profiles
from tfos_lab.engine.stacks import StackAnswers
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.events import NodeView
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.hangs import Hangs
from tfos_lab.engine.state.instructions import (
    Failure,
    Finished,
    Instruction,
    Publish,
    PublishAll,
    SendTo,
    SendToAll,
    StartAll,
)
from tfos_lab.engine.state.silence import Backlog
from tfos_lab.engine.state.unread import UnreadWatch
from tfos_lab.engine.state.wrong_messages import WrongMessage, check
from tfos_lab.engine.tensorboard.event_files import EventFileReceiver
from tfos_lab.node.stand_in import SUFFIX as STAND_IN
from tfos_lab.transport.listener import AgentData, Listener

logger = logging.getLogger(__name__)

TICK_S = 0.2
# The addresses of more nodes are sent once encoded, for all of them.
_MANY_NODES = 64
# Of what a node has sent, in the error that it causes.
_MAX_TEXT = 300
# What each node sends several times a second does not concern the feed state.
_FIGURES = frozenset({m.Reported, m.Activity, m.Logs})

# Builds the `Start` for a rank from the cluster spec.
MakeStart = Callable[[int, dict[str, list[str]]], m.Start]


class Server:
    """One thread (``tfos-server-<cluster>``) that owns the listener and handles one message at a time.

    Other threads read the cluster state and the feed state under `lock`, and change them through `request`.

    Attributes
    ----------
    address : DriverAddress
        Where the nodes reach it, and the keys.
    lock : threading.RLock
        Held while the state changes.
    over : threading.Event
        Set when the generation has ended and nothing more will come.
    stacks : StackAnswers
        What nodes answer when they are asked for their stacks.
    profiles : Profiles
        What they answer when they are profiled.
    """

    def __init__(
        self,
        *,
        cluster_id: str,
        listener: Listener,
        cluster_state: ClusterState,
        feed_state: FeedState,
        hangs: Hangs,
        unread: UnreadWatch,
        bus: Bus,
        logs: LogWriter,
        event_files: EventFileReceiver,
        output: OutputReceiver,
        cells: Cells,
        make_start: MakeStart,
        on_saving: Callable[[m.SavesTo, NodeView], None],
        payload: PayloadSender | None = None,
    ) -> None:
        self.address = listener.address
        self.lock = threading.RLock()
        self.over = threading.Event()
        self._listener = listener
        self._cluster_state = cluster_state
        self._feed_state = feed_state
        self._hangs = hangs
        self._unread = unread
        self.stacks = StackAnswers(self.request, self.over)
        self.profiles = Profiles(self.request, self.over)
        self._bus = bus
        self._logs = logs
        self._event_files = event_files
        self._output = output
        self._make_start = make_start
        self._on_saving = on_saving
        self._payload = payload or PayloadSender(b"")
        self._cells = cells
        self._identities: dict[int, bytes] = {}
        self._ranks: dict[bytes, int] = {}
        self._replaced: set[tuple[bytes, str]] = set()
        self._refused: set[bytes] = set()
        self._log_sequences: dict[bytes, int] = {}
        self._name = f"tfos-server-{cluster_id}"
        self._thread: threading.Thread | None = None

    def start(self, *, on_executor_gone: Callable[[str], None], on_over: Callable[[], None]) -> None:
        """Start the thread; may be called twice.

        ``on_executor_gone`` is called with the executor that an agent has seen end, ``on_over`` at the thread's end.
        """
        with self.lock:
            if self._thread is None:
                args = (on_executor_gone, on_over)
                self._thread = threading.Thread(target=self._serve, args=args, name=self._name, daemon=True)
                self._thread.start()

    def request(self, change: Callable[[float], list[Instruction]]) -> None:
        """Have the thread call ``change(now_s)`` and carry out what it returns. Safe from any thread."""
        self._listener.post(change)

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _serve(self, on_executor_gone: Callable[[str], None], on_over: Callable[[], None]) -> None:
        last_tick_s, backlog = 0.0, Backlog()
        try:
            while not self.over.is_set():
                for item in self._listener.poll(TICK_S):
                    with self.lock:
                        self._handle_safely(item, on_executor_gone)
                backlog.note(is_behind=self._listener.is_behind)
                if time.monotonic() - last_tick_s >= TICK_S:  # whatever the clock is set to
                    last_tick_s, now_s = time.monotonic(), time.time()
                    with self.lock:
                        self._carry_out(self._cluster_state.tick(now_s, behind=backlog.take()))
                        self._carry_out(self._feed_state.tick(now_s))
                        self._carry_out(self._hangs.tick(now_s))
                        self._carry_out(self._unread.tick(now_s))
        finally:
            self.over.set()
            self._logs.close()
            self._listener.close()
            on_over()

    def _handle_safely(self, item: Any, on_executor_gone: Callable[[str], None]) -> None:
        """Handle an item; an error of our own fails the cluster, which would otherwise hang without a driver."""
        try:
            if callable(item):
                self._carry_out(item(time.time()))
            else:
                self._handle(item, on_executor_gone)
        except Exception as error:
            logger.exception("the driver could not handle %r", item)
            failure = Failure("driver", type(error).__name__, str(error))
            self._carry_out(self._cluster_state.fail(failure, time.time()))

    def _handle(self, item: AgentData, on_executor_gone: Callable[[str], None]) -> None:
        """Handle an agent's message; one that no agent sends ends its sender."""
        identity, data = item[0].removesuffix(STAND_IN), item[1]
        if identity in self._refused:
            return
        try:
            message = m.decode_from_agent(data)
        except msgspec.DecodeError as error:
            self._refuse(identity, f"a message that cannot be decoded ({error})")
            return
        try:
            self._dispatch(identity, message, on_executor_gone)
        except WrongMessage as error:
            self._refuse(identity, str(error))
        except Exception as error:
            logger.exception("a message of %r cannot be handled", identity)
            self._refuse(identity, f"{type(message).__name__} ({type(error).__name__}: {error})")

    def _refuse(self, identity: bytes, what: str) -> None:
        logger.warning("%r was refused; it had sent %s", identity, what)
        rank = self._ranks.get(identity)
        if rank is None:
            self._send_away(identity)
            return
        self._refused.add(identity)
        self._carry_out(self._cluster_state.refuse(rank, what[:_MAX_TEXT], time.time()))

    def _check_sender(self, identity: bytes, message: m.FromAgent) -> None:
        """Raise `WrongMessage` if a node gives another's rank for its own, or one that does not exist."""
        if not 0 <= message.rank < self._cluster_state.size:
            raise WrongMessage(f"{type(message).__name__} (there is no rank {message.rank})")
        if identity in self._ranks:
            raise WrongMessage(f"{type(message).__name__} (in the name of rank {message.rank})")

    def _dispatch(self, identity: bytes, message: m.FromAgent, on_executor_gone: Callable[[str], None]) -> None:
        now_s = time.time()
        is_known = self._identities.get(message.rank) == identity
        if not is_known:
            self._check_sender(identity, message)
        check(message, self._cluster_state.state, self._feed_state)
        if isinstance(message, m.Reserve):
            self._on_reserve(identity, message, now_s)
        elif not is_known:
            self._send_away(identity)  # an agent of an earlier generation, or one that came too late
        elif isinstance(message, m.Figures):  # most are
            self._on_figures(identity, message, now_s)
        elif isinstance(message, m.Logs):
            self._cluster_state.record_logs(message.rank, now_s)
            self._on_logs(identity, message)
        elif isinstance(message, m.SavesTo):
            self._on_saving(message, self._cluster_state.view_of(message.rank))
        elif isinstance(message, m.ExecutorGone):
            self._cluster_state.expect_loss(now_s)
            on_executor_gone(self._cluster_state.view_of(message.rank).executor)
        else:
            self._on_message(message, now_s)

    def _on_figures(self, identity: bytes, message: m.Figures, now_s: float) -> None:
        self._carry_out(self._cluster_state.handle(message, now_s))
        for told in message.told:
            if type(told) not in _FIGURES:
                self._carry_out(self._feed_state.handle(told, now_s))
        if logs := [told for told in message.told if isinstance(told, m.Logs)]:
            self._on_logs(identity, *logs)

    def _on_message(self, message: m.FromAgent, now_s: float) -> None:
        self._carry_out(self._cluster_state.handle(message, now_s))
        if type(message) in _FIGURES:
            return
        self._carry_out(self._feed_state.handle(message, now_s))
        self._carry_out(self._event_files.handle(message))
        if isinstance(message, m.PayloadWanted):
            self._carry_out(self._payload.handle(message, now_s))
        if isinstance(message, m.Stacks):
            self._carry_out(self._hangs.handle(message, now_s))
            self._carry_out(self._unread.handle(message, now_s))
            self.stacks.take(message)
        elif isinstance(message, m.Profiled | m.ProfilePiece):
            self.profiles.take(message)
        if isinstance(message, m.FilePiece | m.OutputOpened | m.OutputComes | m.OutputGone | m.OutputSent):
            self._carry_out(self._output.handle(message, self._cluster_state.view_of(message.rank), now_s))
        if isinstance(message, m.FilePiece | m.ResultOffered | m.Ended):
            node = self._cluster_state.view_of(message.rank).node
            self._carry_out(self._output.results.handle(message, node, now_s))
        if isinstance(message, m.CellWrote | m.CellEnded):
            self._cells.handle(message)

    def _on_reserve(self, identity: bytes, message: m.Reserve, now_s: float) -> None:
        known, view = self._identities.get(message.rank), self._cluster_state.view_of(message.rank)
        if known == identity and view.address == message.address:  # it has not heard yet that it has the rank
            self._on_message(m.Heartbeat(message.rank), now_s)
            return
        is_late = known not in (None, identity) and not view.state.is_replaceable
        if is_late or (identity, message.address) in self._replaced:
            self._send_away(identity)
            return
        if known is not None:
            del self._ranks[known]
            self._replaced.add((known, view.address))
        self._identities[message.rank] = identity
        self._ranks[identity] = message.rank
        self._carry_out(self._cluster_state.handle(message, now_s))

    def _send_away(self, identity: bytes) -> None:
        """End an agent whose rank is another's."""
        self._listener.send(identity, m.encode(m.Stop(grace_s=0.0)))
        self._listener.send(identity, m.encode(m.Shutdown()))

    def _on_logs(self, identity: bytes, *batches: m.Logs) -> None:
        """Store batches of a node's log that have come together, and give credit for all of them."""
        records = []
        for batch in batches:
            if batch.sequence >= self._log_sequences.get(identity, 0):
                self._log_sequences[identity] = batch.sequence + 1
                records += batch.records
        if records:
            node = self._cluster_state.view_of(batches[0].rank).node
            self._bus.publish(*self._logs.write(node, records))
        self._listener.send(identity, m.encode(m.LogCredit(sequence=batches[-1].sequence)))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendTo(rank=rank, message=message):
                    self._send(rank, message)
                case SendToAll(ranks=ranks, message=message):
                    self._send_to_all(ranks, message)
                case StartAll(spec=spec):
                    self._start_all(spec)
                case PublishAll(events=events):
                    self._bus.publish(*events)
                case Publish(event=event):
                    self._bus.publish(event)
                case Finished():
                    is_last = self._cluster_state.state is not RunState.RESTARTING
                    for event in self._output.conclude(time.time(), is_last=is_last):
                        self._bus.publish(event)
                    self.over.set()

    def _start_all(self, spec: dict[str, list[str]]) -> None:
        """Send all start messages; those of many nodes do not each contain the addresses of all."""
        if len(self._identities) > _MANY_NODES:
            self._send_to_all(self._identities, m.ClusterSpec.of(spec))
            spec = {}
        for rank in list(self._identities):
            self._send(rank, self._make_start(rank, spec))
        if self._feed_state.ended:
            self._send_to_all(self._identities, m.FeedsEnded())

    def _send_to_all(self, ranks: Iterable[int], message: m.ToAgent) -> None:
        data = m.encode(message)
        identities = [self._identities[rank] for rank in ranks if rank in self._identities]
        self._listener.send_to_all(identities, data)

    def _send(self, rank: int, message: m.ToAgent) -> None:
        identity = self._identities.get(rank)
        if identity is not None:
            with contextlib.suppress(OSError):
                self._listener.send(identity, m.encode(message))
