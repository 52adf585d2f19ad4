"""The seam: the driver's real dispatcher and state machines, without a thread, sockets and a clock of their own.

All that the simulation knows of them stands here. Whatever takes their place needs another `Head`, and nothing else.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from unittest import mock

from tests.simulation.plan import GRACE_S, Plan
from tests.simulation.world import World
from tfos_lab import messages as m
from tfos_lab.core.states import RunState
from tfos_lab.engine import server as server_module
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.cells import Cells
from tfos_lab.engine.files.output import OutputReceiver
from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.server import Server
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.events import Event, NodeView
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.hangs import Hangs
from tfos_lab.engine.state.instructions import Failure, Instruction
from tfos_lab.engine.state.restart_budget import RestartBudget
from tfos_lab.engine.state.unread import UnreadWatch
from tfos_lab.engine.tensorboard.event_files import EventFileReceiver

HANG_TIMEOUT_S = 20.0
# Messages that are read before the driver turns to what is due.
_AT_ONCE = 200

Change = Callable[[float], list[Instruction]]


class Kernel:
    """The process that everything of the driver runs in.

    Attributes
    ----------
    paused_until_s : float
        Until then it does nothing, and what comes waits.
    is_gone : bool
        Whether it was killed.
    """

    def __init__(self, world: World) -> None:
        self.paused_until_s = 0.0
        self.is_gone = False
        self._world = world
        self._waiting: deque[Callable[[], object]] = deque()

    @property
    def is_paused(self) -> bool:
        """Whether it does nothing now."""
        return self._world.now_s < self.paused_until_s

    def call(self, act: Callable[[], object]) -> None:
        """Do what another thread of it does now, or as soon as it goes on."""
        if not self.is_paused:
            self._waiting.append(act)
            self._go_on()
        elif self._waiting:
            self._waiting.append(act)
        else:
            self._waiting.append(act)
            self._world.at(self.paused_until_s - self._world.now_s + self._world.between(0.0, 0.01), self._go_on)

    def _go_on(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for act in waiting:
            if not self.is_gone:
                self.call(act) if self.is_paused else act()


class KernelGone(BaseException):
    """The kernel was killed."""


class Mailbox:
    """In the place of the driver's listener: while the driver waits for messages, the world goes on."""

    def __init__(self, world: World, kernel: Kernel, send: Callable[[bytes, bytes], None]) -> None:
        self.address = None
        self.is_behind = False
        self.send = send
        self.is_closed = False
        self._world = world
        self._kernel = kernel
        self._posted: deque[Change] = deque()
        self._data: deque[tuple[bytes, bytes]] = deque()

    def post(self, item: Change) -> None:
        """Have the driver call something."""
        self._posted.append(item)

    def arrive(self, item: tuple[bytes, bytes]) -> None:
        """A message has come."""
        if not self.is_closed:
            self._data.append(item)

    def poll(self, timeout_s: float) -> Iterator[object]:
        """Yield what has come within the timeout, in the listener's order."""
        self._world.wait(self._world.now_s + timeout_s, self._has_work)
        while self._kernel.is_paused and not self._kernel.is_gone:
            # Its threads go on in any order.
            going_on_s = self._kernel.paused_until_s + self._world.between(0.0, 0.01)
            self._world.wait(going_on_s, lambda: self._kernel.is_gone)
        if self._kernel.is_gone:
            raise KernelGone
        for _ in range(min(len(self._data), _AT_ONCE)):
            yield self._data.popleft()
        while self._posted:
            yield self._posted.popleft()
        self.is_behind = bool(self._data)

    def _has_work(self) -> bool:
        return bool(self._posted or self._data) or self._kernel.is_paused or self._kernel.is_gone

    def send_to_all(self, identities: Iterable[bytes], data: bytes) -> None:
        """Send the same to several agents."""
        for identity in identities:
            self.send(identity, data)

    def close(self) -> None:
        """Take nothing more."""
        self.is_closed = True


class Budget(RestartBudget):
    """How often nodes may be started again, shared by all heads of a run."""


