"""Where the seconds went."""

from __future__ import annotations

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.phases import Span, spans_of


def seen(state: str, ended_after_s: float | None = None, **timings: float):
    cluster = FakeCluster(nodes=1)
    started_s = cluster.view().started_s
    cluster.alter(state=state, timings=timings, ended_s=None if ended_after_s is None else started_s + ended_after_s)
    return cluster.view()


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


def test_the_feed_has_a_lane_of_its_own() -> None:
    view = seen("running", launched=0.1, running=1.0, feeding=1.5)
    [feed] = [span for span in spans_of(view, view.started_s + 4) if span.lane == 1]
    assert (feed.name, feed.start_s, round(feed.end_s, 3), feed.open) == ("feed", 1.5, 4, True)
    view = seen("done", 9.0, launched=0.1, running=1.0, feeding=1.5, fed=2.5, done=9.0)
    assert rounded(spans_of(view))[-1] == ("feed", 1.5, 2.5, False)
