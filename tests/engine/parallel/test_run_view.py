"""The nodes of a run as one row."""

from __future__ import annotations

import dataclasses

from tfos_lab.core.states import NodeState
from tfos_lab.engine.parallel.run_view import node_of_run
from tfos_lab.engine.state.events import NodeView

CHIEF = NodeView(
    "chief:0", "chief", 0, is_chief=True, state=NodeState.RUNNING, host="a", pid=7, step=3, rows=10, gpus=("0",),
    metrics={"loss": 0.5}, address="a:1",
)  # fmt: skip
WORKER = NodeView(
    "worker:0", "worker", 0, is_chief=False, state=NodeState.IMPORTING, host="b", pid=8, step=4, rows=12, gpus=("1",)
)


def test_one_node_is_shown_under_the_name_of_its_run():
    row = node_of_run("run 3", 3, [CHIEF], "chief:0")
    assert (row.node, row.job_name, row.task_index, row.is_chief, row.address) == ("run 3", "run", 3, False, "")
    assert (row.state, row.pid, row.step, row.metrics) == ("running", 7, 3, {"loss": 0.5})


def test_a_cluster_is_as_far_as_its_last_node():
    row = node_of_run("run 3", 3, [WORKER, CHIEF], "chief:0")
    assert (row.state, row.step, row.metrics) == ("importing", 3, {"loss": 0.5})
    assert (row.host, row.rows, row.gpus, row.pid) == ("b, a", 22, ("1", "0"), 0)


def test_a_run_hangs_where_one_of_its_nodes_does():
    hung = dataclasses.replace(WORKER, hung="no step for 60 s")
    assert node_of_run("run 3", 3, [hung, CHIEF], "chief:0").hung == "worker:0: no step for 60 s"
    assert node_of_run("run 3", 3, [WORKER, CHIEF], "chief:0").hung == ""


def test_a_run_without_nodes_waits():
    assert node_of_run("run 3", 3, [], "").state == "waiting"
