"""Keeps a run's ``run.json`` up to date, on its own thread, so that no node waits for the disk.

The thread goes on while a cell keeps the kernel busy. So it is also the one that hears when another process, such as
the Jupyter server, asks for the run's end.
"""

from __future__ import annotations

import functools
import inspect
import linecache
import logging
import math
import os
import platform
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core import cluster_records, sources
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.package_versions import installed_version
from tfos_lab.core.paths import without_keys
from tfos_lab.core.states import RunState
from tfos_lab.core.version import __version__
from tfos_lab.driver.record.format import CodeRecord, ErrorRecord, FileRecord, ProcessRecord, RunRecord, encode
from tfos_lab.driver.run_store import KeptRun
from tfos_lab.driver.state.events import ClusterView, Event, NodeChanged, NodeHung, StateChanged
from tfos_lab.errors import NodeFailed
from tfos_lab.node.files.listed import files_in
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.parallel.runs import ParallelRuns

logger = logging.getLogger(__name__)

# Changes come in bursts; one write tells all of them. Figures change all the time: JupyterLab's panel reads them here.
CHANGE_S = 0.5
FIGURES_S = 2.0
# Writing, on a slow disk or for many nodes, may take this share of the time, but no change waits longer than that.
WRITING_SHARE = 0.05
LONGEST_S = 5.0
# The first write waits so long: it must not compete with the start of the nodes, of which people count milliseconds.
START_DELAY_S = 0.2
# The end of a run waits so long for its last record: a disk that hangs must not hang the notebook.
LAST_RECORD_S = 2.0
# How soon somebody who asks for the end from another process is heard, and a write that is due begins.
LISTEN_S = 0.25


class RunRecorder:
    """Writes ``run.json`` of one run, from `start` to `finish` (thread ``tfos-record-<cluster>``).

    ``on_end`` is called on the thread once the last record has been written, and raises nothing.
    """

    def __init__(self, run: Cluster | ParallelRuns, on_end: Callable[[], None] = lambda: None) -> None:
        run_dir = self._run_dir = run.files
        self._run = run
        self._on_end = on_end
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._finished = threading.Event()
        self._has_changed = False
        self._written_s = -math.inf
        self._written: ClusterView | None = None
        self._rest_s = 0.0
        self._warned = False
        self._stop_mark = None if run_dir.is_part else cluster_records.stop_mark(run_dir.id)
        self._kept: KeptRun | None = None
        store = run.config.run_store
        if store and not run_dir.is_part:
            self._kept = KeptRun(run_dir, store, run.history.add_note)

    def start(self) -> None:
        """Start the thread, which soon writes for the first time; may be called twice."""
        with self._lock:
            if self._thread is None:
                name = f"tfos-record-{self._run_dir.id}"
                self._thread = threading.Thread(target=self._write_until_finished, name=name, daemon=True)
                self._thread.start()
                if self._kept is not None:
                    self._kept.start()

    def on_event(self, event: Event) -> None:
        """Have ``event`` written soon if it changes the state of something; called by the thread that publishes it."""
        if isinstance(event, StateChanged | NodeChanged | NodeHung):
            self._has_changed = True

    def finish(self) -> None:
        """Have the last record written, and the thread end; may be called twice."""
        self._finished.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the last record has been written; then until the run's store has the folder, if it has one."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._kept is not None and not self._thread.is_alive():
                self._kept.join()

    def _write_until_finished(self) -> None:
        wait_s = START_DELAY_S
        try:
            while not self._finished.wait(wait_s):
                wait_s = LISTEN_S
                rest_s = max(self._rest_s, CHANGE_S if self._has_changed else FIGURES_S)
                if time.monotonic() >= self._written_s + rest_s:
                    self._write()
                if self._stop_mark is not None and os.path.exists(self._stop_mark):  # noqa: PTH110 - no error is of interest
                    self._stop_mark.unlink(missing_ok=True)
                    # It may take as long as the nodes' grace period.
                    threading.Thread(target=self._run.stop, name=f"tfos-stop-{self._run_dir.id}", daemon=True).start()
            self._write(is_last=True)
        finally:
            if self._kept is not None:
                self._kept.finish()
            self._on_end()

    def _write(self, *, is_last: bool = False) -> None:
        """Write the record as of now, if it has changed; a full disk costs the record, not the run."""
        self._has_changed, self._written_s = False, time.monotonic()
        record = take_snapshot(self._run)
        if record.view != self._written or is_last:
            try:
                self._run_dir.replace(self._run_dir.record, encode(record))
                self._written = record.view
                self._rest_s = min(LONGEST_S, (time.monotonic() - self._written_s) / WRITING_SHARE)
            except OSError as error:
                if not self._warned:
                    self._warned = True
                    logger.warning("%s cannot be written: %s", self._run_dir.record, error)


# ---- the record as it is now -----------------------------------------------------------------------------------------


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
    files = sorted(files_in(run.files.output)[0].values(), key=lambda file: file.name) if view.state.ended else []
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
        files=tuple(FileRecord(path=file.name, size_bytes=file.size) for file in files[:MAX_FILES]),
        file_count=len(files),
    )


def code_of(function: Callable[..., Any]) -> CodeRecord | None:
    """Return the source of a user's function; of a ``%%tfos`` cell, the whole cell. None where it is not known."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(function, "__code__", None)
    if code is None or sources.package_of(code.co_filename) == "tfos_lab":
        return None
    label = sources.label(code.co_filename) or code.co_filename
    is_cell = code.co_name == "<module>"
    try:
        lines = linecache.getlines(code.co_filename) if is_cell else []
        source = sources.as_typed("".join(lines)) if is_cell else inspect.getsource(function)
    except (OSError, TypeError):
        source = ""
    name = getattr(function, "__name__", "")
    return CodeRecord(name=name, file=label, line=code.co_firstlineno, source=source) if source else None


@functools.cache
def _versions() -> Mapping[str, str | None]:
    """Return versions without importing anything: TensorFlow takes seconds, and may not be needed here."""
    versions: dict[str, str | None] = {"python": platform.python_version(), "tfos_lab": __version__}
    for name, distributions in _PACKAGES.items():
        versions[name] = next((found for one in distributions if (found := installed_version(one))), None)
    return versions


def _this_process() -> ProcessRecord:
    pid = os.getpid()
    return ProcessRecord(
        host=socket.gethostname(),
        pid=pid,
        born=cluster_records.birth_of(pid),
        kernel_id=cluster_records.own_kernel_id(),
        notebook=os.environ.get("JPY_SESSION_NAME", ""),
    )


def _options(config: ClusterConfig) -> dict[str, Any]:
    options: dict[str, Any] = msgspec.to_builtins(config)
    addresses = {name: without_keys(options[name]) for name in ("log_dir", "run_store") if options[name]}
    return {**options, **addresses, "env": sorted(config.env)}


def _error(error: Exception) -> ErrorRecord:
    if isinstance(error, NodeFailed):
        return ErrorRecord(type="NodeFailed", message=first_line(error.message), node=error.node, kind=error.kind)
    return ErrorRecord(type=type(error).__name__, message=first_line(str(error)))
