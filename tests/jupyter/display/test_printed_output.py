"""The nodes' output stays visible: short output in full, the end of long output, and links to the files."""

from __future__ import annotations

import re

import pytest

from tests.support.fake_cluster import TRACEBACK, FakeCluster
from tfos_lab.jupyter.display.printed_output import ALL_LINES, OPEN_LINES, SHORT_LINES, render_printed, render_where


def printed(cluster: FakeCluster, **options) -> str:
    return "".join(render_printed(cluster.view(), lambda node, lines: cluster.logs(node, tail=lines), **options))


def in_sight(html: str) -> str:
    """The text that is visible without a click."""
    return re.sub(r"<[^>]*>", "", re.sub(r"<details.*?</details>", "", html, flags=re.DOTALL))


def lines_of(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(count))


def test_short_output_of_each_node_is_visible_without_a_click() -> None:
    cluster = FakeCluster(nodes=2)
    for node in cluster.nodes:
        cluster.write(node, "hello\n  <indented>\n")
    assert in_sight(printed(cluster)) == "chief:0hello\n  &lt;indented&gt;\nworker:0hello\n  &lt;indented&gt;\n"


def test_a_single_node_is_not_named() -> None:
    cluster = FakeCluster(nodes=1)
    cluster.write("chief:0", "hello\n")
    assert in_sight(printed(cluster)) == "hello\n"


def test_all_of_twelve_nodes_are_listed() -> None:
    cluster = FakeCluster(nodes=12)
    for node in cluster.nodes:
        cluster.write(node, f"{node} was here\n")
    assert re.findall(r"\S+ was here", in_sight(printed(cluster).replace("</span>", " "))) == [
        f"{node} was here" for node in cluster.nodes
    ]


def test_long_output_is_folded_with_the_number_of_lines() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.write("chief:0", lines_of(1000))
    cluster.write("worker:0", lines_of(SHORT_LINES + 1))
    html = printed(cluster)
    assert in_sight(html) == ""
    assert "last 20 lines" in html
    assert "line 999\n" in html
    assert "line 979\n" not in html
    assert f">{SHORT_LINES + 1} lines<" in html


def test_very_many_nodes_are_all_listed_and_the_notebook_stays_small() -> None:
    cluster = FakeCluster(nodes=200)
    for node in cluster.nodes:
        cluster.write(node, lines_of(1000))
    html = printed(cluster)
    assert html.count("<details") == 200
    assert html.count("line ") <= max(ALL_LINES, 3 * 200) + 200


def test_short_output_of_very_many_nodes_is_shown_as_far_as_it_fits() -> None:
    cluster = FakeCluster(nodes=OPEN_LINES + 1)
    for node in cluster.nodes:
        cluster.write(node, "hello\n")
    html = printed(cluster)
    assert in_sight(html).count("hello") == OPEN_LINES
    assert "1 more node<" in html
    assert html.count("hello") == OPEN_LINES + 1


@pytest.mark.parametrize("lines_before", [1, SHORT_LINES])
def test_the_failed_node_comes_first_with_its_last_lines(lines_before: int) -> None:
    cluster = FakeCluster()
    for node in cluster.nodes:
        cluster.write(node, lines_of(lines_before) + "10%\r20%\n")
    cluster.change("worker:1", state="failed")
    cluster.write("worker:1", TRACEBACK)
    html = printed(cluster)
    first = re.split(r"(?=<details|<div class=\"tfos-said)", html)[1]
    assert 'data-state="failed"' in first
    assert "worker:1" in first
    assert '<span class="tfos-fg-red">ValueError</span>' in first
    assert "10%" not in first, "a progress bar shows only where it ended"
    assert "20%" in first


def test_a_silent_node_is_not_listed() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.write("chief:0", "\n\n")
    assert printed(cluster) == ""


def test_logs_that_can_be_opened_are_linked() -> None:
    cluster = FakeCluster(nodes=2)
    cluster.write("chief:0", lines_of(100))
    assert "<a" not in printed(cluster)
    assert render_where(cluster.view(), "/runs/1") == (
        '<div class="tfos-where">Logs: <span class="tfos-path">/runs/1</span></div>'
    )

    def link_of(node: str) -> str | None:
        return 'runs/a "b".log' if node == "chief:0" else None

    assert '<a href="runs/a &quot;b&quot;.log">whole log</a>' in printed(cluster, link_of=link_of)
    where = render_where(cluster.view(), "/runs/1", link_of)
    assert where.endswith('/runs/1</span> · <a href="runs/a &quot;b&quot;.log">chief:0</a></div>')
