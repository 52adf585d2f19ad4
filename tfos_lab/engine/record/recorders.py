"""Everything that writes down a run while it goes on: ``run.json``, and MLflow where it is in use."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from tfos_lab.engine.record.mlflow import LoggedRun, MlflowLogger, make_logger
from tfos_lab.engine.record.recorder import RunRecorder
from tfos_lab.engine.record.snapshot import RecordedRun
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.state.events import Event


class WrittenRun(RecordedRun, LoggedRun, Protocol):
    """What is written down of a cluster."""


class Recorders:
    """The recorders of one run, from `start` to `finish`.

    Parameters
    ----------
    run_dir : RunDir
        Where ``run.json`` is written.
    run : WrittenRun
        The cluster. An MLflow run that is active on this thread gets it, too.
    on_end : callable
        Called once the last record has been written; see `RunRecorder`.
    """

    def __init__(self, run_dir: RunDir, run: WrittenRun, on_end: Callable[[], None]) -> None:
        self._record = RunRecorder(run_dir, run, on_end)
        mlflow = make_logger(run)
        self._all: list[RunRecorder | MlflowLogger] = [self._record, *([mlflow] if mlflow is not None else [])]

    def start(self) -> None:
        """Start them; may be called twice."""
        for one in self._all:
            one.start()

    def on_event(self, event: Event) -> None:
        """Plan what the event asks for; called by the thread that publishes it."""
        self._record.on_event(event)

    def finish(self) -> None:
        """Have them write the last time, and end; may be called twice."""
        for one in self._all:
            one.finish()

    def join(self, timeout_s: float) -> None:
        """Wait until all have written."""
        deadline = time.monotonic() + timeout_s
        for one in self._all:
            one.join(max(0.0, deadline - time.monotonic()))
