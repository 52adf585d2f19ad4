"""How far a cluster is, in one step and one metric."""

from __future__ import annotations

import pytest

from tfos_lab.core.recorded_cluster import RecordedActivity, RecordedFigures, RecordedNode
from tfos_lab.engine.discovery.contents import figures_of, figures_of_nodes, recorded
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.events import ClusterView, NodeView, SearchFacts


def node(step=None, state="running", **metrics):
    return RecordedNode("worker:0", state, step=step, total_steps=None if step is None else 9, metrics=metrics)


@pytest.mark.parametrize(
    ("nodes", "figures"),
    [
        ([], RecordedFigures()),
        ([node()], RecordedFigures()),
        ([node(5), node(3), node()], RecordedFigures(3, 9)),
        ([node(3, "done"), node(5)], RecordedFigures(5, 9)),
        ([node(3, "done"), node(4, "done")], RecordedFigures(3, 9)),
        ([node(), node(1, accuracy=0.5, loss=0.1)], RecordedFigures(1, 9, "loss", 0.1)),
        ([node(1, accuracy=0.5), node(1, loss=0.1)], RecordedFigures(1, 9, "accuracy", 0.5)),
        ([node(1, "of another version", loss=None)], RecordedFigures(1, 9, "loss", None)),
    ],
)
def test_the_step_is_the_slowest_one_and_the_metric_is_the_loss_if_there_is_one(nodes, figures):
    assert figures_of_nodes(nodes) == figures


def test_a_search_shows_its_best_value_and_other_independent_runs_nothing():
    nodes = (NodeView("run:0", "run", 0, is_chief=False, step=4, metrics={"loss": 1.0}),)
    search = SearchFacts(metric="loss", best=0.5)
    view = ClusterView("id", "name", "running", "local", 0.0, None, nodes, {}, of_runs=True)
    assert figures_of(view) == RecordedFigures()
    view = ClusterView("id", "name", "running", "local", 0.0, None, nodes, {}, of_runs=True, search=search)
    assert figures_of(view) == RecordedFigures(metric="best loss", value=0.5)


def test_a_node_is_recorded_with_what_it_does():
    activity = NodeActivity(step=9, step_s=0.5, computes=0.25, memory_bytes=7, last_sign="step 9", slower=2.0)
    view = NodeView("chief:0", "chief", 0, is_chief=True, hung="no step for 64 s", activity=activity)
    node = recorded(view)
    assert (node.node, node.state, node.hung) == ("chief:0", "waiting", "no step for 64 s")
    assert node.activity == RecordedActivity(step_s=0.5, computes=0.25, memory_bytes=7, last_sign="step 9", slower=2.0)
    assert recorded(NodeView("chief:0", "chief", 0, is_chief=True)).activity is None
