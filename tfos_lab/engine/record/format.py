"""``run.json``: what a run was and how it went, from which a history of runs can be read later.

The file lies in the run's folder (`tfos_lab.engine.run_dir`). It is replaced as a whole when the cluster is launched,
when the cluster or a node changes its state, every few seconds while metrics come in, and at the end. If the kernel
dies, the file of the last change remains: then ``state`` is not final, and ``process`` no longer exists.

Format, version 1. One JSON object with the fields of `RunHeader` and `RunRecord`; readers ignore fields that they do
not know, and `decode` refuses a file of a later version. A field that is removed or changes its meaning raises
`VERSION`; a new field with a default does not. Times with ``_s`` are seconds since the epoch, except in ``timings``,
``restarts``, ``feeds`` and ``metrics``: there they count from ``started_s``. Metrics that are not finite are null.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tfos_lab.engine.record.inputs import Plain
from tfos_lab.engine.state.activity import NodeActivity

VERSION = 1


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The kernel, or other process, that ran the cluster; ``pid`` and ``born`` together identify it.

    ``notebook`` is the path of the notebook that the kernel was started for, or empty.
    """

    host: str
    pid: int
    born: str
    kernel_id: str = ""
    notebook: str = ""


class CodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The user's function: its name, where it is (``"Cell In[5]"`` or a file) and its source, or that of its cell."""

    name: str
    file: str
    line: int
    source: str


class PartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an independent run was beside its node.

    ``args`` is its argument in short, ``params`` the parameters of a trial, ``best`` the best value that it reported of
    the metric that its search compares. ``seconds`` is how long the last of its ``tries`` took, ``log`` the file of
    that try's log, below the run's folder.
    """

    number: int
    args: str = ""
    params: dict[str, Plain] = {}
    tries: int = 0
    seconds: float | None = None
    best: float | None = None
    log: str = ""


class SearchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a search compared, the best value of it, and the trial that had it, with its parameters."""

    metric: str = ""
    best: float | None = None
    trial: str = ""


class NodeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One node as it was last seen: its state, where it ran, what it did, and the last value of each of its metrics.

    Of independent runs, it is one of them, and ``part`` says what else it was.
    """

    node: str
    state: str
    detail: str = ""
    host: str = ""
    executor: str = ""
    pid: int = 0
    gpus: tuple[str, ...] = ()
    step: int | None = None
    total_steps: int | None = None
    rows: int = 0
    metrics: dict[str, float | None] = {}
    activity: NodeActivity | None = None
    part: PartRecord | None = None


class MetricsRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics that a node reported ``time_s`` seconds after the call."""

    time_s: float
    node: str
    step: int | None
    metrics: dict[str, float | None]


class FeedRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One call of `Cluster.train` or `Cluster.inference`; ``kind`` is ``table``, ``stream`` or ``inference``."""

    kind: str
    rows: dict[str, int]
    partitions: int
    size_bytes: int
    epochs: int
    complete: bool
    started_s: float
    ended_s: float | None


class ErrorRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Why the run failed.

    ``type`` is the class that `Cluster.wait` raises. Of a node that failed, ``node`` is its name and ``kind`` the class
    of what its function raised. ``message`` is the first line.
    """

    type: str
    message: str
    node: str = ""
    kind: str = ""


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One file below the folder ``output``."""

    path: str
    size_bytes: int


class RunHeader(msgspec.Struct, frozen=True, kw_only=True):
    """One run without its metrics, which are most of the file: what a list of many runs needs.

    ``options`` are the fields of `ClusterConfig`; of ``env`` it has the names only, as values may be secrets.
    ``inputs`` are numbers and short texts of ``args``, and of names that the function uses, such as ``"args.lr"``.
    ``versions`` are those of this process's environment, null where a package is not installed here. ``outcome`` is
    ``done``, ``failed`` or ``stopped`` once the run has ended. ``files`` are listed at the end, at most 1,000 of
    ``file_count``. ``verdict`` says what limited the speed, ``progress`` how far training was, 0 to 1. With
    ``of_runs``, these are all independent runs of one call, each of which has a record of its own in the folders below
    this one; those of a ``search`` come best first.
    """

    version: int = VERSION
    id: str
    name: str
    launcher: str
    started_s: float
    written_s: float
    ended_s: float | None = None
    process: ProcessRecord
    options: dict[str, Any]
    inputs: dict[str, bool | int | float | str | None] = {}
    code: CodeRecord | None = None
    versions: dict[str, str | None]
    state: str
    reason: str = ""
    notes: tuple[str, ...] = ()
    nodes: tuple[NodeRecord, ...] = ()
    outcome: str | None = None
    error: ErrorRecord | None = None
    timings: dict[str, float] = {}
    restarts: tuple[tuple[float, float | None], ...] = ()
    feeds: tuple[FeedRecord, ...] = ()
    files: tuple[FileRecord, ...] = ()
    file_count: int = 0
    verdict: str = ""
    progress: float | None = None
    of_runs: bool = False
    search: SearchRecord | None = None


class RunRecord(RunHeader, frozen=True, kw_only=True):
    """One run. ``metrics`` is a sample, evenly spread, of at most 2,000 reports."""

    metrics: tuple[MetricsRecord, ...] = ()


def encode(record: RunRecord) -> bytes:
    """Return the record as JSON that people can read, too."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode(data: bytes) -> RunRecord:
    """Return the record that ``run.json`` holds.

    Raises
    ------
    ValueError
        If the file is damaged, or written by a later version of this package.
    """
    record = msgspec.json.decode(data, type=RunRecord)
    _check_version(record)
    return record


def decode_header(data: bytes) -> RunHeader:
    """Return the same without metrics, which takes a fraction of the time; raises the same errors."""
    header = msgspec.json.decode(data, type=RunHeader)
    _check_version(header)
    return header


def _check_version(header: RunHeader) -> None:
    if header.version > VERSION:
        raise ValueError(f"run.json is of version {header.version}; this tfos_lab reads versions up to {VERSION}")
