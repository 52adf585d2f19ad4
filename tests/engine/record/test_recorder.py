"""``run.json`` of runs whose nodes the test plays, and of real ones: when it is written, and what it says."""

from __future__ import annotations

import json
import math
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tfos_lab
from tests.support.fake_nodes import until
from tests.support.quick import QUICK_ENV
from tfos_lab import messages as m
from tfos_lab.core import cluster_records
from tfos_lab.engine import runtime
from tfos_lab.engine.record import recorder as recorder_module
from tfos_lab.engine.record.format import decode
from tfos_lab.errors import NodeFailed

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture(autouse=True)
def record_in_any_case(monkeypatch):
    """Have `wait` and `stop` wait for the record, however slow the disk is."""
    monkeypatch.setattr(runtime, "RECORD_TIMEOUT_S", 60.0)


def record_of(cluster):
    path = cluster.run_dir / "run.json"
    until(path.exists)
    return decode(path.read_bytes())


@pytest.fixture
def often(monkeypatch):
    """Write at once what would be written within a second."""
    monkeypatch.setattr(recorder_module, "MIN_PERIOD_S", 0.0)


@pytest.fixture
def writes(monkeypatch):
    """The times of all writes."""
    times = []
    real = recorder_module.take_snapshot

    def take_snapshot(*args):
        times.append(time.monotonic())
        return real(*args)

    monkeypatch.setattr(recorder_module, "take_snapshot", take_snapshot)
    return times


def report(rank, step, loss):
    return m.Reported(rank=rank, step=step, total_steps=10, metrics={"loss": loss}, time_s=time.time())


def test_it_follows_the_states_of_cluster_and_nodes(start, nodes, often):
    cluster = start()
    until(lambda: record_of(cluster).state == "running")
    until(lambda: [node.state for node in record_of(cluster).nodes] == ["running", "running"])
    assert record_of(cluster).outcome is None
    nodes.end(0)
    nodes.end(1)
    cluster.wait(timeout_s=60)
    record = record_of(cluster)
    assert (record.state, record.outcome, record.error) == ("done", "done", None)
    assert record.ended_s >= record.started_s
    assert {"launched", "running", "done"} <= set(record.timings)


def test_it_is_written_at_most_once_a_period_and_not_for_each_metric(start, nodes, writes, monkeypatch):
    assert recorder_module.MIN_PERIOD_S == 1.0
    # Longer than a busy machine takes for this test.
    monkeypatch.setattr(recorder_module, "MIN_PERIOD_S", 60.0)
    monkeypatch.setattr(recorder_module, "METRICS_PERIOD_S", 60.0)
    cluster = start()
    cluster.wait_until_running()
    record_of(cluster)
    for step in range(500):
        nodes.send(report(0, step, 1.0))
    until(lambda: cluster.reports_after()[1] == 500)
    assert len(writes) == 1
    nodes.end(0)
    nodes.end(1)
    cluster.wait(timeout_s=60)
    assert len(writes) == 2


def test_metrics_alone_are_written_now_and_then(start, nodes, writes, monkeypatch):
    monkeypatch.setattr(recorder_module, "MIN_PERIOD_S", 0.01)
    monkeypatch.setattr(recorder_module, "METRICS_PERIOD_S", 0.02)
    cluster = start()
    until(lambda: record_of(cluster).state == "running")
    nodes.send(report(0, 3, 0.5))
    until(lambda: record_of(cluster).nodes[0].metrics == {"loss": 0.5})


def test_metrics_are_sampled_and_what_is_not_finite_is_null(start, nodes, monkeypatch):
    monkeypatch.setattr("tfos_lab.engine.record.snapshot.MAX_METRICS", 10)
    cluster = start()
    cluster.wait_until_running()
    for step in range(95):
        nodes.send(report(0, step, math.nan if step == 94 else 1.0))
    nodes.end(0)
    nodes.end(1)
    cluster.wait(timeout_s=60)
    record = record_of(cluster)
    assert [one.step for one in record.metrics] == [4, 14, 24, 34, 44, 54, 64, 74, 84, 94]
    assert record.metrics[-1].metrics == record.nodes[0].metrics == {"loss": None}
    assert (record.nodes[0].step, record.nodes[0].total_steps) == (94, 10)


def test_options_are_recorded_without_the_values_of_env(start):
    cluster = start(name="mnist", env={"AWS_SECRET_ACCESS_KEY": "hunter2"}, restarts=0)
    cluster.stop()
    text = (cluster.run_dir / "run.json").read_text()
    assert record_of(cluster).options["env"] == ["AWS_SECRET_ACCESS_KEY"]
    assert record_of(cluster).options["cluster_size"] == 2
    assert "hunter2" not in text


