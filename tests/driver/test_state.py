"""The state machine of a cluster: what depends on time, or on an order that no real node keeps to.

All else of it is in `tests/simulation`, `tests/laws/test_cluster_state.py` and `tests/faults`.
"""

from __future__ import annotations

import pytest

from tfos_lab import ClusterConfig
from tfos_lab.core import messages as m
from tfos_lab.core.config import assign_roles
from tfos_lab.driver.state.cluster_state import DRAIN_TIMEOUT_S, LOST_AFTER_S, ClusterState
from tfos_lab.driver.state.events import MetricsReported
from tfos_lab.driver.state.instructions import Finished, Publish, SendTo

GRACE_S = 3.0
BOOM = m.Outcome(kind="raised", error="ValueError", message="boom\nsecond line", traceback="File x, line 1")
ECHO = m.Outcome(kind="raised", error="UnavailableError", message="Collective aborted", consequence=True)
KILLED = m.Outcome(kind="exited", exit_code=-9)


class Play:
    """The state of a cluster that runs, with its own clock; it keeps the instructions of the last step."""

    def __init__(self, **options):
        specs = assign_roles(ClusterConfig(**options))
        self.state = ClusterState(specs, grace_s=GRACE_S)
        self.now_s = 1000.0
        self.asked = []
        for rank in range(len(specs)):
            self.receive(m.Reserve(rank, f"host{rank}", f"host{rank}:1", 100, f"e{rank}", []))
        for rank in range(len(specs)):
            self.receive(m.Progressed(rank=rank, state="running", pid=200 + rank))

    def receive(self, message, *, after_s=0.1):
        self.now_s += after_s
        self.asked = self.state.handle(message, self.now_s)
        return self

    def wait(self, seconds):
        self.now_s += seconds
        self.asked = self.state.tick(self.now_s)
        return self

    def end(self, rank, outcome):
        return self.receive(m.Ended(rank=rank, outcome=outcome))

    @property
    def is_over(self):
        return Finished() in self.asked


def test_a_report_of_a_node_whose_clock_is_two_minutes_off_has_the_driver_s_time():
    play = Play(cluster_size=1)
    play.receive(m.Reported(rank=0, step=1, total_steps=10, metrics={}, time_s=play.now_s + 120))
    [event] = [i.event for i in play.asked if isinstance(i, Publish) and isinstance(i.event, MetricsReported)]
    assert event.time_s == pytest.approx(play.now_s, abs=1.0)


def test_an_evaluator_that_returns_early_ends_nothing():
    play = Play(cluster_size=3, evaluator=True).end(1, m.Outcome(kind="returned", value=b"x"))
    assert not [i for i in play.asked if isinstance(i, SendTo) and isinstance(i.message, m.Finish)]
    assert play.state.state == "running"


def test_nodes_have_the_time_that_stop_was_given():
    play = Play(cluster_size=2)
    play.state.stop(play.now_s, grace_s=60.0)
    play.wait(GRACE_S + 30.0)
    assert not play.is_over
    play.wait(60.0)
    assert play.is_over


def test_consequences_on_all_nodes_fail_the_cluster_without_waiting():
    play = Play(cluster_size=2).end(0, ECHO).end(1, ECHO)
    assert play.state.state == "failed"
    assert len(play.state.causes.consequences) == 1


def test_the_same_error_on_other_nodes_is_one_error():
    play = Play(cluster_size=3).end(0, BOOM).end(1, BOOM).end(2, KILLED)
    assert play.state.causes.also == ["worker:0"]
    assert list(play.state.causes.consequences) == ["worker:1"]


def test_a_silent_node_is_lost_and_named_with_its_host():
    play = Play(cluster_size=2)
    for _ in range(int(LOST_AFTER_S) + 1):
        play.receive(m.Heartbeat(rank=0), after_s=1.0).wait(0)
    assert play.state.views[1].state == "lost"
    failure = play.state.causes.first
    assert (failure.node, failure.kind) == ("worker:0", "Lost")
    assert failure.message == "the node on host1 (executor e1) is gone: not heard of for 5 s"


def test_a_node_may_send_files_for_as_long_as_they_arrive():
    play = Play(cluster_size=1).end(0, m.Outcome(kind="returned", value=b"x"))
    for _ in range(5):
        play.receive(m.FilePiece(0, "output", "model.keras", 0, b"x"), after_s=DRAIN_TIMEOUT_S)
        assert not play.wait(GRACE_S).is_over
    assert play.wait(GRACE_S + DRAIN_TIMEOUT_S).is_over
    assert play.state.state == "done"
