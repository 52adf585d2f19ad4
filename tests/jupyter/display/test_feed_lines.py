"""A line for each feed."""

from __future__ import annotations

import dataclasses

from tests.jupyter.views import view_of
from tfos_lab.engine.state.events import FeedView
from tfos_lab.jupyter.display.feed_lines import feed_line, feed_lines, feed_shares


def test_a_feed_has_one_line() -> None:
    rows = {"chief:0": 1000, "worker:0": 797}
    feed = FeedView(rows=rows, partitions=3, size_bytes=500_000, total_partitions=4, started_s=1.0)
    assert feed_line(feed) == "1,797 rows fed · 3/4 partitions · 500 kB"
    done = dataclasses.replace(feed, partitions=4, complete=True, epochs=3, ended_s=1.5)
    assert feed_line(done) == ("1,797 rows fed · 4/4 partitions · 500 kB in 0.50 s (3,590 rows/s, 1 MB/s) · 3 epochs")
    assert feed_shares(done) == "chief:0 1,000 · worker:0 797"
    many = dataclasses.replace(done, rows={f"worker:{number}": number for number in range(5, 25)})
    assert feed_shares(many) == "20 nodes with 5 to 24 rows"
    even = dataclasses.replace(done, rows={f"worker:{number}": 7 for number in range(20)})
    assert feed_shares(even) == "20 nodes with 7 rows each"


def test_each_feed_has_a_line_and_the_last_one_has_all_details() -> None:
    assert feed_lines(view_of("running", "running")) == []
    table = FeedView(rows={"chief:0": 10}, partitions=2, total_partitions=2, size_bytes=1000, complete=True, epochs=2)
    table = dataclasses.replace(table, started_s=1.0, ended_s=1.5)
    stream = FeedView(kind="stream", rows={"chief:0": 1}, partitions=9, micro_batches=1, size_bytes=50)
    answered = FeedView(kind="inference", rows={"chief:0": 1200}, partitions=1, ended_s=3.0)
    view = dataclasses.replace(view_of("running", "running"), feeds=(table,))
    assert feed_lines(view) == ["10 rows fed · 2/2 partitions · 1 kB in 0.50 s (20 rows/s, 2 kB/s) · 2 epochs"]
    view = dataclasses.replace(view, feeds=(table, stream))
    assert feed_lines(view) == [
        "feed 1: 10 rows in 0.50 s · 2 epochs",
        "stream 1: 1 row fed · 1 micro-batch · 50 B",
    ]
    view = dataclasses.replace(view, feeds=(table, stream, answered))
    assert feed_lines(view)[1:] == [
        "stream 1: 1 row · 1 micro-batch",
        "inference 1: 1,200 rows answered · 1 partition",
    ]


def test_of_very_many_feeds_the_first_are_summed_up() -> None:
    feeds = tuple(FeedView(number=number, rows={"chief:0": 100}) for number in range(20))
    lines = feed_lines(dataclasses.replace(view_of("running", "running"), feeds=feeds))
    assert lines[:2] == ["15 earlier ones: 1,500 rows", "feed 16: 100 rows"]
    assert len(lines) == 6
    assert lines[-1].startswith("feed 20: 100 rows fed")
