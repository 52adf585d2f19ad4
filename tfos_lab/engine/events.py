"""What happens to a cluster, as values: the bus carries them, the notebook draws them, `cluster.events` keeps them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events; ``time_s`` is seconds since the epoch."""

    time_s: float


@dataclass(frozen=True, kw_only=True)
class StateChanged(Event):
    """The cluster entered ``state`` (see `ClusterView.state`); ``reason`` is one sentence, or empty."""

    state: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeChanged(Event):
    """A node entered ``state`` (see `NodeView.state`)."""

    node: str
    state: str
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class LogText(Event):
    """Text that a node wrote; whole pieces as they came, so lines may be split across events."""

    node: str
    stream: str
    text: str


@dataclass(frozen=True, kw_only=True)
class MetricsReported(Event):
    """Progress and metrics of one node, from `ctx.report` or the Keras callback."""

    node: str
    step: int | None
    total_steps: int | None
    metrics: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class FeedProgressed(Event):
    """Rows committed so far; ``complete`` once they add up to the whole DataFrame.

    ``total_partitions`` is known as soon as Spark tells, ``steps`` (of an epoch) once the nodes have agreed on them.
    """

    feed: int
    rows: dict[str, int]
    partitions: int
    size_bytes: int
    complete: bool = False
    steps: int | None = None
    epochs: int = 1
    total_partitions: int | None = None


@dataclass(frozen=True)
class NodeView:
    """What a person sees of one node.

    ``state`` is one of ``waiting``, ``reserved``, ``importing``, ``starting``, ``running``, ``serving``,
    ``done``, ``failed``, ``lost``, ``stopped``.
    """

    node: str
    job_name: str
    task_index: int
    is_chief: bool
    state: str = "waiting"
    detail: str = ""
    host: str = ""
    executor: str = ""
    address: str = ""
    pid: int = 0
    gpus: tuple[str, ...] = ()
    step: int | None = None
    total_steps: int | None = None
    rows: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    last_beat_s: float | None = None


@dataclass(frozen=True)
class ClusterView:
    """What a person sees of a cluster.

    ``state`` is one of ``launching``, ``reserving``, ``starting``, ``running``, ``restarting``, ``stopping``, ``done``,
    ``failed``, ``stopped``. ``timings`` maps a phase to seconds since the call. ``spark_ui`` is the address of Spark's
    own pages, where there are any.
    """

    cluster_id: str
    name: str
    state: str
    launcher: str
    started_s: float
    ended_s: float | None
    nodes: tuple[NodeView, ...]
    timings: dict[str, float]
    feed: FeedProgressed | None = None
    reason: str = ""
    notes: tuple[str, ...] = ()
    spark_ui: str = ""
