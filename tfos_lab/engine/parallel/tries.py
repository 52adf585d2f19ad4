"""One try of a run: launches its node, passes on what it reports, waits for it, and ends it."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tfos_lab.core.states import NodeState
from tfos_lab.engine.bus import Subscription
from tfos_lab.engine.parallel.feeder import Feeder
from tfos_lab.engine.parallel.nodes import failure_from_error, value_of
from tfos_lab.engine.runtime import ClusterRuntime
from tfos_lab.engine.state.events import Event, LogText, MetricsReported, NodeView
from tfos_lab.errors import (
    ClusterEnded,
    ConfigError,
    ExecutorMismatch,
    NoSession,
    NotEnoughSlots,
    PayloadError,
    ReservationTimeout,
    RunFailed,
    TfosError,
    WaitTimeout,
)

# How often what the node reports is passed on.
_STEP_S = 0.1
# A feed whose node has ended cancels Spark's job, and is over soon.
_JOIN_S = 5.0
# These errors, before the node runs, would meet every other run as well.
_FATAL = (ConfigError, ExecutorMismatch, NoSession, PayloadError)


@dataclass(frozen=True)
class Returned:
    """The function returned."""

    value: Any


@dataclass(frozen=True)
class Failed:
    """The try failed."""

    failure: RunFailed


@dataclass(frozen=True)
class NoSlot:
    """No slot was free after all; the try does not count."""


@dataclass(frozen=True)
class Stopped:
    """It was stopped."""


@dataclass(frozen=True)
class Fatal:
    """No run can succeed."""

    error: TfosError


Ending = Returned | Failed | NoSlot | Stopped | Fatal


class RunTry:
    """One try of one run.

    Parameters
    ----------
    index : int
        The run.
    name : str
        What displays call it.
    make : callable
        Makes the runtime of its node.
    publish : callable
        Takes the events that it reports, under its name.
    timeout_s : float or None
        How long the function may run.
    may_queue : bool
        Whether a node that does not come up in time has only waited for a slot of Spark's.
    feed : callable, optional
        Feeds the node its rows, once it runs.
    """

    def __init__(
        self,
        index: int,
        name: str,
        make: Callable[[], ClusterRuntime],
        publish: Callable[[Event], None],
        *,
        timeout_s: float | None,
        may_queue: bool = False,
        feed: Callable[[ClusterRuntime], None] | None = None,
    ) -> None:
        self.index = index
        self._name = name
        self._make = make
        self._publish = publish
        self._timeout_s = timeout_s
        self._may_queue = may_queue
        self._feed = feed
        self._feeder: Feeder | None = None
        self._runtime: ClusterRuntime | None = None
        self._stopping = False
        self._runs = False

    @property
    def has_slot(self) -> bool:
        """Whether its node has come up."""
        return self.node().state is not NodeState.WAITING

    def node(self) -> NodeView:
        """Return its node as it is now, under the run's name."""
        runtime = self._runtime
        if runtime is None:
            return NodeView(self._name, "run", self.index, is_chief=False)
        [node] = runtime.nodes
        return dataclasses.replace(
            node, node=self._name, job_name="run", task_index=self.index, is_chief=False, address=""
        )

    def execute(self) -> Ending:
        """Run it to its end; raises nothing but what interrupts this process."""
        try:
            return self._execute()
        except KeyboardInterrupt:
            raise
        except NotEnoughSlots:
            return NoSlot()
        except ClusterEnded:
            return Stopped()
        except BaseException as error:  # noqa: BLE001 - whatever ended the node
            return self._ending_of(error)
        finally:
            self._close()

    def _execute(self) -> Ending:
        runtime = self._runtime = self._make()
        if self._stopping:
            return Stopped()
        with runtime.bus.subscribe() as events:
            try:
                runtime.launch()
                runtime.wait_until_running()
                self._runs = True
                if self._feed is not None:
                    self._feeder = Feeder(self._feed, runtime)
                    self._feeder.start()
                return self._wait(runtime, events)
            finally:
                self._pass_on(events)

    def _wait(self, runtime: ClusterRuntime, events: Subscription) -> Ending:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            if self._feeder is None or self._feeder.has_ended(_STEP_S):
                with contextlib.suppress(WaitTimeout):
                    runtime.wait(_STEP_S)
                    return Returned(value_of(runtime))
            self._pass_on(events)
            if deadline is not None and time.monotonic() > deadline:
                runtime.stop()
                message = f"it was stopped, as it had not returned after timeout_s={self._timeout_s:g}"
                tail = runtime.logs(runtime.nodes[0].node, tail=20)
                return Failed(RunFailed(run=self.index, kind="timed out", message=message, log_tail=tail))

    def _pass_on(self, events: Subscription) -> None:
        for event in events.take():
            if isinstance(event, LogText | MetricsReported):
                self._publish(dataclasses.replace(event, node=self._name))

    def _ending_of(self, error: BaseException) -> Ending:
        if self._stopping:
            return Stopped()
        if isinstance(error, _FATAL) and not self._runs:
            return Fatal(error)
        if isinstance(error, ReservationTimeout) and self._may_queue:
            return NoSlot()
        return Failed(failure_from_error(error, self._runtime))

    def stop(self, grace_s: float | None) -> None:
        """End it; it then counts as stopped. May be called from any thread, and twice."""
        self._stopping = True
        if self._runtime is not None:
            self._runtime.stop(grace_s=grace_s)

    def _close(self) -> None:
        if self._runtime is not None:
            self._runtime.stop(grace_s=0.0)
        if self._feeder is not None:
            self._feeder.join(_JOIN_S)
