"""What is kept of a run: its history while it lives, ``run.json``, and what MLflow is told."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shutil
import stat
import sys
import threading
import time
from types import SimpleNamespace
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pytest

import tfos_lab
from tests.support.clusters import running_clusters
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tests.support.recorded_runs import write_run
from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.history import History
from tfos_lab.driver.state.events import FeedProgressed, FeedView, MetricsReported, NodeChanged, StateChanged

pytestmark = pytest.mark.leaves_nothing


CALLED_S = 100.0


def state(name, time_s):
    return StateChanged(time_s=time_s, state=RunState(name))


def test_the_story_is_a_line_for_each_change_of_the_run_and_its_nodes():
    history = History(CALLED_S)
    history.record(
        state("running", 101.0), MetricsReported(time_s=101.5, node="chief:0", step=1, total_steps=2, metrics={})
    )
    history.record(NodeChanged(time_s=109.25, node="worker:1", state=NodeState.LOST, detail="not heard of for 5 s"))
    history.record(StateChanged(time_s=109.25, state=RunState.FAILED, reason="worker:1: Lost: it is gone"))
    assert history.story().splitlines() == [
        "    1.000 s  running",
        "    9.250 s  worker:1 lost: not heard of for 5 s",
        "    9.250 s  failed: worker:1: Lost: it is gone",
    ]


def test_a_restart_lasts_until_all_nodes_run_again_or_none_ever_will():
    history = History(CALLED_S)
    states = {"running": 101.0, "restarting": 103.0, "reserving": 104.0, "starting": 105.0}
    for name, time_s in states.items():
        history.record(state(name, time_s))
    assert history.restarts == ((3.0, None),)
    history.record(state("running", 106.0))
    history.record(state("restarting", 108.0))
    history.record(state("failed", 109.0))
    assert history.restarts == ((3.0, 6.0), (8.0, 9.0))


# ---- the progress of rows: one view for each call of train or inference ----------------------------------------------


def fed(rows, at_s, *, feed=0, source=0, stream=False, complete=False, **fields):
    return FeedProgressed(
        time_s=100.0 + at_s,
        feed=feed,
        rows={"chief:0": rows},
        partitions=1,
        size_bytes=rows * 10,
        complete=complete,
        source=source,
        stream=stream,
        **fields,
    )


def views(*events):
    made = History(CALLED_S)
    for event in events:
        made.record(event)
    return list(made.feeds)


def test_each_table_has_a_view_with_its_own_time():
    first, second = views(
        fed(5, 1.0), fed(9, 2.0, complete=True, epochs=3), fed(9, 2.5, complete=True), fed(4, 3.0, feed=1, source=1)
    )
    assert first == FeedView(
        rows={"chief:0": 9}, partitions=1, size_bytes=90, complete=True, started_s=1.0, ended_s=2.0
    )
    assert (second.number, second.rows, second.complete, second.ended_s) == (1, {"chief:0": 4}, False, None)


def test_rows_to_validate_with_have_a_view_beside_that_of_the_rows_to_train_on():
    made = History(CALLED_S)
    for event in (fed(2, 1.0, split="validation"), fed(3, 2.0, split="validation", complete=True), fed(9, 3.0, feed=1)):
        made.record(event)
    assert [(view.split, view.number, view.rows, view.ended_s) for view in made.feeds] == [
        ("validation", 0, {"chief:0": 3}, 2.0),
        ("", 0, {"chief:0": 9}, None),
    ]
    assert made.timings == {"feeding": 3.0}
    for event in (fed(9, 4.0, feed=1, complete=True), fed(0, 9.0, split="validation")):
        made.record(event)
    assert made.feeds[-1].split == "validation", "what is fed again after a restart is told with all details"


def test_a_stream_is_the_sum_of_its_micro_batches():
    begun = [fed(0, 1.0, feed=0, stream=True), fed(5, 2.0, feed=0, stream=True, complete=True)]
    agreed = fed(5, 2.1, feed=0, stream=True, complete=True)
    [view] = views(*begun, agreed, fed(0, 3.0, feed=1, stream=True), fed(2, 3.5, feed=1, stream=True))
    assert (view.kind, view.rows, view.size_bytes, view.micro_batches) == ("stream", {"chief:0": 7}, 70, 1)
    again = [fed(0, 4.0, feed=2, stream=True), fed(2, 5.0, feed=2, stream=True, complete=True)]
    [view] = views(*begun, fed(0, 3.0, feed=1, stream=True), fed(2, 3.5, feed=1, stream=True), *again)
    assert (view.rows, view.micro_batches) == ({"chief:0": 7}, 2), "what was dropped in the middle does not count"


# ---- what nodes report, as a table and as a figure ------------------------------------------------------------------


@pytest.fixture
def reported(start, nodes):
    """A cluster whose nodes have reported metrics."""
    cluster = start()
    cluster.wait_until_running()
    for report in (
        m.Reported(1, None, {"loss": 2.0}, 1.0, rank=0),
        m.Reported(None, None, {"loss": 3.0, "accuracy": 0.5, "time": 7.0}, 1.0, rank=1),
        m.Reported(2, None, {"loss": 1.0}, 1.0, rank=0),
    ):
        nodes.send(report)
    handle = cluster
    eventually(lambda: len(handle.metrics) == 3)
    return handle


def test_the_table_has_a_row_for_each_report_and_a_column_for_each_metric(reported):
    frame = reported.metrics
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
        "time": "float64", "node": "string", "step": "Int64", "loss": "float64", "accuracy": "float64",
        "time_": "float64",
    }  # fmt: skip
    assert frame["step"].isna().tolist() == [False, True, False]
    assert math.isnan(frame["accuracy"][0])
    assert frame["time_"][1] == 7.0


def test_the_figure_has_a_plot_for_each_metric_and_a_timeline(reported):
    before = plt.get_fignums()
    figure = reported.plot()
    assert plt.get_fignums() == before, "a notebook would show it twice"
    *plots, timeline = figure.axes
    assert [plot.get_title("left") for plot in plots][:2] == ["loss", "accuracy"]
    assert [line.get_label() for line in plots[0].lines] == ["chief:0", "worker:0"]
    assert plots[0].lines[0].get_ydata().tolist() == [2.0, 1.0]
    assert [line.get_marker() for line in plots[0].lines] == ["None", "o"], "a line of one point is not seen"
    assert repr(reported.nodes[0]).endswith(": running on fake, step 2, loss 1>")
    assert plots[0].get_xlabel() == "seconds", "one of the reports has no step"
    assert {"launch", "run"} <= {text.get_text().split()[0] for text in timeline.get_legend().texts}


# ---- run.json -------------------------------------------------------------------------------------------------------


def recorded(cluster):
    """Return the record of a cluster's run, once it tells how the run has ended."""
    path = cluster.run_dir / "run.json"

    def ended():
        return path.exists() and not tfos_lab.runs()[cluster.run_dir].live

    eventually(ended)
    return tfos_lab.runs()[cluster.run_dir].record


