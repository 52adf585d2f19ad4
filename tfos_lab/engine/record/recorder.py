"""Keeps a run's ``run.json`` up to date, on a thread of its own so that no node waits for the disk."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable

from tfos_lab.engine.record.format import encode
from tfos_lab.engine.record.snapshot import RecordedRun, take_snapshot
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.run_store import KeptRun
from tfos_lab.engine.state.events import Event, MetricsReported, NodeChanged, OutputProgressed, StateChanged

logger = logging.getLogger(__name__)

# Changes come in bursts; one write tells all of them.
MIN_PERIOD_S = 1.0
METRICS_PERIOD_S = 10.0
# Writing the record of many nodes may take this share of the time.
MANY_NODES = 64
WRITING_SHARE = 0.05
# The first write waits so long: it must not compete with the start of the nodes, of which people count milliseconds.
START_DELAY_S = 0.2


class RunRecorder:
    """Writes ``run.json`` of one run, from `start` to `finish` (thread ``tfos-record-<cluster>``).

    Parameters
    ----------
    run_dir : RunDir
        Where to write.
    run : RecordedRun
        What to write about.
    on_end : callable, optional
        Called on the thread once the last record has been written; raises nothing.
    """

    def __init__(self, run_dir: RunDir, run: RecordedRun, on_end: Callable[[], None] = lambda: None) -> None:
        self._run_dir = run_dir
        self._run = run
        self._on_end = on_end
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._due_s = math.inf
        self._written_s = math.inf  # until the first write, which no event brings forward
        self._finished = False
        self._rest_s = 0.0
        self._warned = False
        self._kept: KeptRun | None = None
        store = run.config.run_store
        if store and not run_dir.is_part:
            self._kept = KeptRun(run_dir, store, run.history.add_note)

    def start(self) -> None:
        """Start the thread, which soon writes for the first time; may be called twice."""
        with self._changed:
            if self._thread is None:
                self._due_s = time.monotonic() + START_DELAY_S
                name = f"tfos-record-{self._run_dir.id}"
                self._thread = threading.Thread(target=self._write_until_finished, name=name, daemon=True)
                self._thread.start()
                if self._kept is not None:
                    self._kept.start()

    def on_event(self, event: Event) -> None:
        """Plan a write if ``event`` changes what the record says; called by the thread that publishes it."""
        if isinstance(event, StateChanged | NodeChanged | OutputProgressed):
            self._plan(MIN_PERIOD_S)
        elif isinstance(event, MetricsReported):
            self._plan(METRICS_PERIOD_S)

    def _plan(self, period_s: float) -> None:
        # Tens of thousands of reports a second come here: no lock for those that change nothing. Where a write begins
        # meanwhile, it tells of this event, too.
        if self._due_s <= self._written_s + max(period_s, self._rest_s):
            return
        with self._changed:
            due_s = self._written_s + max(period_s, self._rest_s)
            if due_s < self._due_s:
                self._due_s = due_s
                self._changed.notify()

    def finish(self) -> None:
        """Have the last record written, and the thread end; may be called twice."""
        with self._changed:
            self._finished = True
            self._changed.notify()

    def join(self, timeout_s: float) -> None:
        """Wait until the last record has been written; then until the run's store has the folder, if it has one."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        if self._kept is not None:
            self._kept.join()

    def _write_until_finished(self) -> None:
        while self._write_when_due():
            pass
        if self._kept is not None:
            self._kept.finish()
        self._on_end()

    def _write_when_due(self) -> bool:
        """Wait until a write is due, and write; return whether another one follows."""
        with self._changed:
            while not self._finished and (wait_s := self._due_s - time.monotonic()) > 0:
                self._changed.wait(None if math.isinf(wait_s) else wait_s)
            is_last = self._finished
            self._due_s, self._written_s = math.inf, time.monotonic()
        self._write()
        return not is_last

    def _write(self) -> None:
        """Write the record as of now; a full disk costs the record, not the run."""
        try:
            began_s, record = time.monotonic(), take_snapshot(self._run_dir, self._run)
            self._run_dir.write_record(encode(record))
            if len(record.nodes) > MANY_NODES:
                self._rest_s = (time.monotonic() - began_s) / WRITING_SHARE
        except OSError as error:
            if not self._warned:
                self._warned = True
                logger.warning("%s cannot be written: %s", self._run_dir.record, error)
