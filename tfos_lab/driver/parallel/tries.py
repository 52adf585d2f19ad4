"""One try of a run: launches its nodes, feeds them, passes on what they report, waits for them, and ends them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

from tfos_lab.core.roles import chief_of
from tfos_lab.core.states import NodeState
from tfos_lab.core.threads import on_a_thread
from tfos_lab.driver.bus import Subscription
from tfos_lab.driver.cluster import Cluster
from tfos_lab.driver.parallel.state import Ending, RunEntry
from tfos_lab.driver.state.events import LogText, MetricsReported, NodeView
from tfos_lab.errors import (
    ClusterEnded,
    ConfigError,
    ExecutorMismatch,
    LaunchFailed,
    NodeFailed,
    NoSession,
    NotEnoughGpus,
    NotEnoughSlots,
    PayloadError,
    ReservationTimeout,
    RunFailed,
    TfosError,
    WaitTimeout,
)
from tfos_lab.node.traceback_text import format_remote

if TYPE_CHECKING:
    from tfos_lab.driver.parallel.runs import ParallelRuns

# Gives rows to the nodes of a run, and returns when they have stored all.
Feed = Callable[[Cluster], object]

# How often what the nodes report is passed on.
_STEP_S = 0.1
# A run that is cut gets no more than this to shut down.
_CUT_GRACE_S = 1.0
# A feed whose node has ended cancels Spark's job, and is over soon.
_JOIN_S = 5.0
# These errors, before the node runs, would meet every other run as well.
_FATAL = (ConfigError, ExecutorMismatch, NoSession, PayloadError)
# Names that `Failure.kind` has for nodes whose function has not raised.
_EXITED, _LOST, _HUNG = "Exited", ("Lost", "LaunchFailed"), "Hung"


_NO_SLOT, _STOPPED, _CUT = map(Ending, (NodeState.WAITING, NodeState.STOPPED, NodeState.STOPPED_EARLY))


class InlineCut(BaseException):
    """Ends the function of an inline run that is cut: it runs on the very thread that would stop it."""


class RunTry:
    """One try of one run."""

    def __init__(self, runs: ParallelRuns, entry: RunEntry) -> None:
        self.entry = entry
        self._all = runs
        self._name = runs.name_of(entry.index)
        self._leader = ""
        self._cut = False
        self._fed: Future[None] | None = None
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
        return node_of_run(self._name, self.entry.index, cluster.nodes if cluster is not None else (), self._leader)

    def execute(self) -> Ending:
        """Run it to its end; raises nothing but what interrupts this process."""
        try:
            return self._execute()
        except KeyboardInterrupt:
            raise
        except NotEnoughSlots:
            return _NO_SLOT
        except NotEnoughGpus as error:  # others took what was free here; a host of executors may have too few
            return self._ending_of(error) if self._all.launcher.spans_hosts else _NO_SLOT
        except ClusterEnded:
            return _CUT if self._cut and not self._stopping else _STOPPED
        except InlineCut:
            return _CUT
        except BaseException as error:  # noqa: BLE001 - whatever ended the node
            return self._ending_of(error)
        finally:
            if self._cluster is not None:
                self._cluster.stop(grace=0.0)
            if self._fed is not None:
                wait([self._fed], _JOIN_S)

    def _execute(self) -> Ending:
        cluster = self._cluster = self._all.make_cluster(self.entry)
        self._leader = chief_of(cluster.node_specs).node
        if self._stopping:
            return _STOPPED
        with cluster.bus.subscribe() as events:
            try:
                cluster.launch()
                cluster.wait_until_running()
                self._runs = True
                if (feed := self._all.feed) is not None:  # beside this thread, which passes on what nodes report
                    self._fed = on_a_thread(lambda: _feed(feed, cluster), name=f"tfos-feed-{cluster.id}")
                return self._wait(cluster, events)
            finally:
                self._pass_on(cluster, events)

    def _wait(self, cluster: Cluster, events: Subscription) -> Ending:
        timeout_s = self._all.timeout_s
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            if self._fed is None or self._has_fed(self._fed):
                with contextlib.suppress(WaitTimeout):
                    cluster.wait(_STEP_S)
                    return Ending(NodeState.DONE, cluster.results.get(self._leader))
            self._pass_on(cluster, events)
            if self._cut:
                cluster.stop(grace=min(cluster.config.grace, _CUT_GRACE_S))
            if deadline is not None and time.monotonic() > deadline:
                if any(node.name == self._leader and node.state is NodeState.DONE for node in cluster.nodes):
                    continue
                cluster.stop()
                message = f"it was stopped, as it had not returned after timeout={timeout_s:g}"
                tail = cluster.logs(self._leader, tail=20)
                return Ending.of(RunFailed(run=-1, kind="timed out", message=message, log_tail=tail))

    def _has_fed(self, fed: Future[None]) -> bool:
        """Return whether all rows have been fed, or no more are wanted; raise why they were not."""
        return bool(wait([fed], _STEP_S).done) and fed.result() is None

    def _pass_on(self, cluster: Cluster, events: Subscription) -> None:
        for event in events.take():
            if isinstance(event, MetricsReported) and not cluster.launcher.runs_inline:  # else judged as it was made
                names = [self._leader, *(node.name for node in cluster.nodes if node.name != self._leader)]
                self._cut = self._all.is_cut(self.entry, names.index(event.node), event) or self._cut
            if isinstance(event, LogText | MetricsReported) and event.node == self._leader:
                self._all.bus.publish(dataclasses.replace(event, node=self._name))

    def _ending_of(self, error: BaseException) -> Ending:
        if self._stopping:
            return _STOPPED
        if self._cut:
            return _CUT  # what was under way, such as a feed, has ended with the nodes
        if isinstance(error, _FATAL) and (not self._runs or isinstance(error, ConfigError)):
            return Ending(NodeState.STOPPED, fatal=error)
        if isinstance(error, ReservationTimeout) and self._all.launcher.needs_session:
            # The nodes have only waited for slots of Spark's.
            return _NO_SLOT
        return Ending.of(_failure_from_error(error, self._cluster))

    def stop(self, grace: float | None) -> None:
        """End it; it then counts as stopped. May be called from any thread, and twice."""
        self._stopping = True
        if self._cluster is not None:
            self._cluster.stop(grace=grace)


def _feed(feed: Feed, cluster: Cluster) -> None:
    """Feed the nodes of a run; that they want no more rows, or were stopped, their cluster knows."""
    with contextlib.suppress(ClusterEnded):
        feed(cluster)


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


def _failure_from_error(error: BaseException, cluster: Cluster | None) -> RunFailed:
    """Return the failure of a run whose node ended with an error; the caller fills in which run it was."""
    match error:
        case NodeFailed():
            where = f"{error.node}: " if cluster is not None and len(cluster.nodes) > 1 else ""
            return RunFailed(
                run=-1,
                kind=_kind_of(error.kind, cluster),
                error="" if error.kind in (_EXITED, *_LOST, _HUNG) else error.kind,
                message=where + error.message,
                traceback=error.traceback,
                log_tail=error.log_tail,
            )
        case LaunchFailed() | ReservationTimeout():
            return RunFailed(run=-1, kind="lost", message=str(error))
        case SystemExit():
            return RunFailed(run=-1, kind="exited", message=f"the function called sys.exit({error.code!r})")
        case TfosError():
            return RunFailed(run=-1, kind="raised", error=type(error).__name__, message=str(error))
    name, message, text = format_remote(error)
    return RunFailed(run=-1, kind="raised", error=name, message=message, traceback=text)


def _kind_of(error: str, cluster: Cluster | None) -> str:
    """Return which kind of failure it was; a process that a signal has ended was taken from outside."""
    cause = cluster.head.state.causes.first if cluster is not None else None
    if error in _LOST or (error == _EXITED and cause is not None and cause.gone):
        return "lost"
    if error == _HUNG:
        return "hung"
    return "exited" if error == _EXITED else "raised"