def test_a_folder_that_was_removed_costs_the_record_and_not_the_run(start, nodes, caplog):
    cluster = start()
    cluster.wait_until_running()
    eventually((cluster.run_dir / "run.json").exists)
    shutil.rmtree(cluster.run_dir)
    nodes.end(0, 1)
    nodes.end(1, 2)
    assert dict(cluster.wait(timeout=60)) == {"chief:0": 1, "worker:0": 2}
    cluster.stop()
    assert caplog.text.count("run.json cannot be written") == 1


# ---- real runs ------------------------------------------------------------------------------------------------------


@pytest.fixture
def run():
    with running_clusters({"local": "processes", "env": QUICK_ENV, "cluster_size": 1}) as start:
        yield start


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
    cluster.wait(timeout=60)
    path = cluster.run_dir / "run.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    record = tfos_lab.runs()[path.parent].record
    assert record.view == cluster.view()
    assert (record.view.state, record.error) == ("done", None)
    assert [(node.name, node.state, node.metrics) for node in record.view.nodes] == [
        ("chief:0", "done", {"loss": 1 / 3}),
        ("worker:0", "done", {"loss": 1 / 3}),
    ]
    assert [(file.path, file.size_bytes) for file in record.files] == [("weights.bin", 5)]
    assert record.file_count == 1
    assert len(tfos_lab.runs()[path.parent].metrics) == 6
    assert record.code.source.startswith("def train(args, ctx):")


def test_it_is_json_of_a_version_that_people_can_read_and_later_fields_are_ignored(tmp_path):
    path = write_run(tmp_path) / "run.json"
    fields = json.loads(path.read_bytes())
    assert fields["version"] == 3
    assert '\n  "name": "mnist",\n' in path.read_text()
    path.write_text(json.dumps({**fields, "colour": "red"}))
    assert tfos_lab.runs()[path.parent].name == "mnist"


RATE, LAYERS, TABLE = 0.5, (64, 10), object()


def uses_names(args, ctx):
    return RATE, LAYERS, TABLE and None


@dataclasses.dataclass
class Options:
    rate: float
    inner: dict[str, int]


