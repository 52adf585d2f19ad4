"""Takes the record of a run as it is now: what `tfos_lab.engine.record.recorder` writes."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import inspect
import linecache
import math
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tfos_lab.core import cluster_records
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.paths import without_keys
from tfos_lab.core.states import RunState
from tfos_lab.core.version import __version__
from tfos_lab.engine.history import History
from tfos_lab.engine.record.format import (
    CodeRecord,
    ErrorRecord,
    FeedRecord,
    FileRecord,
    MetricsRecord,
    NodeRecord,
    PartRecord,
    ProcessRecord,
    RunRecord,
    SearchRecord,
)
from tfos_lab.engine.record.inputs import Plain
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.state.events import ClusterView, FeedView, MetricsReported, NodeView, RunFacts, SearchFacts
from tfos_lab.errors import NodeFailed
from tfos_lab.errors.text import first_line
from tfos_lab.payload import notebook_sources

MAX_METRICS = 2000
MAX_FILES = 1000

_MAX_MESSAGE = 500
_PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "keras": ("keras",),
    "pyspark": ("pyspark", "pyspark-client"),
}


class RecordedRun(Protocol):
    """What is recorded of a cluster."""

    @property
    def config(self) -> ClusterConfig:
        """What the user asked for."""
        ...

    @property
    def map_fun(self) -> Callable[..., Any]:
        """The user's function."""
        ...

    @property
    def inputs(self) -> dict[str, Plain]:
        """The plain values that the function was called with, by name."""
        ...

    @property
    def history(self) -> History:
        """What has happened so far."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended."""
        ...

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""
        ...

    def failure(self) -> Exception:
        """Return why the cluster failed."""
        ...


def take_snapshot(run_dir: RunDir, run: RecordedRun) -> RunRecord:
    """Return the record of a run as of now."""
    ended, view = run.ended, run.view()
    files = list(_files_below(run_dir.output)) if ended else []
    return RunRecord(
        id=run_dir.id,
        name=view.name,
        launcher=view.launcher,
        started_s=view.started_s,
        written_s=time.time(),
        ended_s=view.ended_s,
        process=_this_process(),
        options=_options(run.config),
        inputs=run.inputs,
        code=code_of(run.map_fun),
        versions=dict(_versions()),
        state=view.state,
        reason=view.reason,
        notes=view.notes,
        nodes=tuple(_node(node) for node in view.nodes),
        outcome=view.state if ended else None,
        error=_error(run.failure()) if view.state is RunState.FAILED else None,
        timings=view.timings,
        restarts=view.restarts,
        feeds=tuple(_feed(feed) for feed in view.feeds),
        metrics=tuple(_metrics(report, view.started_s) for report in run.history.sample_metrics(MAX_METRICS)),
        files=tuple(files[:MAX_FILES]),
        file_count=len(files),
        verdict=view.verdict,
        progress=view.progress,
        of_runs=view.of_runs,
        search=_search(view.search) if view.search is not None else None,
    )


def code_of(function: Callable[..., Any]) -> CodeRecord | None:
    """Return the source of a function; of a ``%%tfos`` cell, the whole cell. None where it is not known."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    label = notebook_sources.label(code.co_filename) or code.co_filename
    is_cell = code.co_name == "<module>"
    try:
        source = "".join(linecache.getlines(code.co_filename)) if is_cell else inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    name = getattr(function, "__name__", "")
    return CodeRecord(name=name, file=label, line=code.co_firstlineno, source=source) if source else None


@functools.cache
def _versions() -> Mapping[str, str | None]:
    """Return versions without importing anything: TensorFlow takes seconds, and may not be needed here."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "tfos_lab": __version__}
    for name, distributions in _PACKAGES.items():
        versions[name] = next((found for one in distributions if (found := _version_of(one))), None)
    return versions


def _version_of(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _this_process() -> ProcessRecord:
    pid = os.getpid()
    return ProcessRecord(
        host=socket.gethostname(),
        pid=pid,
        born=cluster_records.birth_of(pid),
        kernel_id=cluster_records.own_kernel_id(),
        notebook=cluster_records.own_notebook(),
    )


def _options(config: ClusterConfig) -> dict[str, Any]:
    options: dict[str, Any] = msgspec.to_builtins(config)
    addresses = {name: without_keys(options[name]) for name in ("log_dir", "run_store") if options[name]}
    return {**options, **addresses, "env": sorted(config.env)}


def _node(view: NodeView) -> NodeRecord:
    return NodeRecord(
        node=view.node,
        state=view.state,
        detail=view.detail,
        host=view.host,
        executor=view.executor,
        pid=view.pid,
        gpus=view.gpus,
        step=view.step,
        total_steps=view.total_steps,
        rows=view.rows,
        metrics=_finite(view.metrics),
        activity=view.activity,
        part=_part(view.task_index, view.run) if view.run is not None else None,
    )


def _part(number: int, facts: RunFacts) -> PartRecord:
    return PartRecord(
        number=number,
        args=facts.args,
        params=dict(facts.params),
        tries=facts.tries,
        seconds=facts.seconds,
        best=facts.best,
        log=facts.log,
    )


def _search(facts: SearchFacts) -> SearchRecord:
    return SearchRecord(metric=facts.metric, best=facts.best, trial=facts.trial)


def _feed(view: FeedView) -> FeedRecord:
    return FeedRecord(
        kind=view.kind,
        rows=view.rows,
        partitions=view.partitions,
        size_bytes=view.size_bytes,
        epochs=view.epochs,
        complete=view.complete,
        started_s=view.started_s,
        ended_s=view.ended_s,
    )


def _metrics(report: MetricsReported, started_s: float) -> MetricsRecord:
    return MetricsRecord(
        time_s=report.time_s - started_s, node=report.node, step=report.step, metrics=_finite(report.metrics)
    )


def _finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def _error(error: Exception) -> ErrorRecord:
    if isinstance(error, NodeFailed):
        return ErrorRecord(type="NodeFailed", message=first_line(error.message), node=error.node, kind=error.kind)
    return ErrorRecord(type=type(error).__name__, message=first_line(str(error)))


def _files_below(folder: Path) -> Iterable[FileRecord]:
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            with contextlib.suppress(OSError):
                yield FileRecord(path=str(path.relative_to(folder)), size_bytes=path.lstat().st_size)
