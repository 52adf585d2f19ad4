"""What JupyterLab's panel shows: the words and numbers of the card, for live clusters and ended runs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.fake_cluster import FakeCluster
from tests.support.outline import Outline, words
from tests.support.recorded_runs import failure, make_record, this_process
from tests.support.staged_views import COMPUTE, INPUT, make_hang, make_straggle, staged_cluster
from tfos_lab.core.markup import Html
from tfos_lab.driver.record.format import RunRecord
from tfos_lab.driver.runs.run import Run
from tfos_lab.driver.state.events import ClusterView, RunFacts, SearchFacts
from tfos_lab.notebook.server.panel import Listed, end_note, render_panel

NASTY = "<script>alert('x')</script>"
NOW_S = 1_800_000_000.0


def live(view: ClusterView, **more: object) -> Html:
    record = RunRecord(written_s=NOW_S, process=this_process(), view=view)
    return render_panel([Listed(Run(record, Path("/runs/1")), **more)], [], view.started_s + 65)


def ended(**fields: object) -> Listed:
    return Listed(Run(make_record("mnist-1", NOW_S - 20, [{"loss": 0.5}], **fields), Path("/runs/1")), "a/train.ipynb")


def staged(profile=INPUT) -> FakeCluster:
    cluster = staged_cluster(profile)
    make_straggle(cluster, "worker:0")
    make_hang(cluster, "worker:1")
    return cluster


def test_a_thousand_nodes_take_no_thousand_rows():
    html = live(staged(dataclasses.replace(COMPUTE, nodes=1000)).view())
    assert len(html) < 60_000
    assert "worker:1" in words(html), "the worst are listed"
    assert "986 more are not listed" in words(html), "one row tells what the others have in common"


def test_a_search_has_its_best_value():
    view = FakeCluster(nodes=2).view()
    nodes = tuple(dataclasses.replace(node, run=RunFacts("lr=0.1", seconds=3.0)) for node in view.nodes)
    search = SearchFacts("val_loss", 0.25, "trial 0: lr=0.1")
    view = dataclasses.replace(view, of_runs=True, search=search, nodes=nodes, state="running")
    assert "best val_loss 0.25" in words(live(view))
    many = tuple(dataclasses.replace(nodes[0], name=f"trial {place}", task_index=place) for place in range(100))
    assert "36 more are not listed here" in words(live(dataclasses.replace(view, nodes=many)))


@pytest.mark.parametrize(
    ("fields", "line", "note"),
    [
        ({}, "✓ done", "mnist is done after 0.65 s (a/train.ipynb): loss 0.5"),
        (failure(), "✗ failed", "mnist failed after 0.65 s (a/train.ipynb): worker:0: ValueError: no such label: 11"),
        ({"state": "stopped", "reason": "stopped by the user"}, "■ stopped",
         "mnist was stopped after 0.65 s (a/train.ipynb): stopped by the user"),
        ({"state": "running", "ended_s": None}, "✗ lost",
         "mnist was lost after 0.65 s (a/train.ipynb): its kernel ended before it"),
    ],
    ids=["done", "failed", "stopped", "lost"],
)  # fmt: skip
def test_an_ended_run_is_a_line_and_a_sentence(fields, line, note):
    one = ended(**fields)
    shown = words(render_panel([], [one], NOW_S))
    assert line in shown
    assert "Show the cell of mnist in a/train.ipynb" in shown
    assert end_note(one, NOW_S) == note


def test_nothing_that_a_node_prints_or_is_called_becomes_markup():
    cluster = staged()
    for node in cluster.nodes:
        cluster.change(node, host=NASTY, detail=NASTY, metrics={NASTY: 0.5})
    cluster.alter(name=NASTY, verdict=NASTY, alarm=NASTY)
    record = failure(message=NASTY)
    html = live(cluster.view(), notebook=f"{NASTY}/a", has_tensorboard=True)
    html += render_panel([], [ended(**record)], NOW_S)
    assert "script" not in Outline(html).tags
    assert "alert" in html