@pytest.mark.parametrize(
    ("args", "inputs"),
    [
        (
            {"lr": 0.1, "model": {"units": 64, "name": "wide"}, "deep": True, "table": object(), "none": None},
            {"args.lr": 0.1, "args.model.units": 64, "args.model.name": "wide", "args.deep": True},
        ),
        (0.5, {"args": 0.5}),
        (argparse.Namespace(lr=0.1, steps=3), {"args.lr": 0.1, "args.steps": 3}),
        (Options(0.1, {"a": 1}), {"args.rate": 0.1, "args.inner.a": 1}),
        (
            {"password": "hunter2", "API_KEY": "hunter2", "hub_token": "hunter2", "max_tokens": 64, "author": "Ada"},
            {
                "args.password": "(not recorded)", "args.API_KEY": "(not recorded)", "args.hub_token": "(not recorded)",
                "args.max_tokens": 64, "args.author": "Ada",
            },
        ),
        ({"rate": np.float32(0.5), "steps": np.int64(7)}, {"args.rate": 0.5, "args.steps": 7}),
        ({"\udcfc.csv": "\udcfc"}, {"args.\\udcfc.csv": "\\udcfc"}),
    ],
    ids=["a dict", "a number", "a namespace", "a dataclass", "secrets", "NumPy", "file names that are no UTF-8"],
)  # fmt: skip
def test_numbers_and_short_texts_are_recorded_by_their_places_and_secrets_are_not(run, args, inputs):
    cluster = run(uses_names, args, local="inline", env={})
    cluster.wait(timeout=60)
    cluster.stop()
    found = tfos_lab.runs()[cluster.run_dir].inputs
    assert found == {**inputs, "RATE": 0.5, "LAYERS": "(64, 10)"}
    assert "hunter2" not in (cluster.run_dir / "run.json").read_text()


# ---- MLflow ----------------------------------------------------------------------------------------------------------


class Metric(NamedTuple):
    key: str
    value: float
    timestamp: int
    step: int


class Pair(NamedTuple):
    key: str
    value: str


class FakeMlflow:
    """MLflow's module with one run, and the tracking server behind it."""

    def __init__(self):
        self.entities = SimpleNamespace(Metric=Metric, Param=Pair, RunTag=Pair)
        self.active = SimpleNamespace(info=SimpleNamespace(run_id=f"run-{id(self)}"))
        self.metrics, self.params, self.tags = [], {}, {}
        self.error = None

    def active_run(self):
        return self.active

    def get_tracking_uri(self):
        return "memory"

    def MlflowClient(self, *, tracking_uri):  # noqa: N802 - MLflow's own name
        assert tracking_uri == "memory"
        return self

    def log_batch(self, run_id, metrics=(), params=(), tags=()):
        assert run_id == self.active.info.run_id
        assert threading.current_thread().name == "tfos-mlflow"
        assert len(params) <= 100
        assert len(metrics) <= 1000
        if self.error is not None:
            raise self.error
        self.metrics += metrics
        self.params |= dict(params)
        self.tags |= dict(tags)


@pytest.fixture
def mlflow(monkeypatch):
    fake = FakeMlflow()
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    return fake


def finish(cluster, nodes):
    nodes.end(0)
    nodes.end(1)
    cluster.wait(timeout=60)
    cluster.stop()


def report(rank, step, **metrics):
    return m.Reported(rank=rank, step=step, total_steps=10, metrics=metrics, time_s=1000.0)


def test_options_without_values_of_env_metrics_and_tags_are_logged_to_the_active_run_and_recorded(mlflow, start, nodes):
    cluster = start(name="mnist", restarts=1, env={"SECRET": "hunter2"})
    cluster.wait_until_running()
    for step in range(3):
        nodes.send(report(0, step, loss=1.0))
    nodes.send(report(0, 2, loss=0.8, val_loss=0.9, epoch=1))
    nodes.send(report(1, 2, loss=0.5))
    eventually(lambda: cluster.reports_after()[1] == 5)
    finish(cluster, nodes)
    asked = {"name": "mnist", "restarts": "1", "cluster_size": "2", "env": "['SECRET']", "grace": "1.0"}
    assert mlflow.params == asked
    assert [(one.key, one.value, one.step) for one in mlflow.metrics] == [
        ("loss", 1.0, 0), ("loss", 1.0, 1), ("loss", 1.0, 2),
        ("epoch_loss", 0.8, 2), ("val_loss", 0.9, 2), ("epoch", 1.0, 2), ("worker-0/loss", 0.5, 2),
    ]  # fmt: skip
    assert cluster.called_s - 1 < mlflow.metrics[0].timestamp / 1000 <= time.time()
    assert mlflow.tags["tfos_lab.run"] == cluster.id
    assert mlflow.tags["tfos_lab.run_dir"] == str(cluster.run_dir)
    assert mlflow.tags["tfos_lab.outcome"] == "done"
    options = recorded(cluster).options
    assert (options["cluster_size"], options["env"]) == (2, ["SECRET"])
    assert "hunter2" not in (cluster.run_dir / "run.json").read_text()


def test_a_server_that_fails_costs_the_log_and_not_the_run(mlflow, start, nodes):
    mlflow.error = ConnectionError("the tracking server is gone\nmore")
    cluster = start()
    finish(cluster, nodes)
    assert cluster.view().notes == ("not logged to MLflow any more: ConnectionError: the tracking server is gone",)
    assert cluster.state == "done"


@pytest.mark.parametrize("is_active", [True, False])
def test_without_an_active_run_nothing_is_logged(mlflow, start, nodes, is_active, monkeypatch):
    mlflow.active = None
    if is_active:
        monkeypatch.setattr(mlflow, "active_run", lambda: 1 / 0)
    finish(start(), nodes)
    assert not mlflow.params
