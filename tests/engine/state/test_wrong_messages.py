"""Messages that are well-formed, and that no node sends: each is found before the state machines see it."""

from __future__ import annotations

from typing import get_args

import pytest

from tfos_lab import messages as m
from tfos_lab.core.states import RunState
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.wrong_messages import WrongMessage, check
from tfos_lab.messages.figures import Figure

NAMES = {0: "chief:0", 1: "worker:1"}
HUGE = 2**60


@pytest.fixture
def feeds():
    """Feed 0 is open on both nodes, which are asked to answer, too."""
    feeds = FeedState(NAMES, lock_step=True)
    feeds.open(m.FeedOpen(feed=0, epochs=1, remainder="pad", schema="{}", token=""))
    feeds.open_inference(m.InferenceOpen(schema="{}", token=""))
    return feeds


RIGHT = [
    m.Reserve(0, "host", "host:1", 1, "e0", []),
    m.Heartbeat(1, spooled_bytes=10**12),
    m.Progressed(1, "running", 7),
    m.Reported(1, step=-5, total_steps=HUGE, metrics={"loss": float("nan")}, time_s=1e9),
    m.Ended(1, m.Outcome("exited", exit_code=-9)),
    m.Logs(1, 0, [m.LogRecord(1.0, "stdout", b"x")]),
    m.FeedReady(1, 0, ["grpc+unix:///x"]),
    m.AttemptStored(1, 0, 5, "a", 3, 100, leftover=1),
    m.FilesFound(1, 0, {0: [(0, 5)]}),
    m.RowsTaken(1, 7, 1, {0: (1, 7)}),
    m.DatasetOpened(1, 0, 32, None),
    m.StepsAhead(1, 0, 0, [(3, 32)]),
    m.InferenceReady(1, []),
    m.RowsAnswered(1, -1, 3),
    m.Activity(1, step=3, gpu=None),
    m.Activity(1, step=HUGE),
    m.Stacks(1, -1_000_000, m.Condition.BUSY, ""),
]
WRONG = [
    (m.Heartbeat(1, spooled_bytes=HUGE), "the number"),
    (m.Heartbeat(1, spooled_bytes=-7), "the number -7"),
    (m.Activity(1, cpu=float("nan")), "the number nan"),
    (m.Activity(1, rows_s=float("inf")), "the number inf"),
    (m.Reported(1, 1, 1, {}, time_s=float("-inf")), "the number"),
    (m.Progressed(1, "done"), "the state 'done'"),
    (m.Progressed(1, "dancing"), "the state 'dancing'"),
    (m.Ended(1, m.Outcome("vanished")), "the end 'vanished'"),
    (m.CellEnded(1, 1, m.Outcome("vanished"), []), "the end 'vanished'"),
    (m.Logs(1, 0, [m.LogRecord(1.0, "stdnull", b"")]), "a false record"),
    (m.Logs(1, 0, [m.LogRecord(float("nan"), "stdout", b"")]), "a false record"),
    (m.FeedReady(1, 1, []), "feed 1 does not exist"),
    (m.FeedReady(1, -1, []), "feed -1 does not exist"),
    (m.FeedReady(2, 0, []), "feed 0 is not the node's"),
    (m.FeedRead(1, 9), "feed 9 does not exist"),
    (m.AttemptStored(1, 0, -1, "a", 0, 0), "a false number"),
    (m.AttemptStored(1, 0, 1, "a", -1, 0), "a false number of rows"),
    (m.AttemptStored(1, 0, 1, "a", -3, 0), "the number -3"),
    (m.AttemptStored(1, 0, 1, "a", HUGE, 0), "the number"),
    (m.AttemptStored(1, 0, 1, "a", 0, 0, leftover=2), "2 leftover rows"),
    (m.FilesFound(1, 0, {0: [(0, -5)]}), "a false number of rows"),
    (m.RowsTaken(1, 1, 1, {4: (1, 1)}), "a feed that does not exist"),
    (m.RowsTaken(1, 1, 1, {0: (1, -1)}), "a false number of rows"),
    (m.DatasetOpened(1, 0, 0, None), "a batch size of 0"),
    (m.StepsAhead(1, 0, 0, [(2**40, 1)]), "a false number of steps"),
    (m.StepsAhead(1, 0, 0, [(1, -1)]), "a false number of rows"),
    (m.InferenceReady(2, []), "without having been asked"),
]


@pytest.mark.parametrize("message", RIGHT, ids=lambda message: type(message).__name__)
def test_what_nodes_send_passes(feeds, message):
    check(message, RunState.RUNNING, feeds)


@pytest.mark.parametrize(("message", "why"), WRONG, ids=lambda value: type(value).__name__)
def test_what_no_node_sends_is_found(feeds, message, why):
    with pytest.raises(WrongMessage) as caught:
        check(message, RunState.RUNNING, feeds)
    assert str(caught.value).startswith(type(message).__name__)
    assert why in str(caught.value)


def test_no_node_answers_before_it_was_asked():
    with pytest.raises(WrongMessage, match="without having been asked"):
        check(m.InferenceReady(1, []), RunState.RUNNING, FeedState(NAMES, lock_step=True))


@pytest.mark.parametrize(
    "message", [m.Progressed(1, "running"), m.Progressed(1, "serving"), m.Ended(1, m.Outcome("returned"))]
)
def test_no_node_runs_before_all_have_reserved(feeds, message):
    with pytest.raises(WrongMessage, match="before the node was started"):
        check(message, RunState.RESERVING, feeds)
    check(message, RunState.STARTING, feeds)


TOGETHER_WRONG = [
    (m.Heartbeat(1, spooled_bytes=HUGE), "the number"),
    (m.Activity(1, cpu=float("nan")), "the number nan"),
    (m.Activity(1, gpu=float("inf")), "the number inf"),
    (m.Activity(1, memory_bytes=-7), "the number -7"),
    (m.Reported(1, 1, 1, {}, time_s=float("nan")), "the number nan"),
    (m.RowsTaken(1, 1, 1, {4: (1, 1)}), "a feed that does not exist"),
    (m.Logs(1, 0, [m.LogRecord(1.0, "stdnull", b"")]), "a false record"),
    (m.Logs(0, 0, [m.LogRecord(1.0, "stdout", b"")]), "figures of rank 0"),
]


@pytest.mark.parametrize(("message", "why"), TOGETHER_WRONG, ids=lambda value: type(value).__name__)
def test_what_comes_together_is_checked_as_if_each_came_alone(feeds, message, why):
    with pytest.raises(WrongMessage, match=why):
        check(m.Figures(1, [m.Heartbeat(1), message]), RunState.RUNNING, feeds)


def test_what_nodes_send_together_passes(feeds):
    told = [message for message in RIGHT if message.rank == 1 and isinstance(message, get_args(Figure))]
    assert {type(message) for message in told} == set(get_args(Figure))
    check(m.Figures(1, told), RunState.RUNNING, feeds)
