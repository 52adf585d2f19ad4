"""Nodes that take none of their rows, though all have come: they are warned of, and fail the run at the time-out."""

from __future__ import annotations

import pytest

from tfos_lab import messages as m
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import assign_roles
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.events import RowsUntouched
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.instructions import Publish, SendTo
from tfos_lab.engine.state.readers import untouched_text
from tfos_lab.engine.state.unread import UnreadWatch

TIMEOUT_S, WARN_S = 600.0, 60.0
START_S = 1000.0


class Rig:
    """A chief and a worker that run; a feed has brought each of them ten rows."""

    def __init__(self, *, warn_s=WARN_S, timeout_s=TIMEOUT_S, resumes=False, stream=False):
        specs = assign_roles(ClusterConfig(cluster_size=2))
        names = {spec.rank: spec.node for spec in specs}
        self.state = ClusterState(specs, grace_s=1.0)
        self.feeds = FeedState(names, lock_step=True, resumes=resumes)
        self.watch = UnreadWatch(self.state, self.feeds, warn_s=warn_s)
        self.now = START_S
        for rank in names:
            self.receive(m.Reserve(rank, "h", f"h:{rank}", 1, "", []))
        for rank in names:
            self.receive(m.Progressed(rank, "running", 7))
        opened = m.FeedOpen(feed=-1, epochs=1, remainder="exact", schema="", token="t", spool_bytes=None, stream=stream)
        self.feeds.open(opened, 0, timeout_s)
        self.receive(m.AttemptStored(rank=0, feed=0, partition=0, attempt="a", rows=10, size_bytes=9))
        self.feeds.job_done(0, 20, 1, self.now)
        self.receive(m.RowsTaken(rank=0, rows=10, epoch=0, feeds={0: (1, 10)}))

    def receive(self, message):
        self.state.handle(message, self.now)
        self.feeds.handle(message, self.now)

    def at(self, passed_s, *, idle_s=None):
        """Let time go on; the worker has shown no sign for as long, or for ``idle_s``."""
        self.now = START_S + passed_s
        self.receive(m.Activity(rank=1, idle_s=passed_s if idle_s is None else idle_s, last_sign="began"))
        return self.watch.tick(self.now)

    def warnings(self, instructions):
        return [i.event for i in instructions if isinstance(i, Publish) and isinstance(i.event, RowsUntouched)]


def test_a_node_that_takes_none_of_its_rows_is_warned_of_once():
    rig = Rig()
    assert rig.at(59) == []
    [warning] = rig.warnings(rig.at(60))
    assert (warning.node, warning.rows, warning.waited_s) == ("worker:0", 10, 60.0)
    assert untouched_text(warning).startswith(
        "worker:0 has taken none of its 10 rows, which had all come 60 s ago: see whether map_fun reads them there"
    )
    assert rig.at(61) == rig.at(300) == []


def test_where_whoever_feeds_waits_for_the_rows_a_node_is_warned_of_and_fails_nothing():
    rig = Rig()
    rig.feeds.caller_waits = True
    assert rig.warnings(rig.at(60))
    assert rig.at(TIMEOUT_S) == rig.at(10 * TIMEOUT_S) == []


def test_the_warning_comes_before_the_time_out_however_short_that_is():
    rig = Rig(timeout_s=20.0)
    assert rig.at(9) == []
    assert rig.warnings(rig.at(10))


def test_at_the_time_out_it_fails_the_run_with_its_rows_and_stacks():
    rig = Rig()
    rig.at(60)
    [asked] = rig.at(600)
    assert isinstance(asked, SendTo)
    assert asked.rank == 1
    answer = m.Stacks(1, asked.message.request, m.Condition.BUSY, "its stacks", place="train.py, line 7", call="sleep")
    rig.watch.handle(answer, rig.now)
    first = rig.state.causes.first
    assert (first.node, first.kind, first.traceback) == ("worker:0", "FeedTimeout", "its stacks")
    assert first.message.startswith("it has taken none of its 10 rows for 600 s, though all have come; see whether")
    assert first.message.endswith("(timeout_s of cluster.train); it is at train.py, line 7, in sleep")
    assert rig.at(700) == []


def test_a_node_that_does_not_even_answer_fails_it_too():
    rig = Rig()
    rig.at(60)
    assert rig.at(600)
    rig.at(605)
    assert rig.state.causes.first.node == "worker:0"


def test_a_node_that_works_on_something_else_is_only_warned_of():
    rig = Rig()
    assert rig.warnings(rig.at(60, idle_s=1.0))
    assert rig.at(900, idle_s=30.0) == []


def test_a_node_that_begins_to_read_while_it_is_asked_fails_nothing():
    rig = Rig()
    rig.at(60)
    rig.at(600)
    rig.receive(m.RowsTaken(rank=1, rows=5, epoch=0, feeds={0: (0, 5)}))
    rig.at(605)
    assert rig.state.causes.first is None
    assert rig.at(900) == []


@pytest.mark.parametrize("options", [{"warn_s": 0.0}, {"resumes": True}, {"stream": True}, {"timeout_s": 0.0}], ids=str)
def test_where_nodes_may_leave_rows_nobody_is_warned_of(options):
    rig = Rig(**options)
    assert rig.at(60) == rig.at(5000) == []


def test_a_node_that_has_returned_or_wants_no_rows_is_left_alone():
    rig = Rig()
    rig.receive(m.FeedStopped(rank=0))
    assert rig.at(900) == []
    rig = Rig()
    rig.receive(m.Ended(rank=1, outcome=m.Outcome(kind="returned")))
    assert rig.at(900) == []