def test_the_code_and_the_versions_are_recorded(start):
    cluster = start()
    cluster.stop()
    record = record_of(cluster)
    assert record.code.name == "map_fun"
    assert record.code.source.startswith("def map_fun(args: Any, ctx: Any)")
    assert record.code.file.endswith("fake_nodes.py")
    assert record.versions["tfos_lab"] == tfos_lab.__version__
    assert set(record.versions) == {"python", "tfos_lab", "tensorflow", "keras", "pyspark"}


def test_a_folder_that_was_removed_costs_the_record_and_not_the_run(start, nodes, caplog):
    cluster = start()
    cluster.wait_until_running()
    until((cluster.run_dir / "run.json").exists)
    shutil.rmtree(cluster.run_dir)
    nodes.end(0, 1)
    nodes.end(1, 2)
    assert dict(cluster.wait(timeout_s=60)) == {"chief:0": 1, "worker:0": 2}
    cluster.stop()
    assert caplog.text.count("run.json cannot be written") == 1


# ---- real runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    clusters = []

    def run(map_fun, args=None, **options):
        clusters.append(tfos_lab.run(map_fun, args, **{"local": "processes", "env": QUICK_ENV, **options}))
        return clusters[-1]

    yield run
    for cluster in clusters:
        cluster.stop(grace_s=0.0)


def train(args, ctx):
    """Report, and leave a file; the worker raises if it is told to."""
    import pathlib

    for step in range(3):
        ctx.report(step, loss=1.0 / (step + 1))
    if ctx.is_chief:
        pathlib.Path(ctx.output_dir, "weights.bin").write_bytes(b"12345")
    if args == "raise" and not ctx.is_chief:
        raise LookupError("no such label\nand more")
    return args


def test_a_real_run_is_recorded_when_wait_returns(run):
    cluster = run(train, "fine", cluster_size=2, name="mnist")
    cluster.wait(timeout_s=60)
    path = cluster.run_dir / "run.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    record = decode(path.read_bytes())
    assert (record.id, record.name, record.launcher) == (cluster.id, "mnist", "local")
    assert (record.outcome, record.error) == ("done", None)
    assert [(node.node, node.state, node.metrics) for node in record.nodes] == [
        ("chief:0", "done", {"loss": 1 / 3}),
        ("worker:0", "done", {"loss": 1 / 3}),
    ]
    assert [(file.path, file.size_bytes) for file in record.files] == [("weights.bin", 5)]
    assert record.file_count == 1
    assert len(record.metrics) == 6
    assert record.timings == cluster.timings
    assert record.code.source.startswith("def train(args, ctx):")


def test_a_real_run_that_fails_is_recorded_with_its_error(run):
    with pytest.raises(NodeFailed):
        run(train, "raise", cluster_size=2).wait(timeout_s=60)
    cluster = tfos_lab.clusters()[-1]
    cluster.stop()
    record = record_of(cluster)
    assert (record.state, record.outcome) == ("failed", "failed")
    error = json.loads((cluster.run_dir / "run.json").read_bytes())["error"]
    assert error == {"type": "NodeFailed", "kind": "LookupError", "node": "worker:0", "message": "no such label"}


def test_an_inline_run_is_recorded_too(run):
    cluster = run(lambda: "here", local="inline")
    cluster.wait(timeout_s=60)
    cluster.stop()
    record = record_of(cluster)
    assert (record.launcher, record.outcome) == ("inline", "done")


_KERNEL = """
import time, tfos_lab

cluster = tfos_lab.run(lambda: time.sleep(60), local="inline")
print(cluster.run_dir, flush=True)
cluster.wait()
"""


def test_a_kernel_that_is_killed_leaves_a_readable_record(tmp_path):
    environ = {**os.environ, "TFOS_LAB_RUNS": str(tmp_path / "runs"), "JUPYTER_RUNTIME_DIR": str(tmp_path / "jupyter")}
    with subprocess.Popen([sys.executable, "-c", _KERNEL], env=environ, stdout=subprocess.PIPE, text=True) as kernel:
        try:
            path = Path(kernel.stdout.readline().strip(), "run.json")
            until(path.exists)
        finally:
            kernel.kill()
    record = decode(path.read_bytes())
    assert (record.process.pid, record.outcome) == (kernel.pid, None)
    assert cluster_records.birth_of(record.process.pid) != record.process.born
