"""The state of a cluster as text."""

from __future__ import annotations

import dataclasses

import pytest

from tests.jupyter.views import view_of
from tfos_lab.engine.state.events import RunFacts, SearchFacts
from tfos_lab.jupyter.display import summary


@pytest.mark.parametrize(
    ("state", "nodes", "text"),
    [
        ("launching", ["waiting"] * 4, "0/4 nodes reserved"),
        ("reserving", ["reserved", "reserved", "waiting", "waiting"], "2/4 nodes reserved"),
        ("starting", ["running", "importing", "starting", "importing"], "1/4 nodes running"),
        ("running", ["serving", "running", "done", "running"], "4/4 nodes running"),
        ("done", ["done", "done", "stopped", "done"], "3/4 nodes done"),
        ("failed", ["failed", "stopped", "stopped", "lost"], "0/4 nodes done"),
    ],
)
def test_the_headline_counts_what_matters_now(state: str, nodes: list[str], text: str) -> None:
    assert summary.headline(view_of(state, *nodes)) == text


@pytest.mark.parametrize(
    ("state", "nodes", "shown"),
    [
        ("failed", ["running", "failed", "waiting", "importing"], ["stopping", "failed", "waiting", "stopping"]),
        ("stopping", ["running", "stopped", "done", "lost"], ["stopping", "stopped", "done", "lost"]),
        ("running", ["running", "serving", "done", "starting"], ["running", "serving", "done", "starting"]),
    ],
)
def test_nodes_that_outlive_their_cluster_are_stopping(state: str, nodes: list[str], shown: list[str]) -> None:
    assert [node.state for node in summary.with_endings(view_of(state, *nodes)).nodes] == shown


def test_the_furthest_node_represents_the_cluster() -> None:
    view = view_of("running", "running", "running")
    assert summary.furthest(view) == ""
    ahead = dataclasses.replace(
        view.nodes[1], step=12, total_steps=40, metrics={"accuracy": 0.9, "loss": 0.43, "lr": 1}
    )
    nodes = (dataclasses.replace(view.nodes[0], step=11, rows=99), ahead)
    assert summary.furthest(dataclasses.replace(view, nodes=nodes)) == "12/40 · loss 0.43 · accuracy 0.9"
    fed = dataclasses.replace(view.nodes[0], rows=1200)
    assert summary.furthest(dataclasses.replace(view, nodes=(fed, view.nodes[1]))) == "1,200 rows"


def test_independent_runs_are_counted_by_what_has_become_of_them() -> None:
    view = view_of("running", "done", "done", "failed", "lost", "running", "waiting", "stopped")
    nodes = [dataclasses.replace(node, run=RunFacts(going=node.state == "running")) for node in view.nodes]
    runs = dataclasses.replace(view, nodes=tuple(nodes), of_runs=True)
    assert summary.headline(runs) == "2 of 7 done, 2 failed, 1 running, 1 stopped"
    assert summary.runs_line(runs) == "5 of 7 ended · 1 waits for a slot"
    assert summary.part_ended(runs) == 5 / 7


def test_a_search_tells_its_best_trial() -> None:
    view = view_of("running", "done", "stopped early", "running")
    nodes = [dataclasses.replace(node, run=RunFacts(going=node.state == "running")) for node in view.nodes]
    found = SearchFacts("loss", 0.125, "trial 2: lr=0.1")
    search = dataclasses.replace(view, nodes=tuple(nodes), of_runs=True, search=found)
    assert summary.headline(search) == "1 of 3 done, 1 stopped early, 1 running · best loss 0.125 (trial 2: lr=0.1)"
    assert summary.part_ended(search) == 2 / 3
    nothing = dataclasses.replace(search, search=SearchFacts("loss"))
    assert summary.headline(nothing) == "1 of 3 done, 1 stopped early, 1 running"