class Head:
    """One start of all nodes.

    Parameters
    ----------
    number : int
        0 for the first one.
    send : callable
        Sends bytes to an agent, by its identity.
    publish : callable
        Called with each event.
    """

    def __init__(
        self,
        plan: Plan,
        number: int,
        budget: Budget,
        *,
        world: World,
        kernel: Kernel,
        send: Callable[[bytes, bytes], None],
        publish: Callable[[Event], None],
    ) -> None:
        self.number = number
        self._world = world
        self._mailbox = Mailbox(world, kernel, send)
        self._cluster = cluster = ClusterState(plan.specs, grace_s=GRACE_S, restarts=budget)
        trainers = {spec.rank: spec.node for spec in plan.specs if spec.role.is_fed}
        self.feeds = feeds = FeedState(trainers, lock_step=not plan.ps, resumes=number > 0)
        folder = _folder()
        self._server = Server(
            cluster_id="simulated",
            listener=self._mailbox,
            cluster_state=cluster,
            feed_state=feeds,
            hangs=Hangs(cluster, lambda: feeds.with_rows, timeout_s=HANG_TIMEOUT_S, fails=plan.hang_fails),
            unread=UnreadWatch(cluster, feeds, warn_s=HANG_TIMEOUT_S),
            bus=Bus(lambda *events: [publish(event) for event in events]),
            logs=LogWriter(folder, _ignore),
            event_files=EventFileReceiver(folder.event_home, folder.events, _ignore),
            output=_output(),
            cells=Cells(),
            make_start=lambda rank, spec: _start(plan, rank, spec, number),
            on_saving=_ignore,
        )
        self.arrive = self._mailbox.arrive
        self.post = self._mailbox.post

    def serve(self, on_executor_gone: Callable[[str], None]) -> None:
        """Be the driver until the nodes have ended, or the kernel is killed."""
        with mock.patch.object(server_module, "time", self._world), contextlib.suppress(KernelGone):
            self._server._serve(on_executor_gone, lambda: None)

    # ---- what can be seen -------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come from the nodes."""
        return self._server.over.is_set()

    @property
    def state(self) -> RunState:
        """The state of the nodes as a whole."""
        return self._cluster.state

    @property
    def reason(self) -> str:
        """Why they are in that state."""
        return self._cluster.reason

    @property
    def cause(self) -> Failure | None:
        """Why they failed."""
        return self._cluster.causes.first

    @property
    def views(self) -> tuple[NodeView, ...]:
        """The nodes."""
        return self._cluster.views

    @property
    def missing(self) -> list[str]:
        """The nodes that have not reserved."""
        return self._cluster.missing

    # ---- what others ask for ----------------------------------------------------------------------------------------

    def lose(self, rank: int, why: str) -> None:
        """A node's agent is gone."""
        self.post(lambda now_s: self._cluster.lose(rank, why, now_s))

    def lose_executor(self, executor: str, why: str) -> None:
        """An executor is gone, with all nodes on it."""
        for rank, view in enumerate(self.views):
            if view.executor == executor:
                self.lose(rank, why)

    def fail(self, failure: Failure) -> None:
        """Fail for what no node has reported."""
        self.post(lambda now_s: self._cluster.fail(failure, now_s))

    def fail_feed(self, number: int, reason: str) -> None:
        """Drop a feed, and fail for it."""
        failure = Failure("feed", "FeedError", reason)
        self.post(lambda now_s: [*self.feeds.abort(number, reason), *self._cluster.fail(failure, now_s)])

    def stop(self, grace_s: float) -> None:
        """End all nodes: the user wants it."""
        self.post(lambda now_s: self._cluster.stop(now_s, grace_s=grace_s))

    def give_up(self) -> None:
        """Wait for no node any longer."""
        self.post(self._cluster.give_up)

    def abandon(self) -> None:
        """Start no other nodes in the place of these, which are over."""
        for instruction in self._cluster.abandon(self._world.now_s):
            self._server._carry_out([instruction])

    def free_slots(self) -> None:
        """Have all agents give their Spark task slots back."""
        ranks = range(len(self.views))
        self.post(lambda _now_s: [server_module.SendTo(rank, m.FreeSlot()) for rank in ranks])


def _ignore(*_: object) -> None:
    """Take no notice."""


@functools.cache
def _place() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tfos-simulation-")


@functools.cache
def _folder() -> RunDir:
    """Return the folder of all runs of this process: they write nothing into it."""
    return RunDir(Path(_place().name))


@functools.cache
def _output() -> OutputReceiver:
    return OutputReceiver(_folder(), limit_bytes=0, of_all=False)


def _start(plan: Plan, rank: int, cluster_spec: dict[str, list[str]], number: int) -> m.Start:
    spec = plan.specs[rank]
    return m.Start(
        cluster_id="simulated",
        rank=rank,
        cluster_spec=cluster_spec,
        job_name=spec.job_name,
        task_index=spec.task_index,
        is_chief=spec.role.leads,
        payload=b"",
        env={},
        log_dir="",
        grace_s=GRACE_S,
        restart=number,
    )
