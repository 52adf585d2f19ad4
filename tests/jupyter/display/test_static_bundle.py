"""The output that stays in the notebook: self-contained, escaped, and without a widget."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser

import pytest

from tests.support.fake_cluster import TRACEBACK, FakeCluster
from tests.support.staged_views import INPUT, make_hang, make_straggle, staged_cluster
from tfos_lab.engine.state.events import FeedView, MetricsReported
from tfos_lab.jupyter.display.stacks import NodeStacks
from tfos_lab.jupyter.display.static_bundle import make_bundle, render_html, render_text

NASTY = "<script>alert('x')</script>"


class Outline(HTMLParser):
    """The tags of a document, whether they are balanced, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag: str, attrs) -> None:
        self.tags.append(tag)
        self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def failed() -> FakeCluster:
    cluster = FakeCluster(name=f"mnist {NASTY}")
    cluster.mark("launched")
    for node in cluster.nodes:
        cluster.change(node, state="stopped", host=f"host {NASTY}", step=3, total_steps=10, metrics={"loss": 0.5})
        cluster.write(node, f"{node} says {NASTY}\n\x1b[32mgreen\x1b[0m\n10%\r20%\n")
    cluster.change("worker:1", state="failed", detail=f"ValueError: {NASTY}")
    cluster.write("worker:1", TRACEBACK)
    cluster.note(f"a note {NASTY}")
    cluster.set_state("failed", f"worker:1 failed {NASTY}")
    return cluster


def tail_of(cluster: FakeCluster):
    return lambda node, lines: cluster.logs(node, tail=lines)


def test_the_bundle_contains_html_and_text_and_no_widget(failed: FakeCluster) -> None:
    bundle = make_bundle(failed.view(), tail_of(failed), failed.run_dir)
    assert set(bundle) == {"text/html", "text/plain"}


def test_text_of_users_and_nodes_does_not_become_markup(failed: FakeCluster) -> None:
    html = render_html(failed.view(), tail_of(failed), f"/runs/{NASTY}")
    outline = Outline(html)
    assert "script" not in outline.tags
    assert outline.text.count(NASTY) == 4 + 1 + 1 + 1 + 1 + 4 + 1  # hosts, name, reason, detail, note, logs, folder


def test_the_html_is_self_contained(failed: FakeCluster) -> None:
    html = render_html(failed.view(), tail_of(failed))
    for outside in ("http:", "https:", "url(", "@import", "src=", "<link"):
        assert outside not in html


def test_the_html_stays_small_enough_to_be_saved_with_every_cell(failed: FakeCluster) -> None:
    assert len(render_html(failed.view(), tail_of(failed))) < 20_000


def test_states_are_shown_as_text_and_signs_not_by_colour_alone(failed: FakeCluster) -> None:
    html = render_html(failed.view(), tail_of(failed))
    assert '<span aria-hidden="true">✗</span> failed' in html
    assert '<span aria-hidden="true">■</span> stopped' in html


def test_phases_feed_and_metrics_are_in_the_picture(failed: FakeCluster) -> None:
    feeds = (FeedView(rows={"chief:0": 5}, complete=True, ended_s=1.0), FeedView(number=1, rows={"chief:0": 10}))
    failed.alter(feeds=feeds, timings={"launched": 0.5, "done": 2.0}, ended_s=failed.view().started_s + 2)
    report = MetricsReported(time_s=0, node="chief:0", step=1, total_steps=2, metrics={f"loss {NASTY}": 0.5})
    html = render_html(failed.view(), tail_of(failed), None, [report])
    outline = Outline(html)
    assert "script" not in outline.tags
    assert "feed 1: 5 rows in 1.00 s" in outline.text
    assert "feed 2: 10 rows fed" in outline.text
    assert "launch 0.50 s reserve 1.50 s" in outline.text
    assert outline.tags.count("svg") == 1
    assert 'style="left:25.00%;width:75.00%"' in html


def test_the_text_is_a_table_for_terminals(failed: FakeCluster) -> None:
    view = dataclasses.replace(failed.view(), name="mnist", ended_s=failed.view().started_s + 12.34, reason="why")
    nodes = tuple(dataclasses.replace(node, host="h", detail=node.detail and "bad label") for node in view.nodes)
    view = dataclasses.replace(view, nodes=nodes, timings={"launched": 0.1, "done": 12.3}, notes=("a note",))
    assert render_text(view, "/runs/1").splitlines() == [
        "✗ mnist: failed · 0/4 nodes done · 12.3 s",
        "why",
        "launched 0.10 s → failed 12.3 s",
        "a note",
        "node      state      step  loss  host",
        "chief:0   ■ stopped  3/10   0.5  h",
        "worker:0  ■ stopped  3/10   0.5  h",
        "worker:1  ✗ failed   3/10   0.5  h",
        "worker:2  ■ stopped  3/10   0.5  h",
        "worker:1: bad label",
        "logs: /runs/1",
    ]


def test_html_and_text_say_why_training_is_slow_and_who_hangs() -> None:
    cluster = staged_cluster(INPUT)
    make_straggle(cluster, "worker:0")
    make_hang(cluster, "worker:1")
    answers = (NodeStacks("worker:1", "in map_fun", 0.0),)
    bundle = make_bundle(cluster.view(), lambda *_: "", stacks=answers)
    for text in bundle.values():
        for told in (INPUT.verdict, "62 % · 31 s left", "2.1× slower", "no step for 64 s", "hangs", "1.24 GB"):
            assert told in text
    assert "waits for rows 62 %, computes 30 %" in bundle["text/html"]
    assert "Stacks of worker:1 at " in bundle["text/html"]
    assert "port 4" not in bundle["text/plain"].lower()
