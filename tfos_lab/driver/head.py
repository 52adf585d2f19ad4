"""One start of all nodes of a cluster, on the driver's side: their connections, their state, and what it asks for.

A cluster has one head, and another for each restart after a lost node: with new keys, a new state, and nothing of the
old one but its files. One thread does everything, one message at a time; whatever else wants to change something asks
it to (`Head.request`). What follows from a message is decided by the state machines, which have no sockets, threads or
clocks; the head does what they ask for.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.logs import read_log
from tfos_lab.driver.output import saving_note
from tfos_lab.driver.state.cluster_state import ClusterState
from tfos_lab.driver.state.events import NodeView, rank_of
from tfos_lab.driver.state.feed_state import FeedState
from tfos_lab.driver.state.hangs import Hangs, UnreadWatch
from tfos_lab.driver.state.instructions import (
    Fail,
    Failure,
    Finished,
    Instruction,
    Overdue,
    Publish,
    SendTo,
    StartAll,
)
from tfos_lab.driver.state.questions import Questions, Wanted
from tfos_lab.errors import ClusterEnded, FeedError, NodeFailed, ReservationTimeout, TfosError
from tfos_lab.launchers.gpus import shortage, uneven

if TYPE_CHECKING:
    from tfos_lab.core.listener import AgentData
    from tfos_lab.driver.cluster import Cluster

logger = logging.getLogger(__name__)

TICK_S = 0.2
# A larger function, with its arguments, is asked for piece by piece: every node is sent a start message at once, whose
# copies wait for the network.
INLINE_BYTES = 1 << 15
# Once the first cause of a failure is known, how the other nodes end is waited for this long.
LAST_ERRORS_S = 1.0
# Of what a node has sent, in the error that it causes.
_MAX_TEXT = 300
_LOG_TAIL_LINES = 20
# A child answers for its stacks at once, or its agent asks it with a signal after this share of the time.
_SIGNAL_AFTER = 0.4
_LONGEST_PATIENCE_S = 2.0
# What each node sends several times a second does not concern the feed state.
_FIGURES = frozenset({m.Reported, m.Activity, m.Logs})

_T = TypeVar("_T")


class HeadLost(Exception):
    """A node was lost while somebody worked with these nodes, and others are started in their place."""


class Head:
    """The nodes of one start. Safe to use from any thread: read the states under `lock`, change them with `request`.

    Its ``number`` is 0 for the first start, and one more for each restart. ``over`` is set when these nodes will send
    nothing more. They have been given so many of the cluster's ``feeds``, and have ``caught_up`` if that is all that
    those before them had. ``launch_error`` is the first error with which the launcher gave up.
    """

    def __init__(self, cluster: Cluster, number: int) -> None:
        config = cluster.config
        self.cluster = cluster
        self.number = number
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        self.over = threading.Event()
        self.launch_error: TfosError | None = None
        self.feeds = 0
        self.caught_up = number == 0
        self.state = ClusterState(
            cluster.node_specs,
            grace_s=config.grace,
            needs_evaluator=cluster.needs_evaluator,
            restarts=cluster.restarts,
            starts_when_asked=cluster.launcher.runs_inline,
        )
        fed = {spec.rank: spec.node for spec in cluster.node_specs if spec.role.trains}
        self.feed_state = FeedState(fed, lock_step=config.num_ps == 0, resumes=number > 0)
        # A function in the kernel is watched by its user, who may be at a breakpoint.
        hang_s = 0.0 if cluster.launcher.runs_inline else config.hang_timeout
        fails = config.on_hang == "fail"
        self._questions = Questions()
        self._hangs = Hangs(self.state, self.feed_state, self._questions, timeout_s=hang_s, fails=fails)
        self._unread = UnreadWatch(self.state, self.feed_state, self._questions, warn_s=hang_s)
        # Each rank's connection, ended or not; the rank of each that has not.
        self._connections: dict[int, int] = {}
        self._ranks: dict[int, int] = {}
        self._refused: set[int] = set()
        self._thread: threading.Thread | None = None
        self._listener = cluster.make_listener(*cluster.hosts, len(cluster.node_specs))
        self.address: m.DriverAddress = self._listener.address
        try:
            self.launcher = cluster.make_launcher(self)
        except BaseException:
            self._listener.close()
            raise

    # ---- for other threads ------------------------------------------------------------------------------------------

    def listen(self) -> None:
        """Start to receive what the nodes send (thread ``tfos-server-<cluster>``); may be called twice."""
        with self.lock:
            if self._thread is None:
                name = f"tfos-server-{self.cluster.id}"
                self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._thread.start()

    def request(self, change: Callable[[float], list[Instruction]]) -> None:
        """Have the thread call ``change(now_s)`` and do what it returns; does not wait for that."""
        self._listener.post(change)

    def ask(self, ranks: AbstractSet[int], message: Wanted, timeout_s: float) -> dict[int, Any]:
        """Ask nodes, wait, and return what those answer that do so in time, by rank; none once all is over."""
        told: list[dict[int, Any]] = []

        def tell(answers: dict[int, Any], _now_s: float) -> list[Instruction]:
            told.append(answers)
            return []

        if ranks:
            self.request(lambda now_s: self._questions.ask(ranks, message, now_s + timeout_s, tell))
        self.wait_for(lambda: told or not ranks or self.over.is_set())
        return told[0] if told else {}

    def wait_for(self, look: Callable[[], _T], timeout_s: float | None = None) -> _T:
        """Wait until ``look``, which is called under `lock`, returns something, or for so long; return that."""
        with self.lock:
            return self._changed.wait_for(look, timeout_s)

    def await_rows(
        self, look: Callable[[], _T], limit_s: float = math.inf, *, asked: str = "feed rows", moving: bool = False
    ) -> _T | None:
        """Wait until ``look`` returns something, and return that; None once the `Patience` for it is over.

        That ends ``limit_s`` after now, or if they are ``moving`` after rows have moved. Raises as `check` does, and
        ClusterEnded if all is done, which says what was ``asked``.
        """
        with self.lock:
            patience = self.feed_state.patience(limit_s, rows=moving)
            self.wait_for(lambda: look() or patience.is_over or self.state.state.is_ending)
            if (seen := look()) or patience.is_over:
                return seen or None
        self.check(asked)
        raise ClusterEnded(cluster=self.cluster.name, state=self.state.state, asked=asked)

    def check(self, asked: str = "feed rows") -> None:
        """Raise if nodes have failed, are started again (`HeadLost`), or were stopped."""
        state = self.state.state
        if state is RunState.RESTARTING:
            raise HeadLost(self.state.reason)
        if state is RunState.FAILED:
            raise self.cluster.failure()
        if state.stop_requested:
            raise ClusterEnded(cluster=self.cluster.name, state=state, asked=asked)

    def ask_for_stacks(self, ranks: AbstractSet[int], timeout_s: float) -> dict[int, m.Stacks]:
        """Ask nodes where their threads are; the agent of a child that does not answer asks it with a signal."""
        patience_s = min(_LONGEST_PATIENCE_S, timeout_s * _SIGNAL_AFTER)
        return self.ask(ranks, m.StacksWanted(request=0, patience_s=patience_s), timeout_s)

    def stacks_of(self, node: str | None, timeout_s: float) -> dict[str, str]:
        """Return the stacks of a node, or of all, as text by name, or why there are none; KeyError for no such node."""
        with self.lock:
            views = self.state.views
        chosen = [rank_of(views, node)] if node is not None else list(range(len(views)))
        asked_s = time.monotonic()
        answers = self.ask_for_stacks({rank for rank in chosen if views[rank].state.is_present}, timeout_s)
        waited_s = time.monotonic() - asked_s
        return {views[rank].name: _stacks_text(views[rank], answers.get(rank), waited_s) for rank in chosen}

    @property
    def is_at_work(self) -> bool:
        """Whether a thread hears the nodes; in a process that was forked from this one, none does."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread's end."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    def fail(self, failure: Failure) -> None:
        """End the nodes for a reason that none of them has reported."""
        self.request(lambda now_s: self.state.fail(failure, now_s))

    def await_ends(self) -> None:
        """After a failure, wait a moment until it is known how all nodes have ended, for what is shown of them."""
        self.over.wait(LAST_ERRORS_S)

    def fail_launch(self, error: TfosError | None, reason: str) -> None:
        """End the nodes because they cannot be started, or because Spark took them away."""
        self.launch_error = self.launch_error or error
        self.fail(Failure("launcher", "LaunchFailed", reason))

    def lose(self, rank: int, why: str) -> None:
        """Record that a node's agent is gone."""
        self.request(lambda now_s: self.state.lose_agent(rank, why, now_s))

    def lose_executor(self, executor: str, why: str) -> None:
        """Record that an executor is gone, and all nodes on it."""
        with self.lock:
            ranks = [rank for rank, view in enumerate(self.state.views) if view.executor == executor]
        for rank in ranks:
            self.lose(rank, why)
        if not ranks:
            self.fail(Failure("launcher", "LaunchFailed", why, gone=True))

    def executors_cut_off(self) -> set[str]:
        """Return the executors of nodes that have not ended, and whose connections have."""
        with self.lock:
            return self.state.executors_cut_off

    def missing(self) -> list[str]:
        """Return the nodes that have not reserved, by name."""
        with self.lock:
            return self.state.missing

    def free_slots(self) -> None:
        """Have all agents give their Spark task slots back."""
        everyone = tuple(range(self.state.size))
        self.request(lambda _now_s: [SendTo(everyone, m.FreeSlot())])

    def await_start(self, limit_s: float) -> None:
        """Have the nodes fail if they do not run within so many seconds from now."""
        self.request(lambda _now_s: self.state.await_start(limit_s))

    def _on_overdue(self, waited_s: float) -> None:
        # Spark is asked for a hint, which may take a while.
        name = f"tfos-overdue-{self.cluster.id}"
        threading.Thread(target=self._fail_overdue, args=(waited_s,), name=name, daemon=True).start()

    def _fail_overdue(self, waited_s: float) -> None:
        hint = self.launcher.hint()
        with self.lock:
            missing, views = self.state.missing, self.state.views
        late = [view.name for view in views if view.state.is_present and not view.state.is_up]
        error = ReservationTimeout(
            reserved=len(views) - len(missing),
            wanted=len(views),
            waited_s=waited_s,
            missing=missing or late,
            hint=hint,
        )
        self.fail_launch(error, str(error))

    def failure(self) -> TfosError | None:
        """Return the error that says why the nodes failed, or None if they did not."""
        if self.launch_error is not None:
            return self.launch_error
        with self.lock:
            causes = self.state.causes
            failure, also, consequences = causes.first, list(causes.also), dict(causes.consequences)
        if failure is None:
            return None
        if self.feed_state.missed == failure.message:
            return FeedError(reason=failure.message)
        is_of_node = ":" in failure.node
        return NodeFailed(
            node=failure.node,
            kind=failure.kind,
            message=failure.message,
            traceback=failure.traceback,
            also=also,
            consequences=consequences,
            log_tail=read_log(self.cluster.files.log(failure.node), _LOG_TAIL_LINES) if is_of_node else "",
        )

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        # Behind is who has not read all that had come at any moment since the last tick. One such moment is enough, as
        # whoever had sent something by then has been heard.
        last_tick_s, is_behind = 0.0, True
        try:
            while not self.over.is_set():
                for item in self._listener.poll(TICK_S):
                    if self.over.is_set():
                        break  # what follows would begin transfers that nobody ends
                    with self.lock:
                        self._take(item)
                is_behind = is_behind and self._listener.is_behind
                with self.lock:
                    if time.monotonic() - last_tick_s >= TICK_S:  # whatever the clock is set to
                        last_tick_s = time.monotonic()
                        self._tick(time.time(), behind=is_behind)
                        is_behind = True
                    self._changed.notify_all()
        except Exception as error:  # a bug: nobody would hear the nodes any more
            logger.exception("the driver of %s could not go on", self.cluster.id)
            failure, now_s = Failure("driver", type(error).__name__, str(error)), time.time()
            with self.lock:
                self._do([*self.state.fail(failure, now_s), *self.state.give_up(now_s)])
        finally:
            self.over.set()
            with self.lock:
                self._changed.notify_all()
            self.cluster.log_writer.close()
            self._listener.close()
            self.launcher.close()
            self.cluster.on_over(self)

    def _tick(self, now_s: float, *, behind: bool) -> None:
        self._do(self.state.tick(now_s, behind=behind))
        self.feed_state.tick(self.state.attended_s)
        for machine in (self._questions, self._hangs, self._unread):
            self._do(machine.tick(now_s))

    def _take(self, item: Any) -> None:
        """Take a request or an agent's message; an error of our own fails the nodes, which would otherwise hang."""
        try:
            if callable(item):
                self._do(item(time.time()))
            else:
                self._take_data(item)
        except Exception as error:
            logger.exception("the driver could not handle %r", item)
            self._do(self.state.fail(Failure("driver", type(error).__name__, str(error)), time.time()))

    # ---- what agents send -------------------------------------------------------------------------------------------

    def _take_data(self, item: AgentData) -> None:
        """Handle an agent's message; one that no agent sends ends its sender."""
        connection, data = item
        if data is None:
            if (rank := self._ranks.pop(connection, None)) is not None:
                self._do(self.state.disconnect(rank, time.time()))
            return
        if connection in self._refused:
            return
        try:
            message = m.decode_from_agent(data)
        except msgspec.DecodeError as error:
            self._refuse(connection, f"a message that cannot be decoded ({error})")
            return
        try:
            self._admit(connection, message)
        except Exception as error:
            logger.exception("a message of connection %s cannot be handled", connection)
            self._refuse(connection, f"{type(message).__name__} ({type(error).__name__}: {error})")

    def _refuse(self, connection: int, what: str) -> None:
        logger.warning("connection %s was refused; it had sent %s", connection, what)
        rank = self._ranks.get(connection)
        if rank is None:
            self._send_away(connection)
            return
        self._refused.add(connection)
        self._do(self.state.refuse(rank, what[:_MAX_TEXT], time.time()))

    def _send_away(self, connection: int) -> None:
        """End an agent whose rank is another's."""
        self._listener.send(connection, m.encode(m.Stop(grace_s=0.0)))
        self._listener.send(connection, m.encode(m.Shutdown()))

    def _admit(self, connection: int, message: m.FromAgent) -> None:
        """Handle a message of an agent that has its rank, or may have it from now on."""
        rank = self._ranks.get(connection)
        if isinstance(message, m.Reserve):
            may_reserve = rank is None and 0 <= message.rank < self.state.size
            wrong = "" if may_reserve else f"of rank {message.rank}"
        elif rank is None:
            self._send_away(connection)  # an agent of an earlier start, or one that came too late
            return
        else:
            msgspec.structs.force_setattr(message, "rank", rank)
            wrong = _wrong_with(message, self.state.state, self.feed_state)
        if wrong:
            self._refuse(connection, f"{type(message).__name__} ({wrong})")
        elif isinstance(message, m.Reserve):
            self._reserve(connection, message)
        else:
            self._handle(connection, message, time.time())

    def _reserve(self, connection: int, message: m.Reserve) -> None:
        if not self.state.may_replace(message.rank):
            self._send_away(connection)
            return
        self._ranks.pop(self._connections.get(message.rank, connection), None)
        self._connections[message.rank] = connection
        self._ranks[connection] = message.rank
        self._do(self.state.handle(message, time.time()))

    def _handle(  # noqa: C901 - one case for each kind
        self, connection: int, message: m.FromAgent, now_s: float
    ) -> None:
        cluster, view = self.cluster, self.state.view_of(message.rank)
        match message:
            case m.Logs():
                self.state.record_logs(message.rank, now_s)
                cluster.bus.publish(*cluster.log_writer.write(view.name, message.records))
                self._listener.send(connection, m.encode(m.LogCredit()))
                return
            case m.SavesTo():
                if note := saving_note(message, view):
                    cluster.history.add_note(note)
                return
            case m.Shown():
                cluster.shown.take(message, view.name)
                return
            case m.ExecutorGone():
                self.state.expect_loss()
                self.launcher.on_executor_end(view.executor)
                return
        if type(message) not in _FIGURES:
            # First, as functions that have read nothing have failed, and are not done.
            self._do(self.feed_state.handle(message, now_s))
        if isinstance(message, m.OutputSettled):
            # First, too: it may be the last word of all, after which what has not come counts as lost.
            self._do(cluster.output.handle(message, view))
        self._do(self.state.handle(message, now_s))
        match message:
            case m.PayloadWanted(rank=rank, offset=offset):
                piece = cluster.payload[offset : offset + m.PIECE_BYTES]
                self._do([SendTo(rank, m.PayloadPiece(offset, piece))])
            case m.Stacks() | m.Profiled():
                self._do(self._questions.handle(message, now_s))
            case m.CellWrote() | m.CellEnded():
                cluster.cells.handle(message)
            case m.FilesListed() | m.FilePiece() | m.EventFilesPut() | m.Ended():
                self._do(cluster.output.handle(message, view))

    # ---- what the state machines ask for ----------------------------------------------------------------------------

    def _do(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case SendTo():
                    self._send(instruction.each, instruction.message)
                case StartAll(spec=spec):
                    self._start_all(spec)
                case Publish(event=event):
                    self.cluster.bus.publish(event)
                case Fail(failure=failure):
                    self._do(self.state.fail(failure, time.time()))
                case Overdue(waited_s=waited_s):
                    self._on_overdue(waited_s)
                case Finished():
                    self.cluster.output.conclude(is_last=self.state.state is not RunState.RESTARTING)
                    self.over.set()

    def _send(self, ranks: Iterable[int], message: m.ToAgent) -> None:
        connections = [self._connections[rank] for rank in ranks if rank in self._connections]
        self._listener.send_to_all(connections, m.encode(message))

    def _start_all(self, spec: dict[str, list[str]]) -> None:
        """Send all start messages, unless nodes have too few GPUs; where these are merely uneven, a note reports it."""
        config, node_specs, views = self.cluster.config, self.cluster.node_specs, self.state.views
        if note := uneven(config, node_specs, views):
            self.cluster.history.add_note(note)
        if (lack := shortage(config, node_specs, views)) is not None:
            self.fail_launch(lack, str(lack))
            return
        self.cluster.history.mark_released(time.time())
        for rank in list(self._connections):
            self._send((rank,), self._start_of(rank, spec))
        if self.feed_state.ended:
            self._send(self._connections, m.FeedsEnded())

    def _start_of(self, rank: int, cluster_spec: dict[str, list[str]]) -> m.Start:
        cluster, config, files = self.cluster, self.cluster.config, self.cluster.files
        spec = cluster.node_specs[rank]
        is_chief = self.state.view_of(rank).is_chief
        is_large = len(cluster.payload) > INLINE_BYTES
        return m.Start(
            rank=rank,
            cluster_spec=cluster_spec,
            job_name=spec.job_name,
            task_index=spec.task_index,
            is_chief=is_chief,
            env=cluster.stores.env,
            payload=b"" if is_large else cluster.payload,
            payload_bytes=len(cluster.payload) if is_large else 0,
            log_dir=files.log_dir,
            events_dir=files.event_home,
            events_probe=cluster.output.event_probe,
            backup_dir=files.backup if config.restarts else "",
            default_fs=cluster.stores.default_fs,
            working_dir=cluster.working_dir,
            grace_s=config.grace,
            stop_on_nan=config.on_nan == "stop",
            restart=self.number,
            age_s=max(0.0, time.time() - cluster.called_s),
            output_dir=str(cluster.output.folder_of(spec.node, is_chief=is_chief) or ""),
            output_probe=str(cluster.output.probe),
            result_path=str(files.result(spec.node)),
        )


def _stacks_text(view: NodeView, answer: m.Stacks | None, waited_s: float) -> str:
    if answer is not None:
        return answer.text
    if not view.state.is_present:
        return f"it has no process: its state is {view.state}"
    return f"its agent has not answered within {waited_s:.1f} s"


# ---- what no node sends ----------------------------------------------------------------------------------------------

# Decoding has checked what the types of `tfos_lab.core.messages` say. The rest is looked at here, before the states see
# it: whether it is too early, whether feeds exist and are the sender's, whether what is shown is well-formed.

# Steps that one message may have ahead.
_MOST_STEPS = 1 << 20
_STATES = frozenset({NodeState.IMPORTING, NodeState.STARTING, NodeState.RUNNING, NodeState.SERVING})
_BEFORE_START = frozenset({RunState.LAUNCHING, RunState.RESERVING})
_PNG = b"\x89PNG\r\n\x1a\n"


def _wrong_with(message: m.FromAgent, state: RunState, feeds: FeedState) -> str:  # noqa: C901 - one case for each kind
    """Return why no node sends this in such a state of the cluster, or ""; its rank is the sender's own."""
    match message:
        case (
            m.Progressed(state=NodeState.RUNNING | NodeState.SERVING) | m.Ended(outcome=m.Outcome(kind="returned"))
        ) if state in _BEFORE_START:
            return "before the node was started"
        case m.Progressed(state=node_state) if node_state not in _STATES:
            return f"the state {node_state}"
        case m.Shown(content=content):
            return _wrong_with_shown(content)
        case m.StepsAhead(runs=runs) if sum(steps for steps, _ in runs) > _MOST_STEPS:
            return "a false number of steps"
        case m.RowsTaken(feeds=taken) if any(feeds.feed(number) is None for number in taken):
            return "a feed that does not exist"
        case m.InferenceReady(rank=rank) if not feeds.has_asked_to_answer(rank):
            return "without having been asked"
        case m.FeedReady() | m.AttemptStored() | m.FilesFound() | m.FeedRead():
            feed = feeds.feed(message.feed)
            if feed is None:
                return f"feed {message.feed} does not exist"
            if message.rank not in feed.names:
                return f"feed {message.feed} is not the node's"
            if isinstance(message, m.AttemptStored) and message.leftover >= len(feed.names):
                return f"{message.leftover} leftover rows"
    return ""


def _wrong_with_shown(content: m.Picture | m.Table | m.Matrix | m.Unshown) -> str:
    size = len(msgspec.msgpack.encode(content))
    if size > m.SHOWN_BYTES:
        return f"{size:,} bytes"
    match content:
        case m.Picture(png=png) if not png.startswith(_PNG):
            return "a picture that is no PNG"
        case m.Table(columns=columns, rows=rows) if any(len(row) != len(columns) for row in rows):
            return "a row without some cells"
        case m.Matrix(labels=labels, counts=counts) if {len(counts), *map(len, counts)} - {len(labels)}:
            return "a matrix that is not square"
    return ""
