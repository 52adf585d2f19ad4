"""The seam: the driver's real dispatcher and state machines, without a thread, sockets and a clock of their own.

All that the simulation knows of them stands here. Whatever takes their place needs another `Head`, and nothing else.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from tests.simulation.plan import Plan
from tests.simulation.world import World
from tfos_lab import Cluster, ClusterConfig
from tfos_lab.core.config import assign_roles
from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.driver import head as driver
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.cluster_state import RestartBudget
from tfos_lab.driver.state.events import Event, NodeView
from tfos_lab.driver.state.instructions import Failure, Instruction

# Messages that are read before the driver turns to what is due.
_AT_ONCE = 200

Change = Callable[[float], list[Instruction]]


class Kernel:
    """The process that everything of the driver runs in; while it is paused it does nothing, and what comes waits."""

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
        self._waiting: deque[Change | tuple[bytes, bytes | None]] = deque()

    def post(self, item: Change) -> None:
        """Have the driver call something."""
        self._waiting.append(item)

    def arrive(self, item: tuple[bytes, bytes | None]) -> None:
        """A message has come."""
        if not self.is_closed:
            self._waiting.append(item)

    def poll(self, timeout_s: float) -> Iterator[object]:
        """Yield what has come within the timeout, in the listener's order."""
        self._world.wait(self._world.now_s + timeout_s, self._has_work)
        while self._kernel.is_paused and not self._kernel.is_gone:
            # Its threads go on in any order.
            going_on_s = self._kernel.paused_until_s + self._world.between(0.0, 0.01)
            self._world.wait(going_on_s, lambda: self._kernel.is_gone)
        if self._kernel.is_gone:
            raise KernelGone
        for _ in range(min(len(self._waiting), _AT_ONCE)):
            yield self._waiting.popleft()
        self.is_behind = bool(self._waiting)

    def _has_work(self) -> bool:
        return bool(self._waiting) or self._kernel.is_paused or self._kernel.is_gone

    def send_to_all(self, identities: Iterable[bytes], data: bytes) -> None:
        """Send the same to several agents."""
        for identity in identities:
            self.send(identity, data)

    def close(self) -> None:
        """Take nothing more."""
        self.is_closed = True


class Head(driver.Head):
    """One start of all nodes: the driver's own, with a mailbox for its listener and no thread of its own.

    The first one has ``number`` 0. ``send`` sends bytes to an agent, by its identity; ``publish`` is called with each
    event, and ``on_executor_gone`` with the executor that an agent has seen end.
    """

    def __init__(
        self,
        plan: Plan,
        number: int,
        restarts: RestartBudget,
        *,
        world: World,
        kernel: Kernel,
        send: Callable[[bytes, bytes], None],
        publish: Callable[[Event], None],
        on_executor_gone: Callable[[str], None],
    ) -> None:
        self._world = world
        self._mailbox = Mailbox(world, kernel, send)
        launcher = SimpleNamespace(close=_ignore, hint=str, on_executor_end=on_executor_gone)
        cluster = copy.copy(_cluster())
        vars(cluster).update(
            config=plan.config,
            node_specs=plan.specs,
            restarts=restarts,
            bus=SimpleNamespace(publish=lambda *events: [publish(event) for event in events]),
            make_listener=lambda *_: self._mailbox,
            make_launcher=lambda _head: launcher,
            on_over=_ignore,
        )
        super().__init__(cluster, number)
        self.arrive = self._mailbox.arrive

    def serve(self) -> None:
        """Be the driver until the nodes have ended, or the kernel is killed."""
        with mock.patch.object(driver, "time", self._world), contextlib.suppress(KernelGone):
            self._serve()

    def _on_overdue(self, waited_s: float) -> None:
        self._fail_overdue(waited_s)  # at once, on this very thread

    # ---- what can be seen -------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come from the nodes."""
        return self.over.is_set()

    @property
    def cause(self) -> Failure | None:
        """Why they failed."""
        return self.state.causes.first

    @property
    def views(self) -> tuple[NodeView, ...]:
        return self.state.views

    # ---- what others ask for ----------------------------------------------------------------------------------------

    def fail_feed(self, number: int, reason: str) -> None:
        """Drop a feed, and fail for it."""
        failure = Failure("feed", "FeedError", reason)
        self.request(lambda now_s: [*self.feed_state.abort(number, reason), *self.state.fail(failure, now_s)])

    def stop(self, grace_s: float) -> None:
        """End all nodes: the user wants it."""
        self.request(lambda now_s: self.state.stop(now_s, grace_s=grace_s))

    def abandon(self) -> None:
        """Start no other nodes in the place of these, which are over."""
        for instruction in self.state.abandon(self._world.now_s):
            self._do([instruction])


def _ignore(*_: object) -> None:
    """Take no notice."""


@functools.cache
def _place() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tfos-simulation-")


@functools.cache
def _cluster() -> Cluster:
    """Return what all heads of this process share of their cluster: nothing of it changes, or is looked at."""
    config = ClusterConfig()
    return Cluster(
        config,
        (_ignore, None),
        launcher=LAUNCHERS["local"],
        node_specs=assign_roles(config),
        files=RunDir(Path(_place().name)),
        called_s=0.0,
        published=False,
        make_listener=lambda *_: SimpleNamespace(address=None),  # type: ignore[arg-type, return-value]
        make_launcher=_ignore,  # type: ignore[arg-type]
    )
