"""Clusters and runs that JupyterLab's panel lists, without nodes: a real publisher shows what a `FakeCluster` plays.

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

import msgspec
import pytest

from tests.support.fake_cluster import FakeCluster
from tfos_lab.core.cluster_records import birth_of
from tfos_lab.core.config import ClusterConfig
from tfos_lab.engine.discovery.publisher import Publisher
from tfos_lab.engine.record.format import NodeRecord, ProcessRecord, RunRecord, encode


class PublishedFake(FakeCluster):
    """A `FakeCluster` with what a publisher needs besides."""

    config = ClusterConfig(tensorboard=False)
    tunnel = None
    event_dir = ""

    @property
    def ended(self) -> bool:
        return self.view().state.ended


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
        self._env = {"JUPYTER_RUNTIME_DIR": str(runtime_dir), "JPY_SESSION_NAME": str(notebook or "")}
        self.cluster = PublishedFake(**fake)
        with self._in_environment():
            self._publisher = Publisher(self.cluster)
            self._publisher.publish()

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
        with self._in_environment():
            self._publisher.publish()

    def wait_for_stop(self, timeout_s: float) -> None:
        """Wait until the page has stopped it, and end it then."""
        deadline_s = time.monotonic() + timeout_s
        while not self.cluster.stops:
            assert time.monotonic() < deadline_s, "it was not stopped"
            time.sleep(0.02)
        self.close()

    def close(self) -> None:
        """Remove the record; may be called twice."""
        with self._in_environment():
            self._publisher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _in_environment(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self._env.items():
                patch.setenv(name, value)
            yield


def write_ended_run(runs: Path, run_id: str, *, notebook: Path | None = None, **changes: Any) -> None:
    """Write the record of a run that has ended, below a folder of runs."""
    process = ProcessRecord(
        host=socket.gethostname(), pid=os.getpid(), born=birth_of(os.getpid()), notebook=str(notebook or "")
    )
    now_s = time.time()
    record = RunRecord(
        id=run_id,
        name=run_id.partition("-")[0],
        launcher="spark",
        started_s=now_s - 200.0,
        written_s=now_s,
        ended_s=now_s,
        process=process,
        options={},
        versions={},
        state="done",
        outcome="done",
        nodes=(NodeRecord(node="chief:0", state="done", step=400, total_steps=400, metrics={"loss": 0.03125}),),
    )
    folder = runs / run_id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".part").write_bytes(encode(msgspec.structs.replace(record, **changes)))
    (folder / ".part").replace(folder / "run.json")
