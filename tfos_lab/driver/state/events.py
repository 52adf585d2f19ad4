"""Events and views of a cluster, declared once.

The bus carries events, and `cluster.events` keeps them. The notebook draws views; ``run.json`` holds them as they are,
the side panel reads them there, and `tfos_lab.runs` gives them back: a field that is added here is in all of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from tfos_lab.core.messages import NodeActivity
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.texts import format_metric

_Value = TypeVar("_Value")

if TYPE_CHECKING:
    MetricValue = float
else:
    MetricValue = float | None  # JSON has no NaN: null stands for what is not finite, and is read back as NaN


def _read_back(metrics: dict[str, MetricValue]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in metrics.items()}


# What a node's time is spent on.
SHARE_NAMES = ("waits_rows", "waits_data", "waits_peers", "computes", "python")


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events; ``time_s`` is seconds since the epoch."""

    time_s: float


@dataclass(frozen=True, kw_only=True)
class StateChanged(Event):
    """The cluster entered ``state``; ``reason`` is one sentence, or empty."""

    state: RunState
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeChanged(Event):
    """A node entered ``state``."""

    node: str
    state: NodeState
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeHung(Event):
    """A node that should work shows no sign of it, as ``text`` says; with an empty one, it goes on again."""

    node: str
    text: str


@dataclass(frozen=True, kw_only=True)
class EvaluatorFailed(Event):
    """The evaluator has failed, or was lost, and training goes on; the fields are those of `NodeFailed`."""

    node: str
    kind: str
    message: str
    traceback: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeStartedAgain(Event):
    """A worker that served others was lost, and is started again alone while training goes on.

    ``restart`` counts all restarts of the cluster so far, of ``restarts`` that there may be.
    """

    node: str
    reason: str
    restart: int
    restarts: int


@dataclass(frozen=True, kw_only=True)
class LogText(Event):
    """Text that a node wrote, in pieces as they arrived: a line may be split across events."""

    node: str
    stream: str
    text: str


@dataclass(frozen=True, kw_only=True)
class MetricsReported(Event):
    """Progress and metrics of one node, from `ctx.report` or the Keras callback."""

    node: str
    step: int | None
    total_steps: int | None
    metrics: dict[str, MetricValue]

    def __post_init__(self) -> None:
        if None in self.metrics.values():
            object.__setattr__(self, "metrics", _read_back(self.metrics))


@dataclass(frozen=True, kw_only=True)
class FeedProgressed(Event):
    """Rows committed so far; ``complete`` once they add up to the whole DataFrame.

    ``source`` is the number of the call of `Cluster.train`, from 0; a ``stream`` has a feed for each micro-batch.
    ``total_partitions`` and ``tasks`` (of Spark's job that have ended, and all) are known once Spark tells, ``steps``
    (of an epoch) once the nodes have agreed on them. ``split`` names rows that are not those to train on.
    """

    feed: int
    rows: dict[str, int]
    partitions: int
    size_bytes: int
    complete: bool = False
    steps: int | None = None
    epochs: int = 1
    total_partitions: int | None = None
    tasks: tuple[int, int] | None = None
    source: int = 0
    stream: bool = False
    split: str = ""


@dataclass(frozen=True, kw_only=True)
class Noted(Event):
    """A sentence for whoever follows the run: it is one of the cluster's notes."""

    text: str


@dataclass(frozen=True, kw_only=True)
class InferenceProgressed(Event):
    """Rows of one call of `Cluster.inference` that nodes have answered so far, and finished partitions.

    Spark computes a result that is used twice two times; then its rows count again.
    """

    inference: int
    rows: dict[str, int]
    partitions: int


@dataclass(frozen=True, kw_only=True)
class FeedView:
    """The progress of one call of `Cluster.train` or `Cluster.inference`.

    ``kind`` is ``table``, ``stream`` or ``inference``; ``number`` counts those of a kind from 0. ``rows`` maps nodes to
    rows stored, or answered. ``complete`` means that all rows of a table, or of a stream's latest micro-batch, are
    stored; ``micro_batches`` counts complete ones. ``tasks`` are those of Spark's job that have ended, and all. Times
    are seconds since the cluster was called for. ``split`` names rows that are not those to train on: validation's.
    """

    kind: str = "table"
    number: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    partitions: int = 0
    total_partitions: int | None = None
    tasks: tuple[int, int] | None = None
    size_bytes: int = 0
    complete: bool = False
    epochs: int = 1
    micro_batches: int = 0
    started_s: float = 0.0
    ended_s: float | None = None
    split: str = ""


@dataclass(frozen=True)
class RunFacts:
    """What displays show of an independent run beside its node.

    Its argument in short, how many tries have begun, the seconds of the last one, and whether that goes on; for a
    trial of a search, its parameters as plain values, and the best value of the metric so far. ``log`` is the file of
    the last try's log, below the folder of all runs.
    """

    args: str = ""
    going: bool = False
    tries: int = 0
    seconds: float | None = None
    best: float | None = None
    params: Mapping[str, bool | int | float | str | None] = field(default_factory=dict)
    log: str = ""


