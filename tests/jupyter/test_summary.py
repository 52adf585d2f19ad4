"""What is said about a cluster, in words."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.events import FeedProgressed
from tfos_lab.jupyter import summary


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
    feed = FeedProgressed(time_s=0, feed=0, rows={"chief:0": 30}, partitions=1, size_bytes=1, epochs=2)
    assert summary.progress(node, feed) is None, "more rows may come"
    whole = dataclasses.replace(feed, complete=True)
    assert summary.progress(node, whole) == 0.5
    assert summary.progress(dataclasses.replace(node, step=1, total_steps=10), whole) == 0.1
    assert summary.progress(node, dataclasses.replace(whole, feed=1)) is None, "rows of earlier feeds count as well"
    assert summary.progress_column(view) == "rows"


def test_the_feed_is_told_in_one_line() -> None:
    rows = {"chief:0": 1000, "worker:0": 797}
    feed = FeedProgressed(time_s=0, feed=0, rows=rows, partitions=3, size_bytes=500_000, total_partitions=4)
    view = dataclasses.replace(seen("running", "running"), feed=feed, timings={"feeding": 1.0})
    assert summary.feed_line(view) == "1,797 rows fed · 3/4 partitions · 500 kB"
    done = dataclasses.replace(feed, partitions=4, complete=True, epochs=3)
    view = dataclasses.replace(view, feed=done, timings={"feeding": 1.0, "fed": 1.5})
    assert summary.feed_line(view) == (
        "1,797 rows fed · 4/4 partitions · 500 kB in 0.50 s (3,590 rows/s, 1 MB/s) · 3 epochs"
    )
    again = dataclasses.replace(view, feed=dataclasses.replace(done, feed=2, epochs=1))
    assert summary.feed_line(again) == "feed 3: 1,797 rows fed · 4/4 partitions · 500 kB", "the marks are not its own"
    assert summary.feed_shares(done) == "chief:0 1,000 · worker:0 797"
    many = dataclasses.replace(done, rows={f"worker:{number}": number for number in range(5, 25)})
    assert summary.feed_shares(many) == "20 nodes with 5 to 24 rows"
    even = dataclasses.replace(done, rows={f"worker:{number}": 7 for number in range(20)})
    assert summary.feed_shares(even) == "20 nodes with 7 rows each"
    assert summary.feed_line(seen("running", "running")) == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (14_620_000, "14.6 MB"), (999_999, "1 MB"), (5e12, "5000 GB")],
)
def test_sizes_read_well(count: float, text: str) -> None:
    assert summary.format_bytes(count) == text


@pytest.mark.parametrize(("rate", "text"), [(0.1234, "0.123"), (45.67, "45.7"), (123.4, "123"), (45_678, "45,700")])
def test_rates_read_well(rate: float, text: str) -> None:
    assert summary.format_rate(rate) == text


def test_a_node_s_failure_is_not_told_twice() -> None:
    told = seen("failed", "failed", "stopped", reason="chief:0 failed: ValueError: no", detail="ValueError: no")
    assert summary.broken_nodes(told) == []
    untold = dataclasses.replace(told, reason="")
    assert summary.broken_nodes(untold) == [("chief:0", "ValueError: no")]


def test_phases_come_in_the_order_of_time() -> None:
    view = dataclasses.replace(seen("running", "running"), timings={"running": 1.5, "launched": 0.1, "reserved": 0.5})
    assert summary.phase_line(view) == "launched 0.10 s → reserved 0.50 s → running 1.50 s"
    failed = dataclasses.replace(view, state="failed", timings={"launched": 0.1, "done": 2.0})
    assert summary.phase_line(failed) == "launched 0.10 s → failed 2.00 s"
