"""What is said about a cluster, in words."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.state.events import FeedView
from tfos_lab.jupyter.display import summary


def seen(state: str, *node_states: str, reason: str = "", detail: str = ""):
    view = FakeCluster(nodes=len(node_states)).view()
    nodes = tuple(
        dataclasses.replace(node, state=node_state, detail=detail)
        for node, node_state in zip(view.nodes, node_states, strict=True)
    )
    return dataclasses.replace(view, state=state, nodes=nodes, reason=reason)


@pytest.mark.parametrize(
    ("state", "nodes", "said"),
    [
        ("launching", ["waiting"] * 4, "0/4 nodes reserved"),
        ("reserving", ["reserved", "reserved", "waiting", "waiting"], "2/4 nodes reserved"),
        ("starting", ["running", "importing", "starting", "importing"], "1/4 nodes running"),
        ("running", ["serving", "running", "done", "running"], "4/4 nodes running"),
        ("done", ["done", "done", "stopped", "done"], "3/4 nodes done"),
        ("failed", ["failed", "stopped", "stopped", "lost"], "0/4 nodes done"),
    ],
)
def test_the_headline_counts_what_matters_now(state: str, nodes: list[str], said: str) -> None:
    assert summary.headline(seen(state, *nodes)) == said


@pytest.mark.parametrize(
    ("state", "nodes", "told"),
    [
        ("failed", ["running", "failed", "waiting", "importing"], ["stopping", "failed", "waiting", "stopping"]),
        ("stopping", ["running", "stopped", "done", "lost"], ["stopping", "stopped", "done", "lost"]),
        ("running", ["running", "serving", "done", "starting"], ["running", "serving", "done", "starting"]),
    ],
)
def test_nodes_that_outlive_their_cluster_are_stopping(state: str, nodes: list[str], told: list[str]) -> None:
    assert [node.state for node in summary.with_endings(seen(state, *nodes)).nodes] == told


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.00 s"), (0.123, "0.12 s"), (9.996, "10.0 s"), (59.96, "1:00"), (245, "4:05"), (3723, "1:02:03")],
)
def test_durations_read_well(seconds: float, text: str) -> None:
    assert summary.format_seconds(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.123456, "0.1235"),
        (2.0, "2"),
        (1234.5, "1,234"),
        (1e-7, "1.000e-07"),
        (2.5e9, "2.500e+09"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_metrics_have_four_digits(value: float, text: str) -> None:
    assert summary.format_metric(value) == text


def test_the_loss_comes_first_and_validation_last() -> None:
    metrics = {"val_loss": 2.0, "accuracy": 0.5, "loss": 1.0, "lr": 0.1}
    assert summary.format_metrics(metrics) == "loss 1 · accuracy 0.5 · lr 0.1"
    assert summary.format_metrics(metrics, at_most=9).endswith("val_loss 2")


def test_columns_that_say_nothing_are_left_out() -> None:
    view = seen("running", "running", "running")
    assert [column.key for column in summary.node_columns(view)] == ["node", "state"]
    first = dataclasses.replace(view.nodes[0], host="h", step=1, metrics={"loss": 0.5}, rows=7, gpus=("0", "1"))
    columns = summary.node_columns(dataclasses.replace(view, nodes=(first, view.nodes[1])))
    assert [column.title for column in columns] == ["Node", "State", "Step", "loss", "Rows", "Host", "GPUs"]
    assert [column.text(first) for column in columns] == ["chief:0", "running", "1", "0.5", "7", "h", "0, 1"]
    assert [column.text(view.nodes[1]) for column in columns][2:] == [""] * 5


def test_progress_is_known_only_with_a_total() -> None:
    node = seen("running", "running").nodes[0]
    assert summary.progress(node) is None
    assert summary.progress(dataclasses.replace(node, step=5)) is None
    assert summary.progress(dataclasses.replace(node, step=5, total_steps=20)) == 0.25
    assert summary.progress(dataclasses.replace(node, step=25, total_steps=20)) == 1.0


def test_the_furthest_node_stands_for_the_cluster() -> None:
    view = seen("running", "running", "running")
    assert summary.furthest(view) == ""
    ahead = dataclasses.replace(
        view.nodes[1], step=12, total_steps=40, metrics={"accuracy": 0.9, "loss": 0.43, "lr": 1}
    )
    nodes = (dataclasses.replace(view.nodes[0], step=11, rows=99), ahead)
    assert summary.furthest(dataclasses.replace(view, nodes=nodes)) == "12/40 · loss 0.43 · accuracy 0.9"
    fed = dataclasses.replace(view.nodes[0], rows=1200)
    assert summary.furthest(dataclasses.replace(view, nodes=(fed, view.nodes[1]))) == "1,200 rows"


def test_rows_are_the_progress_where_no_steps_are_known() -> None:
    view = seen("running", "running")
    node = dataclasses.replace(view.nodes[0], rows=30)
    feed = FeedView(rows={"chief:0": 30}, partitions=1, size_bytes=1, epochs=2)
    assert summary.progress(node, [feed]) is None, "more rows may come"
    whole = dataclasses.replace(feed, complete=True)
    assert summary.progress(node, [whole]) == 0.5
    assert summary.progress(dataclasses.replace(node, step=1, total_steps=10), [whole]) == 0.1
    assert summary.progress(node, [whole, dataclasses.replace(whole, number=1)]) == 0.25, "both are to be read"
    assert summary.progress(node, [whole, dataclasses.replace(feed, number=1)]) is None
    assert summary.progress(node, [dataclasses.replace(whole, kind="stream")]) is None, "a stream has no end"
    assert summary.progress_column(view) == "rows"


def test_the_feed_is_told_in_one_line() -> None:
    rows = {"chief:0": 1000, "worker:0": 797}
    feed = FeedView(rows=rows, partitions=3, size_bytes=500_000, total_partitions=4, started_s=1.0)
    assert summary.feed_line(feed) == "1,797 rows fed · 3/4 partitions · 500 kB"
    done = dataclasses.replace(feed, partitions=4, complete=True, epochs=3, ended_s=1.5)
    assert summary.feed_line(done) == (
        "1,797 rows fed · 4/4 partitions · 500 kB in 0.50 s (3,590 rows/s, 1 MB/s) · 3 epochs"
    )
    assert summary.feed_shares(done) == "chief:0 1,000 · worker:0 797"
    many = dataclasses.replace(done, rows={f"worker:{number}": number for number in range(5, 25)})
    assert summary.feed_shares(many) == "20 nodes with 5 to 24 rows"
    even = dataclasses.replace(done, rows={f"worker:{number}": 7 for number in range(20)})
    assert summary.feed_shares(even) == "20 nodes with 7 rows each"


def test_all_that_was_fed_has_a_line_and_the_last_one_is_told_whole() -> None:
    assert summary.feed_lines(seen("running", "running")) == []
    table = FeedView(rows={"chief:0": 10}, partitions=2, total_partitions=2, size_bytes=1000, complete=True, epochs=2)
    table = dataclasses.replace(table, started_s=1.0, ended_s=1.5)
    stream = FeedView(kind="stream", rows={"chief:0": 1}, partitions=9, micro_batches=1, size_bytes=50)
    answered = FeedView(kind="inference", rows={"chief:0": 1200}, partitions=1, ended_s=3.0)
    view = dataclasses.replace(seen("running", "running"), feeds=(table,))
    assert summary.feed_lines(view) == ["10 rows fed · 2/2 partitions · 1 kB in 0.50 s (20 rows/s, 2 kB/s) · 2 epochs"]
    view = dataclasses.replace(view, feeds=(table, stream))
    assert summary.feed_lines(view) == [
        "feed 1: 10 rows in 0.50 s · 2 epochs",
        "stream 1: 1 row fed · 1 micro-batch · 50 B",
    ]
    view = dataclasses.replace(view, feeds=(table, stream, answered))
    assert summary.feed_lines(view)[1:] == [
        "stream 1: 1 row · 1 micro-batch",
        "inference 1: 1,200 rows answered · 1 partition",
    ]


def test_of_very_many_feeds_the_first_are_summed_up() -> None:
    feeds = tuple(FeedView(number=number, rows={"chief:0": 100}) for number in range(20))
    lines = summary.feed_lines(dataclasses.replace(seen("running", "running"), feeds=feeds))
    assert lines[:2] == ["15 earlier ones: 1,500 rows", "feed 16: 100 rows"]
    assert len(lines) == 6
    assert lines[-1].startswith("feed 20: 100 rows fed")
