"""One try of a run: launches its nodes, feeds them, passes on what they report, waits for them, and ends them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfos_lab.core.states import NodeState
from tfos_lab.driver.bus import Subscription
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.parallel.feeder import Feed, Feeder
from tfos_lab.driver.parallel.nodes import failure_from_error, leader_of, value_of
from tfos_lab.driver.state.events import Event, LogText, MetricsReported, NodeView
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

# How often what the nodes report is passed on.
_STEP_S = 0.1
# A run that is cut gets no more than this to shut down.
_CUT_GRACE_S = 1.0
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
class CutShort:
    """It was stopped early, as others do better."""


@dataclass(frozen=True)
class Fatal:
    """No run can succeed."""

    error: TfosError


Ending = Returned | Failed | NoSlot | Stopped | CutShort | Fatal


class InlineCut(BaseException):
    """Ends the function of an inline run that is cut: it runs on the very thread that would stop it."""


class RunTry:
    """One try of one run.

    Parameters
    ----------
    index : int
        The run.
    name : str
        What displays call it.
    make : callable
        Makes its cluster.
    publish : callable
        Takes the events that it reports, under its name.
    judge : callable
        ``judge(order, report)`` returns whether the run is to be cut; ``order`` is 0 for the node that leads.
    feed : callable or None
        Feeds the nodes their rows, once they run.
    timeout_s : float or None
        How long the function may run.
    may_queue : bool
        Whether nodes that do not come up in time have only waited for slots of Spark's.
    """

    def __init__(
        self,
        index: int,
        name: str,
        make: Callable[[], Cluster],
        publish: Callable[[Event], None],
        *,
        judge: Callable[[int, MetricsReported], bool] = lambda _order, _report: False,
        feed: Feed | None = None,
        timeout_s: float | None,
        may_queue: bool = False,
    ) -> None:
        self.index = index
        self._name = name
        self._make = make
        self._publish = publish
        self._judge = judge
        self._feed = feed
        self._leader = ""
        self._cut = False
        self._timeout_s = timeout_s
        self._may_queue = may_queue
        self._feeder: Feeder | None = None
        self._cluster: Cluster | None = None
        self._stopping = False
        self._runs = False

    @property
    def has_slots(self) -> bool:
        """Whether its nodes have come up; those that have ended without that never had any."""
        return self._runs or self.node().state.is_present

    def node(self) -> NodeView:
        """Return its nodes as they are now, as one under the run's name."""
        cluster = self._cluster
        return node_of_run(self._name, self.index, cluster.nodes if cluster is not None else (), self._leader)

    def execute(self) -> Ending:
        """Run it to its end; raises nothing but what interrupts this process."""
        try:
            return self._execute()
        except KeyboardInterrupt:
            raise
        except NotEnoughSlots:
            return NoSlot()
        except ClusterEnded:
            return CutShort() if self._cut and not self._stopping else Stopped()
        except InlineCut:
            return CutShort()
        except BaseException as error:  # noqa: BLE001 - whatever ended the node
            return self._ending_of(error)
        finally:
            self._close()

    def _execute(self) -> Ending:
        cluster = self._cluster = self._make()
        self._leader = leader_of(cluster)
        if self._stopping:
            return Stopped()
        with cluster.bus.subscribe() as events:
            try:
                cluster.launch()
                cluster.wait_until_running()
                self._runs = True
                if self._feed is not None:
                    self._feeder = Feeder(self._feed, cluster)
                    self._feeder.start()
                return self._wait(cluster, events)
            finally:
                self._pass_on(events)

    def _wait(self, cluster: Cluster, events: Subscription) -> Ending:
        deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s
        while True:
            if self._feeder is None or self._feeder.has_ended(_STEP_S):
                with contextlib.suppress(WaitTimeout):
                    cluster.wait(_STEP_S)
                    return Returned(value_of(cluster))
            self._pass_on(events)
            self._end_if_cut(cluster)
            if deadline is not None and time.monotonic() > deadline and not self._has_returned(cluster):
                cluster.stop()
                message = f"it was stopped, as it had not returned after timeout={self._timeout_s:g}"
                tail = cluster.logs(self._leader, tail=20)
                return Failed(RunFailed(run=self.index, kind="timed out", message=message, log_tail=tail))

    def _has_returned(self, cluster: Cluster) -> bool:
        return any(node.name == self._leader and node.state is NodeState.DONE for node in cluster.nodes)

    def _end_if_cut(self, cluster: Cluster) -> None:
        if self._cut:
            cluster.stop(grace=min(cluster.config.grace, _CUT_GRACE_S))

    def _pass_on(self, events: Subscription) -> None:
        for event in events.take():
            if isinstance(event, MetricsReported):
                self._take_report(event)
            if isinstance(event, LogText | MetricsReported) and event.node == self._leader:
                self._publish(dataclasses.replace(event, node=self._name))

    def _take_report(self, report: MetricsReported) -> None:
        cluster = self._cluster
        if cluster is None or cluster.launcher.runs_inline:
            return  # judged as it was made
        names = [self._leader, *(node.name for node in cluster.nodes if node.name != self._leader)]
        self._cut = self._judge(names.index(report.node), report) or self._cut

    def _ending_of(self, error: BaseException) -> Ending:
        if self._stopping:
            return Stopped()
        if self._cut:
            return CutShort()  # what was under way, such as a feed, has ended with the nodes
        if isinstance(error, _FATAL) and (not self._runs or isinstance(error, ConfigError)):
            return Fatal(error)
        if isinstance(error, ReservationTimeout) and self._may_queue:
            return NoSlot()
        return Failed(failure_from_error(error, self._cluster))

    def stop(self, grace: float | None) -> None:
        """End it; it then counts as stopped. May be called from any thread, and twice."""
        self._stopping = True
        if self._cluster is not None:
            self._cluster.stop(grace=grace)

    def _close(self) -> None:
        if self._cluster is not None:
            self._cluster.stop(grace=0.0)
        if self._feeder is not None:
            self._feeder.join(_JOIN_S)


def node_of_run(name: str, index: int, nodes: Sequence[NodeView], leader: str) -> NodeView:
    """Return a run's nodes as one: what the leading one reports, as far as the last of them is, and where all are."""
    blank = NodeView(name, "run", index, is_chief=False)
    chief = next((node for node in nodes if node.name == leader), None)
    if chief is None:
        return blank
    own = dataclasses.replace(chief, name=name, job_name="run", task_index=index, is_chief=False, address="")
    if len(nodes) == 1:
        return own
    return dataclasses.replace(
        own,
        state=min((node.state for node in nodes), key=lambda state: state.order),
        host=_joined(node.host for node in nodes),
        executor=_joined(node.executor for node in nodes),
        gpus=tuple(gpu for node in nodes for gpu in node.gpus),
        pid=0,
        rows=sum(node.rows for node in nodes),
        hung="; ".join(f"{node.name}: {node.hung}" for node in nodes if node.hung),
    )


def _joined(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))
