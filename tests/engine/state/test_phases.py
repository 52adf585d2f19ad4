"""Where the seconds went."""

from __future__ import annotations

import dataclasses

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.state.events import FeedView
from tfos_lab.engine.state.phases import Span, spans_of


def seen(state: str, ended_after_s: float | None = None, **timings: float):
    cluster = FakeCluster(nodes=1)
    started_s = cluster.view().started_s
    cluster.alter(state=state, timings=timings, ended_s=None if ended_after_s is None else started_s + ended_after_s)
    return cluster.view()


def fed(state: str, *feeds: FeedView, ended_after_s: float | None = None):
    return dataclasses.replace(seen(state, ended_after_s, launched=0.1, running=1.0), feeds=feeds)


def rounded(spans: list[Span]) -> list[tuple]:
    return [(span.name, round(span.start_s, 3), round(span.end_s, 3), span.open) for span in spans]


def test_each_mark_ends_the_span_of_its_name() -> None:
    marks = {"launched": 0.1, "reserved": 0.5, "released": 0.5, "imported": 3.0, "running": 3.2, "done": 9.0}
    assert rounded(spans_of(seen("done", 9.0, **marks))) == [
        ("launch", 0, 0.1, False),
        ("reserve", 0.1, 0.5, False),
        ("release", 0.5, 0.5, False),
        ("import", 0.5, 3.0, False),
        ("start", 3.0, 3.2, False),
        ("run", 3.2, 9.0, False),
    ]


def test_what_goes_on_is_open() -> None:
    view = seen("launching")
    assert rounded(spans_of(view, view.started_s + 2)) == [("launch", 0, 2, True)]
    view = seen("running", launched=0.1, reserved=0.2, running=1.0)
    assert rounded(spans_of(view, view.started_s + 2))[-1] == ("run", 1.0, 2, True)


def test_a_cluster_that_failed_early_says_in_what() -> None:
    assert rounded(spans_of(seen("failed", 5.0, launched=0.1, done=5.0)))[-1] == ("reserve", 0.1, 5.0, False)


def test_a_restart_takes_its_time_from_the_run() -> None:
    view = dataclasses.replace(seen("done", 9.0, launched=0.1, running=1.0), restarts=((3.0, 5.0), (6.0, 6.5)))
    assert rounded(spans_of(view))[1:] == [
        ("start", 0.1, 1.0, False),
        ("run", 1.0, 3.0, False),
        ("restart", 3.0, 5.0, False),
        ("run", 5.0, 6.0, False),
        ("restart", 6.0, 6.5, False),
        ("run", 6.5, 9.0, False),
    ]


def test_a_restart_that_goes_on_is_open_and_nothing_else() -> None:
    view = dataclasses.replace(seen("starting", launched=0.1, running=1.0), restarts=((3.0, None),))
    assert rounded(spans_of(view, view.started_s + 4))[-2:] == [("run", 1.0, 3.0, False), ("restart", 3.0, 4.0, True)]


def test_nodes_that_were_lost_before_they_ran_are_started_again() -> None:
    view = dataclasses.replace(seen("running", launched=0.1, running=5.0), restarts=((3.0, 5.0),))
    assert rounded(spans_of(view, view.started_s + 8))[1:] == [
        ("start", 0.1, 3.0, False),
        ("restart", 3.0, 5.0, False),
        ("run", 5.0, 8.0, True),
    ]


def feeds_of(view, after_s: float = 0.0) -> list[tuple]:
    spans = [span for span in spans_of(view, view.started_s + after_s) if span.track]
    assert [span.track for span in spans] == list(range(1, len(spans) + 1))
    return rounded(spans)


def test_the_feed_has_a_lane_of_its_own() -> None:
    assert feeds_of(fed("running", FeedView(started_s=1.5)), 4) == [("feed", 1.5, 4, True)]
    assert feeds_of(fed("done", FeedView(started_s=1.5, ended_s=2.5), ended_after_s=9.0)) == [("feed", 1.5, 2.5, False)]
    assert feeds_of(fed("failed", FeedView(started_s=1.5), ended_after_s=9.0)) == [("feed", 1.5, 9, False)]


def test_feeds_streams_and_inferences_that_overlap_are_told_apart() -> None:
    first, second = FeedView(started_s=1.0, ended_s=2.0), FeedView(number=1, started_s=1.5)
    answers = FeedView(kind="inference", started_s=1.2, ended_s=1.8)
    stream = FeedView(kind="stream", started_s=1.4)
    view = fed("running", first, answers, stream, second)
    assert feeds_of(view, 3) == [
        ("feed 1", 1, 2, False),
        ("inference 1", 1.2, 1.8, False),
        ("stream 1", 1.4, 3, True),
        ("feed 2", 1.5, 3, True),
    ]
    assert [span.kind for span in spans_of(view, view.started_s + 3)][-4:] == ["feed", "inference", "stream", "feed"]


def test_of_very_many_feeds_the_first_ones_share_a_lane() -> None:
    many = [FeedView(number=number, started_s=number, ended_s=number + 0.5) for number in range(20)]
    assert len(feeds_of(fed("running", *many[:6]), 30)) == 6
    writers = feeds_of(fed("running", *many), 30)
    assert len(writers) == 6
    assert writers[:2] == [("15 earlier ones", 0, 14.5, False), ("feed 16", 15, 15.5, False)]
