"""Rates over the last few seconds."""

from __future__ import annotations

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.state.events import FeedView
from tfos_lab.jupyter.display.throughput import WINDOW_S, Meter, Throughput


def test_a_rate_is_that_of_the_last_seconds() -> None:
    meter = Meter()
    assert meter.per_s is None
    for tenth in range(200):
        meter.record(tenth / 10, tenth * 10)
    assert round(meter.per_s or 0) == 100
    for tenth in range(200, 300):
        meter.record(tenth / 10, 1990)
    assert meter.per_s == 0, "what has stopped is not shown as running"


def test_a_rate_needs_some_time() -> None:
    meter = Meter()
    meter.record(0.0, 5)
    meter.record(0.1, 500)
    assert meter.per_s is None


def test_a_number_that_restarts_has_no_negative_rate() -> None:
    meter = Meter()
    for second, value in enumerate([100, 200, 0, 50]):
        meter.record(float(second), value)
    assert meter.per_s == 50


def test_samples_do_not_pile_up() -> None:
    meter = Meter()
    for number in range(10_000):
        meter.record(number / 10, number)
    assert len(meter._samples) <= WINDOW_S * 10 + 2


def test_nodes_and_the_feed_have_rates_of_their_own() -> None:
    cluster, throughput = FakeCluster(nodes=2), Throughput()
    for second in range(3):
        cluster.change("chief:0", rows=second * 64)
        feed = FeedView(rows={"chief:0": second * 500}, partitions=1, size_bytes=second * 1000)
        cluster.alter(feeds=(feed,))
        throughput.record(cluster.view(), float(second))
    assert throughput.rows_per_s("chief:0") == 64
    assert throughput.rows_per_s("worker:0") is None
    assert (throughput.fed_rows_per_s, throughput.fed_bytes_per_s) == (500, 1000)
