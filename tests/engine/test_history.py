"""The history: phases with their seconds, events, and waiting for them."""

from __future__ import annotations

import threading

from tfos_lab.engine.history import History
from tfos_lab.engine.state.events import FeedProgressed, LogText, MetricsReported, NodeChanged, StateChanged

CALLED_S = 100.0


def state(name, time_s):
    return StateChanged(time_s=time_s, state=name)


def fed(feed, time_s, *, complete):
    return FeedProgressed(time_s=time_s, feed=feed, rows={}, partitions=1, size_bytes=1, complete=complete)


def reported(step):
    return MetricsReported(time_s=1.0, node="chief:0", step=step, total_steps=None, metrics={"loss": 1.0})


def test_each_phase_has_its_seconds_since_the_call():
    history = History(CALLED_S)
    history.record(state("reserving", 100.2))
    history.record(state("starting", 100.5))
    history.mark_released(100.6)
    history.record(state("running", 101.0))
    history.record(state("done", 105.0))
    seconds = {phase: round(value, 3) for phase, value in history.timings.items()}
    assert seconds == {"launched": 0.2, "reserved": 0.5, "released": 0.6, "running": 1.0, "done": 5.0}
    assert history.ended_s == 105.0


def test_a_restart_lasts_until_all_nodes_run_again_or_none_ever_will():
    history = History(CALLED_S)
    states = {"running": 101.0, "restarting": 103.0, "reserving": 104.0, "starting": 105.0}
    for name, time_s in states.items():
        history.record(state(name, time_s))
    assert history.restarts == ((3.0, None),)
    history.record(state("running", 106.0))
    history.record(state("restarting", 108.0))
    history.record(state("failed", 109.0))
    assert history.restarts == ((3.0, 6.0), (8.0, 9.0))


def test_imports_end_with_the_last_node_s_and_a_feed_with_its_last_row():
    history = History(CALLED_S)
    for seconds in (101.0, 102.0):
        history.record(NodeChanged(time_s=seconds, node="worker:0", state="starting"))
    history.record(state("running", 102.5))
    for feed, seconds, complete in [(0, 103.0, False), (0, 104.0, True), (0, 104.5, True)]:
        history.record(fed(feed, seconds, complete=complete))
    assert history.timings == {"imported": 2.0, "running": 2.5, "feeding": 3.0, "fed": 4.0}
    history.record(fed(1, 110.0, complete=False))
    assert "fed" not in history.timings
    history.record(fed(1, 112.0, complete=True))
    assert history.timings["fed"] == 12.0


def test_a_reader_of_metrics_can_continue_where_it_stopped():
    history = History(CALLED_S)
    assert history.metrics_after(0) == ([], 0)
    reports = [reported(step) for step in range(3)]
    for report in reports[:2]:
        history.record(report)
    assert history.metrics_after(0) == (reports[:2], 2)
    history.record(reports[2])
    assert history.metrics_after(2) == ([reports[2]], 3)
    assert history.metrics_after(3) == ([], 3)


def test_of_very_many_metrics_the_older_ones_are_thinned_out(monkeypatch):
    monkeypatch.setattr("tfos_lab.engine.history._MAX_METRICS", 100)
    history = History(CALLED_S)
    for step in range(1000):
        history.record(reported(step))
    kept = [report.step for report in history.metrics]
    assert len(kept) <= 100
    assert kept[0] == 0
    assert kept[-20:] == list(range(980, 1000))
    assert kept == sorted(kept)
    assert [report.step for report in history.metrics_after(995)[0]] == list(range(995, 1000))


def test_a_phase_is_timed_once_and_a_clock_that_goes_back_gives_no_negative_seconds():
    history = History(CALLED_S)
    history.record(state("reserving", 99.0))
    history.record(state("reserving", 130.0))
    history.mark_released(101.0)
    history.mark_released(102.0)
    assert history.timings == {"launched": 0.0, "released": 1.0}


def test_the_first_end_counts():
    history = History(CALLED_S)
    history.record(state("failed", 103.0))
    history.record(state("stopped", 104.0))
    assert history.ended_s == 103.0
    assert history.timings["done"] == 3.0


def test_everything_but_log_text_is_recorded():
    history = History(CALLED_S)
    change = NodeChanged(time_s=1.0, node="chief:0", state="running")
    metrics = MetricsReported(time_s=2.0, node="chief:0", step=1, total_steps=2, metrics={"loss": 1.0})
    for event in (LogText(time_s=0.5, node="chief:0", stream="stdout", text="hello"), change, metrics):
        history.record(event)
    assert history.events == [change, metrics]
    assert history.metrics == [metrics]


def test_feeds_show_their_latest_progress():
    history = History(CALLED_S)
    for rows in (10, 20):
        history.record(FeedProgressed(time_s=1.0, feed=0, rows={"chief:0": rows}, partitions=1, size_bytes=rows))
    [feed] = history.feeds
    assert feed.rows == {"chief:0": 20}


def test_the_oldest_events_are_dropped():
    history = History(CALLED_S)
    for number in range(10_050):
        history.record(NodeChanged(time_s=float(number), node="chief:0", state="running"))
    assert len(history.events) == 10_000
    assert history.events[-1].time_s == 10_049.0


def test_waiting_ends_with_the_event_that_was_waited_for():
    history = History(CALLED_S)
    waiting = threading.Event()
    met = []

    def wait():
        waiting.set()
        met.append(history.wait_for(lambda: history.ended_s is not None, 10.0))

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(60)
    history.record(state("running", 101.0))
    history.record(state("done", 102.0))
    thread.join(60)
    assert met == [True]


def test_a_wait_that_times_out_returns_false():
    assert History(CALLED_S).wait_for(lambda: False, 0.0) is False


def test_notes_are_kept_in_order():
    history = History(CALLED_S)
    for text in ("first", "second"):
        history.add_note(text)
    assert history.notes == ("first", "second")


def test_a_sample_of_metrics_is_evenly_spread_and_has_the_newest():
    history = History(CALLED_S)
    assert history.sample_metrics(5) == []
    for step in range(23):
        history.record(reported(step))
    assert [report.step for report in history.sample_metrics(5)] == [2, 7, 12, 17, 22]
    assert history.sample_metrics(100) == history.metrics
