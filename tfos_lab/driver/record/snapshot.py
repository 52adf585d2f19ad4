"""Takes the record of a run as it is now: what `tfos_lab.driver.record.recorder` writes."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import inspect
import linecache
import os
import platform
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core import cluster_records, sources
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.paths import without_keys
from tfos_lab.core.states import RunState
from tfos_lab.core.version import __version__
from tfos_lab.driver.record.format import CodeRecord, ErrorRecord, FileRecord, ProcessRecord, RunRecord
from tfos_lab.errors import NodeFailed
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.parallel.runs import ParallelRuns

MAX_METRICS = 2000
MAX_FILES = 1000

_PACKAGES = {
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "keras": ("keras",),
    "pyspark": ("pyspark", "pyspark-client"),
}


def take_snapshot(run: Cluster | ParallelRuns) -> RunRecord:
    """Return the record of a run as of now."""
    view = run.view()
    files = list(_files_below(run.files.output)) if view.state.ended else []
    return RunRecord(
        written_s=time.time(),
        process=_this_process(),
        options=_options(run.config),
        inputs=run.inputs,
        code=code_of(run.map_fun),
        versions=dict(_versions()),
        # TensorBoard and Spark's UI are pages of this process.
        view=replace(view, tensorboard=False, spark_ui=""),
        error=_error(run.failure()) if view.state is RunState.FAILED else None,
        metrics=tuple(run.history.sample_metrics(MAX_METRICS)),
        files=tuple(files[:MAX_FILES]),
        file_count=len(files),
    )


def code_of(function: Callable[..., Any]) -> CodeRecord | None:
    """Return the source of a function; of a ``%%tfos`` cell, the whole cell. None where it is not known."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    label = sources.label(code.co_filename) or code.co_filename
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
