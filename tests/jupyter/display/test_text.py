"""Lines of text where nobody watches: limited in number, and ended by the summary."""

from __future__ import annotations

import io
import threading

import pytest

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.state.events import MetricsReported
from tfos_lab.jupyter.display.text import TextDisplay
from tfos_lab.jupyter.display.text_lines import BURST_LINES, LINES_PER_S, METRICS_EVERY_S


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(nodes=2)


@pytest.fixture
def text_display(cluster: FakeCluster, out: io.StringIO, clock: Clock) -> TextDisplay:
    return TextDisplay(cluster, stream=out, clock=clock)


def written(out: io.StringIO) -> list[str]:
    text = out.getvalue()
    out.seek(0)
    out.truncate()
    return text.splitlines()


def test_each_line_names_its_node(cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO) -> None:
    cluster.write("chief:0", "one\n\x1b[31mtwo\x1b[0m\nunfinish")
    cluster.write("worker:0", "three\n")
    text_display.poll()
    assert written(out) == ["[chief:0] one", "[chief:0] two", "[worker:0] three"]
    cluster.write("chief:0", "ed\n10%\r100%\n")
    text_display.poll()
    assert written(out) == ["[chief:0] unfinished", "[chief:0] 100%"]


def test_nothing_is_written_between_polls(cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO) -> None:
    before = set(threading.enumerate())
    cluster.write("chief:0", "one\n")
    assert out.getvalue() == ""
    assert not set(threading.enumerate()) - before
    text_display.poll()
    text_display.poll()
    assert out.getvalue() == "[chief:0] one\n"


def test_states_come_with_the_number_of_nodes(
    cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO
) -> None:
    cluster.set_state("reserving")
    text_display.poll()
    cluster.change("chief:0", state="reserved")
    text_display.poll()
    cluster.set_state("failed", "chief:0 failed")
    text_display.poll()
    assert written(out) == [
        "[mnist] reserving, 0/2 nodes reserved",
        "[mnist] reserving, 1/2 nodes reserved",
        "[mnist] failed, 0/2 nodes done: chief:0 failed",
    ]


def test_a_flood_is_throttled_and_counted(
    cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO, clock: Clock
) -> None:
    cluster.write("chief:0", "".join(f"{number}\n" for number in range(1000)))
    cluster.write("worker:0", "quiet\n")
    text_display.poll()
    lines = written(out)
    assert lines[-1] == "[worker:0] quiet"
    assert len(lines) == BURST_LINES + 1
    clock.now += 1.0
    cluster.write("chief:0", "again\n" * 1000)
    text_display.poll()
    lines = written(out)
    assert lines[0] == f"[chief:0] … {1000 - BURST_LINES} lines not shown here; the file is complete"
    assert len(lines) == 1 + LINES_PER_S


def test_the_last_lines_are_shown_whatever_came_before(
    cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO
) -> None:
    cluster.write("chief:0", "".join(f"{number}\n" for number in range(1000)) + "the end")
    text_display.close()
    lines = written(out)[BURST_LINES:]
    assert lines[0] == "[chief:0] … 896 lines not shown here; the file is complete"
    assert lines[1:6] == [
        "[chief:0] 996",
        "[chief:0] 997",
        "[chief:0] 998",
        "[chief:0] 999",
        "[chief:0] the end",
    ]


def test_events_that_the_bus_dropped_are_counted(
    cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO
) -> None:
    for _ in range(10_005):
        cluster.write("chief:0", "x")
    text_display.poll()
    assert written(out) == ["… 5 events came too fast and are not shown here; the files are complete"]


def test_metrics_are_written_now_and_then(
    cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO, clock: Clock
) -> None:
    for step in range(1, 4):
        metrics = {"accuracy": 0.5, "loss": 1.5}
        cluster.bus.publish(MetricsReported(time_s=0.0, node="chief:0", step=step, total_steps=10, metrics=metrics))
        text_display.poll()
        clock.now += METRICS_EVERY_S * 0.6
    assert written(out) == [
        "[chief:0] step 1/10 · loss 1.5 · accuracy 0.5",
        "[chief:0] step 3/10 · loss 1.5 · accuracy 0.5",
    ]


def test_the_summary_comes_once_at_the_end(cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO) -> None:
    cluster.set_state("done")
    text_display.close()
    text_display.close()
    text_display.poll()
    text = out.getvalue()
    assert text.count("✓ mnist: done · 0/2 nodes done") == 1
    assert f"logs: {cluster.run_dir}" in text


def test_in_the_background_only_the_beginning_and_the_end_are_written(cluster: FakeCluster, out: io.StringIO) -> None:
    text_display = TextDisplay(cluster, blocking=False, stream=out)
    assert written(out) == ["[mnist] runs in the background; %tfos shows its state"]
    cluster.write("chief:0", "one\n")
    text_display.poll()
    assert written(out) == []
    text_display.close()
    assert written(out)[0].startswith("○ mnist: launching")


def test_a_verdict_and_hung_nodes_are_told_once(
    cluster: FakeCluster, text_display: TextDisplay, out: io.StringIO, clock: Clock
) -> None:
    def polled() -> list[str]:
        clock.now += 2
        text_display.poll()
        return written(out)

    cluster.set_state("running")
    cluster.change("worker:0", state="running")
    polled()
    cluster.alter(verdict="waits for rows 62 % of the time", progress=0.25, seconds_left=90.0)
    assert polled() == ["[mnist] 25 % · 1:30 left · waits for rows 62 % of the time"]
    cluster.alter(verdict="waits for rows 63 % of the time")
    cluster.change("worker:0", hung="no step for 60 s; last: step 3")
    assert polled() == ["[worker:0] hangs: no step for 60 s; last: step 3"]
    cluster.change("worker:0", hung="no step for 62 s; last: step 3")
    assert polled() == [], "only figures have changed"
    cluster.change("worker:0", hung="")
    assert polled() == []
    cluster.change("worker:0", hung="no step for 60 s; last: step 7")
    assert polled() == ["[worker:0] hangs: no step for 60 s; last: step 7"], "again"
