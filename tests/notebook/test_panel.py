"""What JupyterLab's panel shows: the words and numbers of the card, for live clusters and ended runs."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tfos_lab
from tests.support.fake_cluster import FakeCluster
from tests.support.outline import Outline, words
from tests.support.recorded_runs import failure, write_live, write_run
from tests.support.staged_views import COMPUTE, INPUT, make_hang, make_straggle, staged_cluster
from tfos_lab.driver.state.events import ClusterView, RunFacts, SearchFacts
from tfos_lab.notebook.server.panel import Listed, end_note, render_panel

NASTY = "<script>alert('x')</script>"


@pytest.fixture
def live(tmp_path: Path) -> Callable[..., str]:
    """Draw the panel of a cluster that lives."""

    def draw(view: ClusterView, **more: object) -> str:
        run = tfos_lab.runs(tmp_path)[write_live(tmp_path / "live", view)]
        return render_panel([Listed(run, **more)], [], view.started_s + 65)

    return draw


@pytest.fixture
def ended(tmp_path: Path) -> Callable[..., Listed]:
    """Return a run that has ended, as it is listed."""

    def listed(**fields: object) -> Listed:
        folder = write_run(tmp_path, "mnist-1", ago_s=20, reports=[{"loss": 0.5}], **fields)
        return Listed(tfos_lab.runs(tmp_path)[folder], "a/train.ipynb")

    return listed


def staged(profile=INPUT) -> FakeCluster:
    cluster = staged_cluster(profile)
    make_straggle(cluster, "worker:0")
    make_hang(cluster, "worker:1")
    return cluster


def test_a_thousand_nodes_take_no_thousand_rows(live):
    html = live(staged(dataclasses.replace(COMPUTE, nodes=1000)).view())
    assert len(html) < 60_000
    assert "worker:1" in words(html), "the worst are listed"
    assert "986 more are not listed" in words(html), "one row tells what the others have in common"


def test_a_search_has_its_best_value(live):
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
def test_an_ended_run_is_a_line_and_a_sentence(ended, fields, line, note):
    one, now_s = ended(**fields), time.time()
    shown = words(render_panel([], [one], now_s))
    assert line in shown
    assert "Show the cell of mnist in a/train.ipynb" in shown
    assert end_note(one, now_s) == note


def test_nothing_that_a_node_prints_or_is_called_becomes_markup(live, ended):
    cluster = staged()
    for node in cluster.nodes:
        cluster.change(node, host=NASTY, detail=NASTY, metrics={NASTY: 0.5})
    cluster.alter(name=NASTY, verdict=NASTY, alarm=NASTY)
    record = failure(message=NASTY)
    html = live(cluster.view(), notebook=f"{NASTY}/a", has_tensorboard=True)
    html += render_panel([], [ended(**record)], time.time())
    assert "script" not in Outline(html).tags
    assert "alert" in html