@dataclass(frozen=True)
class SearchFacts:
    """What displays show of a search: the metric that it compares ("" until one is known), and the best trial so far.

    ``best`` is that trial's value; ``trial`` names it, with its parameters.
    """

    metric: str = ""
    best: float | None = None
    trial: str = ""


@dataclass(frozen=True)
class NodeView:
    """One node at a moment, for displays and users; ``activity`` is None before its first figures.

    ``hung`` is a sentence if the node shows no sign of work although it should, and else "". ``nan_since`` maps each
    metric that was NaN when it was reported last to the step at which it began to be.
    """

    name: str
    job_name: str
    task_index: int
    is_chief: bool
    state: NodeState = NodeState.WAITING
    detail: str = ""
    host: str = ""
    executor: str = ""
    address: str = ""
    pid: int = 0
    gpus: tuple[str, ...] = ()
    gpu_count: int = 0
    step: int | None = None
    total_steps: int | None = None
    rows: int = 0
    metrics: dict[str, MetricValue] = field(default_factory=dict)
    nan_since: dict[str, int | None] = field(default_factory=dict)
    last_heartbeat_s: float | None = None
    run: RunFacts | None = None
    activity: NodeActivity | None = None
    hung: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", NodeState(self.state))
        if None in self.metrics.values():
            object.__setattr__(self, "metrics", _read_back(self.metrics))

    def __repr__(self) -> str:
        step = "" if self.step is None else f"step {self.step}" + (f"/{self.total_steps}" if self.total_steps else "")
        metrics = (f"{name} {format_metric(value)}" for name, value in self.metrics.items())
        facts = [f"{self.state} on {self.host}" if self.host else self.state, step, *metrics]
        return f"<Node {self.name!r}: {', '.join(filter(None, facts))}>"


@dataclass(frozen=True, kw_only=True)
class ShownView:
    """What a node shows with `ctx.show`, and the file below the run's folder that holds it."""

    node: str
    name: str
    step: int | None
    time_s: float
    file: str


#: The lines that many nodes have together.
BANDS = ("max", "median", "min")
#: A value for each of the lines that `usage_lines` names, or none; None of a node that has ended, or not begun.
Spread = tuple[float | None, ...]


@dataclass(frozen=True)
class UsageView:
    """What the nodes used at a moment, in seconds since the call: cores and bytes of each, and its GPUs, 0 to 1."""

    time_s: float
    cpu: Spread
    memory_bytes: Spread
    gpu: Spread = ()
    gpu_memory_bytes: Spread = ()


@dataclass(frozen=True)
class ClusterView:
    """A cluster at a moment, for displays and users.

    ``timings`` maps a phase to seconds since the call; ``restarts`` says when nodes began to start again, and when all
    of them ran again. ``feeds`` are in the order in which they began. ``spark_ui`` is the address of Spark's UI, or
    "", and ``tensorboard`` whether the Jupyter server can show the run's. Where the nodes are independent runs, each
    has its ``run`` facts, and ``of_runs`` is true; those of a ``search`` come best first. ``progress`` is how much of
    the training is done, 0 to 1, and ``seconds_left`` how long the rest will take; None where that is not known.
    ``verdict`` says why training is as slow as it is, or nothing; ``alarm`` that a metric is not a number. What nodes
    have ``shown`` is sorted by name, node and step. ``usage`` is what they used in the course of time.
    """

    cluster_id: str
    name: str
    state: RunState
    launcher: str
    started_s: float
    ended_s: float | None
    nodes: tuple[NodeView, ...]
    timings: dict[str, float]
    restarts: tuple[tuple[float, float | None], ...] = ()
    feeds: tuple[FeedView, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    spark_ui: str = ""
    tensorboard: bool = False
    of_runs: bool = False
    search: SearchFacts | None = None
    progress: float | None = None
    seconds_left: float | None = None
    verdict: str = ""
    alarm: str = ""
    shown: tuple[ShownView, ...] = ()
    usage: tuple[UsageView, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", RunState(self.state))

    @property
    def places(self) -> dict[str, int]:
        """Each node's number, which stays when rows change their order: colours follow it."""
        return {node.name: node.task_index if self.of_runs else place for place, node in enumerate(self.nodes)}


def usage_lines(nodes: Sequence[NodeView]) -> tuple[str, ...]:
    """Return whose use is kept: that of each of a few nodes; of many, or of runs that come and go, the `BANDS`."""
    names = tuple(node.name for node in nodes)
    return BANDS if len(names) > len(BANDS) or any(node.job_name == "run" for node in nodes) else names


def rank_of(views: Sequence[NodeView], node: str) -> int:
    """Return the rank of a node; raises KeyError if there is none of that name."""
    names = [view.name for view in views]
    if node not in names:
        raise KeyError(f"no node {node!r} in this cluster; there are {', '.join(names)}")
    return names.index(node)


def changed(value: _Value, **fields: Any) -> _Value:
    """Return a copy of a frozen dataclass with other fields, in a fifth of the time of `dataclasses.replace`.

    The fields are taken as they are: neither ``__init__`` nor ``__post_init__`` runs.
    """
    copy = object.__new__(type(value))
    object.__setattr__(copy, "__dict__", value.__dict__ | fields)
    return copy
