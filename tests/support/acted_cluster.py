"""Clusters and runs that JupyterLab's panel lists, without nodes: records of what a `FakeCluster` plays.

with ActedCluster(runtime_dir, name="wide", nodes=40) as acted:
acted.alter_node(7, hung="no step for 64 s; last: step 41")
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.eventually import eventually
from tests.support.fake_cluster import FakeCluster
from tfos_lab.core import cluster_records
from tfos_lab.driver.record.format import ProcessRecord, RunRecord, encode
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.state.events import ClusterView, NodeView


def process_of_test(notebook: Path | None = None) -> ProcessRecord:
    """Return this very process, as if it were the kernel of a notebook."""
    pid, born = os.getpid(), cluster_records.birth_of(os.getpid())
    return ProcessRecord(host=socket.gethostname(), pid=pid, born=born, notebook=str(notebook or ""))


class ActedCluster:
    """Publishes a cluster to the Jupyter servers of a runtime folder until it is stopped or closed.

    Parameters
    ----------
    runtime_dir : path
        Jupyter's runtime folder.
    notebook : path, optional
        The notebook that it pretends to come from.
    fake : keyword arguments
        See `FakeCluster`.
    """

    def __init__(self, runtime_dir: Path, *, notebook: Path | None = None, **fake: Any) -> None:
        self._runtime_dir = runtime_dir
        self._process = process_of_test(notebook)
        self.cluster = FakeCluster(**fake)
        self.publish()
        with self._in_environment():
            cluster_records.publish(cluster_records.ClusterRecord.here(self.cluster.id, str(self.cluster.run_dir)))

    def set_state(self, state: str) -> None:
        """Let all nodes and the cluster enter a state."""
        for node in self.cluster.nodes:
            self.cluster.change(node, state=state)
        self.cluster.set_state(state)
        self.publish()

    def alter_node(self, place: int, **fields: Any) -> None:
        """Change what is seen of a node."""
        self.cluster.change(self.cluster.nodes[place], **fields)

    def publish(self) -> None:
        """Write the record as of now."""
        record = RunRecord(written_s=time.time(), process=self._process, view=self.cluster.view())
        RunDir(self.cluster.run_dir).write_record(encode(record))

    def wait_for_stop(self) -> None:
        """Wait until the page has asked for its end, and end it then."""
        with self._in_environment():
            mark = cluster_records.stop_mark(self.cluster.id)
        assert mark is not None
        assert eventually(mark.exists)
        self.close()

    def close(self) -> None:
        """Remove the record; may be called twice."""
        with self._in_environment():
            cluster_records.remove(self.cluster.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _in_environment(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JUPYTER_RUNTIME_DIR", str(self._runtime_dir))
            yield


def write_ended_run(runs: Path, run_id: str, *, notebook: Path | None = None, **changes: Any) -> None:
    """Write the record of a run that has ended, below a folder of runs; ``changes`` are of the view, or its error."""
    now_s = time.time()
    error = changes.pop("error", None)
    view: dict[str, Any] = {
        "cluster_id": run_id,
        "name": run_id.partition("-")[0],
        "launcher": "spark",
        "started_s": now_s - 200.0,
        "ended_s": now_s,
        "state": "done",
        "timings": {},
        "nodes": (NodeView("chief:0", "chief", 0, True, "done", step=400, total_steps=400, metrics={"loss": 0.03125}),),
    }
    record = RunRecord(
        written_s=now_s, process=process_of_test(notebook), view=ClusterView(**{**view, **changes}), error=error
    )
    folder = runs / run_id
    folder.mkdir(parents=True, exist_ok=True)
    RunDir(folder).write_record(encode(record))
