"""Logs a cluster to the MLflow run that was active when it was asked for, if there was one.

MLflow is no dependency: it is used where the user's program has imported it and has begun a run. Inputs and options
become params, reports become metrics, and tags say where logs and output lie. All of it happens on its own thread, by
the run's identifier: a tracking server that is slow or gone costs the log and nothing else.
"""

from __future__ import annotations

import atexit
import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tfos_lab.core.config import ClusterConfig
from tfos_lab.driver.metrics import Curves
from tfos_lab.driver.state.events import MetricsReported

if TYPE_CHECKING:
    from tfos_lab.driver.cluster import Cluster

logger = logging.getLogger(__name__)

PERIOD_S = 5.0
# How long Python's exit waits for what is still to be logged.
EXIT_TIMEOUT_S = 10.0

_MAX_BATCH = 100
_MAX_METRICS = 1000
_MAX_REPORTS = 5000
_MAX_TEXT = 250

_logged: Counter[str] = Counter()


def make_logger(run: Cluster) -> MlflowLogger | None:
    """Return what logs a cluster to the active MLflow run; None where MLflow is not in use, or none is active."""
    mlflow = sys.modules.get("mlflow")
    try:
        active = mlflow.active_run() if mlflow is not None else None
        return None if active is None else MlflowLogger(mlflow, active.info.run_id, run)
    except Exception as error:  # noqa: BLE001 - MLflow raises errors of many kinds, and the cluster runs without it
        logger.warning("the cluster is not logged to MLflow: %s", error)
        return None


class MlflowLogger:
    """Logs one cluster to an MLflow run, from `start` to `finish` (thread ``tfos-mlflow``).

    Names of the MLflow run's second cluster begin with ``<cluster>-2/``, and so on: params cannot change.
    """

    def __init__(self, mlflow: Any, run_id: str, run: Cluster) -> None:
        self._entities = mlflow.entities
        self._client = mlflow.MlflowClient(tracking_uri=mlflow.get_tracking_uri())
        self._run_id = run_id
        self._run = run
        self._sent = 0
        self._curves = Curves()
        self._prefix = ""
        self._finished = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the thread; may be called twice."""
        with self._lock:
            if self._thread is not None:
                return
            _logged[self._run_id] += 1
            count = _logged[self._run_id]
            self._prefix = f"{self._run.config.name}-{count}/" if count > 1 else ""
            self._thread = threading.Thread(target=self._log, name="tfos-mlflow", daemon=True)
            atexit.register(self.join, EXIT_TIMEOUT_S)
            self._thread.start()

    def finish(self) -> None:
        """Have the rest logged, and the thread end; may be called twice."""
        self._finished.set()

    def join(self, timeout_s: float) -> None:
        """Wait until the rest has been logged."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _log(self) -> None:
        run = self._run
        try:
            defaults = msgspec.to_builtins(ClusterConfig())
            asked = {**msgspec.to_builtins(run.config), "env": sorted(run.config.env)}
            options = {name: value for name, value in asked.items() if value and value != defaults[name]}
            params = {**options, "cluster_size": run.config.cluster_size, **run.inputs}
            made = [self._entities.Param(self._key(name), str(value)[:_MAX_TEXT]) for name, value in params.items()]
            for batch in _batches(made, _MAX_BATCH):
                self._client.log_batch(self._run_id, params=batch)
            self._tag(run=run.run_dir.name, run_dir=run.run_dir, launcher=run.view().launcher)
            while not self._finished.wait(PERIOD_S):
                self._log_metrics()
            self._log_metrics()
            view, output = run.view(), run.run_dir / "output"
            kept = {"output": output} if output.is_dir() else {}
            self._tag(outcome=view.state.value, reason=view.reason, event_files=run.output.events.folder, **kept)
        except Exception as error:  # noqa: BLE001 - the user sees the sentence; the cluster goes on
            run.history.add_note(f"not logged to MLflow any more: {type(error).__name__}: {str(error).splitlines()[0]}")
        finally:
            atexit.unregister(self.join)

    def _log_metrics(self) -> None:
        reports, self._sent = self._run.reports_after(self._sent)
        stride = -(-len(reports) // _MAX_REPORTS) or 1
        chief = next((node.name for node in self._run.view().nodes if node.is_chief), "")
        metrics = [one for report in reports[::-stride][::-1] for one in self._metrics(report, chief)]
        for batch in _batches(metrics, _MAX_METRICS):
            self._client.log_batch(self._run_id, metrics=batch)

    def _metrics(self, report: MetricsReported, chief: str) -> Iterator[Any]:
        """Yield the metrics of a report: the chief's by their names, those of others below the name of the node.

        Where there are means of steps, those of an epoch are beside them, as Keras' TensorBoard callback names them.
        """
        node = "" if report.node == chief else f"{report.node.replace(':', '-')}/"
        points = self._curves.points(report)
        for name, value in report.metrics.items():
            key = self._key(f"{node}{name}" if name in points else f"{node}epoch_{name}")
            yield self._entities.Metric(key, float(value), int(1000 * report.time_s), report.step or 0)

    def _tag(self, **tags: object) -> None:
        made = [
            self._entities.RunTag(self._key(f"tfos_lab.{name}"), str(value)) for name, value in tags.items() if value
        ]
        self._client.log_batch(self._run_id, tags=made)

    def _key(self, name: str) -> str:
        """Return a name as MLflow takes it: letters, digits and some signs."""
        return self._prefix + "".join(char if char.isalnum() or char in "_-./ " else "_" for char in name)


def _batches(items: Sequence[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
