"""The progress of rows: one view for each call of `train` or `inference`."""

from __future__ import annotations

from tfos_lab.engine.state.events import FeedProgressed, FeedView, InferenceProgressed
from tfos_lab.engine.state.feed_views import FeedViews


def fed(rows, at_s, *, feed=0, source=0, stream=False, complete=False, **fields):
    return FeedProgressed(
        time_s=100.0 + at_s,
        feed=feed,
        rows={"chief:0": rows},
        partitions=1,
        size_bytes=rows * 10,
        complete=complete,
        source=source,
        stream=stream,
        **fields,
    )


def views(*events):
    made = FeedViews(100.0)
    for event in events:
        made.record(event)
    return made.views


def test_each_table_has_a_view_with_its_own_time():
    first, second = views(
        fed(5, 1.0), fed(9, 2.0, complete=True, epochs=3), fed(9, 2.5, complete=True), fed(4, 3.0, feed=1, source=1)
    )
    assert first == FeedView(
        rows={"chief:0": 9}, partitions=1, size_bytes=90, complete=True, started_s=1.0, ended_s=2.0
    )
    assert (second.number, second.rows, second.complete, second.ended_s) == (1, {"chief:0": 4}, False, None)


def test_nodes_that_start_again_are_fed_the_same_table_again():
    [view] = views(fed(9, 2.0, complete=True), fed(3, 5.0))
    assert (view.rows, view.complete, view.started_s, view.ended_s) == ({"chief:0": 3}, False, 2.0, None)


def test_a_stream_is_the_sum_of_its_micro_batches():
    begun = [fed(0, 1.0, feed=0, stream=True), fed(5, 2.0, feed=0, stream=True, complete=True)]
    agreed = fed(5, 2.1, feed=0, stream=True, complete=True)
    [view] = views(*begun, agreed, fed(0, 3.0, feed=1, stream=True), fed(2, 3.5, feed=1, stream=True))
    assert (view.kind, view.rows, view.size_bytes, view.micro_batches) == ("stream", {"chief:0": 7}, 70, 1)
    again = [fed(0, 4.0, feed=2, stream=True), fed(2, 5.0, feed=2, stream=True, complete=True)]
    [view] = views(*begun, fed(0, 3.0, feed=1, stream=True), fed(2, 3.5, feed=1, stream=True), *again)
    assert (view.rows, view.micro_batches) == ({"chief:0": 7}, 2), "what was dropped in the middle does not count"


def test_feeds_streams_and_inferences_are_numbered_separately():
    shown = views(
        fed(1, 1.0, source=0, stream=True),
        fed(2, 2.0, source=1, complete=True),
        InferenceProgressed(time_s=103.0, inference=0, rows={"chief:0": 8}, partitions=1),
        fed(3, 4.0, source=2),
        InferenceProgressed(time_s=105.0, inference=1, rows={"chief:0": 7}, partitions=0),
    )
    kinds = [("stream", 0), ("table", 0), ("inference", 0), ("table", 1), ("inference", 1)]
    assert [(view.kind, view.number) for view in shown] == kinds
