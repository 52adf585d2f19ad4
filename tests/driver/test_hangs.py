"""Which nodes hang, which only wait for them, and which take none of their rows."""

from __future__ import annotations

import pytest

from tfos_lab import ClusterConfig
from tfos_lab.core import messages as m
from tfos_lab.core.config import assign_roles
from tfos_lab.core.messages import Condition
from tfos_lab.driver.state.cluster_state import ClusterState, RestartBudget
from tfos_lab.driver.state.events import NodeHung, RowsUntouched
from tfos_lab.driver.state.feed_state import FeedState
from tfos_lab.driver.state.hangs import Hangs
from tfos_lab.driver.state.instructions import Publish, SendTo
from tfos_lab.driver.state.unread import UnreadWatch

BUSY, ROWS, WAITS, INSIDE = Condition.BUSY, Condition.WAITS_FOR_ROWS, Condition.WAITS, Condition.IN_TENSORFLOW
STOPPED, LOCKED, AWAY = Condition.STOPPED, Condition.LOCKED, Condition.AWAY
TIMEOUT_S = 60.0


class Rig:
    """Nodes that run, with what they say of themselves; time goes on by calls."""

    def __init__(self, *, fails=False, with_rows=(), restarts=0, timeout_s=TIMEOUT_S, **config):
        specs = assign_roles(ClusterConfig(cluster_size=2, **config) if "cluster_size" not in config else
                             ClusterConfig(**config))  # fmt: skip
        self.names = [spec.node for spec in specs]
        self.state = ClusterState(specs, grace_s=1.0, restarts=RestartBudget(restarts))
        self.hangs = Hangs(self.state, lambda: list(with_rows), timeout_s=timeout_s, fails=fails)
        self.now = 1000.0
        for spec in specs:
            reserve = m.Reserve(
                rank=spec.rank, host="h", address=f"h:{spec.rank}", pid=1, executor="", gpus=[], gpu_count=0
            )
            self.state.handle(reserve, self.now)
        for spec in specs:
            self.state.handle(m.Progressed(rank=spec.rank, state="running", pid=7), self.now)

    def rank(self, node):
        return self.names.index(node)

    def says(self, node, idle_s, *, step=None, sign="step 41"):
        seen = m.NodeActivity(step=step, idle_s=idle_s, last_sign=sign)
        self.state.handle(m.Activity(self.rank(node), seen), self.now)

    def tick(self):
        self.now += 1.0
        return self.hangs.tick(self.now)

    def answers(self, asked, **conditions):
        """Answer for nodes: ``worker_0=BUSY``."""
        [request] = {send.message.request for send in asked}
        out = []
        for node, condition in conditions.items():
            rank = self.rank(node.replace("_", ":"))
            stacks = m.Stacks(rank, request, condition, f"stacks of {node}", place="train.py, line 7")
            out += self.hangs.handle(stacks, self.now)
        return out

    def ask(self):
        asked = self.tick()
        assert asked
        assert all(isinstance(send, SendTo) and isinstance(send.message, m.StacksWanted) for send in asked)
        return asked

    @property
    def hung(self):
        return [view.name for view in self.state.views if view.hung]


def both_idle(rig, *, steps=(41, 41)):
    for node, step in zip(rig.names, steps, strict=True):
        rig.says(node, 64.0, step=step)


def test_all_that_run_are_asked_once_one_has_been_silent_for_too_long():
    rig = Rig()
    rig.says("chief:0", 1.0, step=1)
    rig.says("worker:0", 61.0, step=1)
    assert [send.rank for send in rig.ask()] == [0, 1]
    assert rig.tick() == []  # they are yet to answer


@pytest.mark.parametrize(
    ("chief", "worker", "hung"),
    [
        (INSIDE, BUSY, ["worker:0"]),
        (INSIDE, STOPPED, ["worker:0"]),
        (INSIDE, LOCKED, ["worker:0"]),
        (BUSY, STOPPED, ["chief:0", "worker:0"]),
        (WAITS, STOPPED, ["worker:0"]),
        (INSIDE, ROWS, []),
        (ROWS, ROWS, []),
        (INSIDE, WAITS, []),
        (INSIDE, AWAY, []),
    ],
)
def test_the_node_hangs_that_others_wait_for(chief, worker, hung):
    rig = Rig()
    both_idle(rig)
    rig.answers(rig.ask(), chief_0=chief, worker_0=worker)
    assert rig.hung == hung


@pytest.mark.parametrize(("steps", "hung"), [((41, 40), ["worker:0"]), ((41, 41), ["chief:0", "worker:0"])])
def test_of_nodes_that_all_wait_in_tensorflow_those_hang_that_have_come_least_far(steps, hung):
    rig = Rig()
    both_idle(rig, steps=steps)
    rig.answers(rig.ask(), chief_0=INSIDE, worker_0=INSIDE)
    assert rig.hung == hung


def test_a_hung_node_says_since_when_and_where_it_is():
    rig = Rig()
    rig.says("chief:0", 1.0, step=1)
    rig.says("worker:0", 64.2, step=41)
    published = rig.answers(rig.ask(), chief_0=INSIDE, worker_0=BUSY)
    text = "no step, row or log line for 64 s; last: step 41; it is at train.py, line 7"
    assert rig.state.views[1].hung == text
    assert published == [Publish(NodeHung(time_s=rig.now, node="worker:0", text=text))]


def test_a_node_that_goes_on_is_no_longer_hung():
    rig = Rig()
    both_idle(rig)
    rig.answers(rig.ask(), chief_0=INSIDE, worker_0=BUSY)
    rig.says("worker:0", 0.5, step=42)
    rig.says("chief:0", 0.5, step=42)
    assert rig.tick() == [Publish(NodeHung(time_s=rig.now, node="worker:0", text=""))]
    assert rig.hung == []


def test_nodes_are_asked_again_only_after_as_long_again():
    rig = Rig()
    both_idle(rig)
    rig.answers(rig.ask(), chief_0=ROWS, worker_0=ROWS)
    assert rig.tick() == []
    rig.now += TIMEOUT_S
    assert rig.tick() != []


def test_nothing_hangs_before_training_has_begun():
    rig = Rig()
    for node in rig.names:
        rig.says(node, 300.0, sign="began")
    rig.answers(rig.ask(), chief_0=BUSY, worker_0=INSIDE)
    assert rig.hung == []


def test_a_stopped_process_hangs_before_training_has_begun_too():
    rig = Rig()
    for node in rig.names:
        rig.says(node, 300.0, sign="began")
    rig.answers(rig.ask(), chief_0=BUSY, worker_0=STOPPED)
    assert rig.hung == ["worker:0"]


def test_a_node_that_never_reads_its_rows_hangs():
    rig = Rig(with_rows=["worker:0"])
    for node in rig.names:
        rig.says(node, 64.0, sign="began")
    rig.answers(rig.ask(), chief_0=ROWS, worker_0=BUSY)
    assert "it has taken none of its rows" in rig.state.views[1].hung


def test_parameter_servers_and_evaluators_may_wait_for_as_long_as_they_like():
    rig = Rig(cluster_size=3, num_ps=1, evaluator=True)
    rig.says("ps:0", 300.0, sign="began")
    rig.says("evaluator:0", 300.0, sign="began")
    rig.says("chief:0", 1.0, step=4)
    rig.answers(rig.ask(), ps_0=WAITS, evaluator_0=BUSY, chief_0=INSIDE)
    assert rig.hung == []


def test_a_stopped_parameter_server_is_what_its_chief_waits_for():
    rig = Rig(cluster_size=2, num_ps=1)
    rig.says("ps:0", 300.0, sign="began")
    rig.says("chief:0", 64.0, step=4)
    rig.answers(rig.ask(), ps_0=STOPPED, chief_0=INSIDE)
    assert rig.hung == ["ps:0"]


def test_a_node_whose_agent_does_not_answer_is_left_to_others():
    rig = Rig()
    both_idle(rig)
    asked = rig.ask()
    rig.answers(asked, chief_0=INSIDE)
    assert rig.hung == []
    rig.now += 60.0
    rig.tick()
    assert rig.hung == []


# ---- what fails -----------------------------------------------------------------------------------------------------


def test_a_hung_node_is_a_reason_to_start_again():
    rig = Rig(fails=True, restarts=1)
    both_idle(rig)
    rig.answers(rig.ask(), chief_0=INSIDE, worker_0=STOPPED)
    assert rig.state.state == "restarting"


def peer_error(rig, node="chief:0", message="task is silent"):
    outcome = m.Outcome(kind="raised", error="UnavailableError", message=message, consequence=True)
    return rig.state.handle(m.Ended(rank=rig.rank(node), outcome=outcome), rig.now)


@pytest.mark.parametrize("condition", [STOPPED, LOCKED])
def test_a_process_that_does_not_answer_is_the_cause_of_its_peers_errors(condition):
    rig = Rig(timeout_s=0.0)
    both_idle(rig)
    rig.state.handle(m.Activity(1, m.NodeActivity(step=4, idle_s=13.0, last_sign="step 4")), rig.now)
    peer_error(rig)
    rig.answers(rig.ask(), worker_0=condition)
    assert (rig.state.causes.first.node, rig.state.causes.first.kind) == ("worker:0", "Hung")
    assert rig.state.causes.consequences == {"chief:0": "UnavailableError: task is silent"}


NAMES_WORKER = "The following tasks are unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:0\n"


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        (STOPPED, "its process is stopped (SIGSTOP)"),
        (LOCKED, "its Python does not answer"),
        (BUSY, "TensorFlow on chief:0 has had no heartbeat of its process for too long; it answers again: it was"),
        (None, "for too long, and its agent does not answer either: its host is cut off, or all of it stands still"),
    ],
)
def test_the_node_that_tensorflow_calls_silent_is_the_cause(condition, told):
    rig = Rig(timeout_s=0.0)
    rig.says("chief:0", 2.0, step=4)
    rig.says("worker:0", 2.0, step=4)
    peer_error(rig, message=NAMES_WORKER)
    asked = rig.ask()
    if condition is None:
        rig.now += 3.0
        rig.tick()
    else:
        rig.answers(asked, worker_0=condition)
    first = rig.state.causes.first
    assert (first.node, first.kind, first.gone) == ("worker:0", "Hung", True)
    assert told in first.message
    assert list(rig.state.causes.consequences) == ["chief:0"]


def test_no_node_is_blamed_before_those_that_were_asked_have_answered_or_had_their_time():
    rig = Rig(timeout_s=0.0)
    both_idle(rig)
    peer_error(rig)
    asked = rig.ask()
    assert rig.state.tick(rig.now + 1.5) == []
    assert rig.state.causes.first is None
    rig.answers(asked, worker_0=LOCKED)
    assert rig.state.causes.first.node == "worker:0"


def test_a_node_that_fails_for_no_other_is_blamed_once_the_others_have_answered():
    rig = Rig(timeout_s=0.0)
    both_idle(rig)
    peer_error(rig)
    rig.answers(rig.ask(), worker_0=BUSY)
    rig.state.tick(rig.now + 3.0)
    assert rig.state.causes.first.node == "chief:0"


# ---- rows that nobody takes ------------------------------------------------------------------------------------------


FEED_TIMEOUT_S, WARN_S = 600.0, 60.0
START_S = 1000.0


class Fed:
    """A chief and a worker that run; a feed has brought each of them ten rows."""

    def __init__(self, *, warn_s=WARN_S, timeout_s=FEED_TIMEOUT_S, resumes=False, stream=False):
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
        self.receive(m.Activity(1, m.NodeActivity(idle_s=passed_s if idle_s is None else idle_s, last_sign="began")))
        return self.watch.tick(self.now)

    def warnings(self, instructions):
        return [i.event for i in instructions if isinstance(i, Publish) and isinstance(i.event, RowsUntouched)]


def test_a_node_that_takes_none_of_its_rows_is_warned_of_once():
    rig = Fed()
    assert rig.at(59) == []
    [warning] = rig.warnings(rig.at(60))
    assert (warning.node, warning.rows, warning.waited_s) == ("worker:0", 10, 60.0)
    assert rig.at(61) == rig.at(300) == []


def test_where_whoever_feeds_waits_for_the_rows_a_node_is_warned_of_and_fails_nothing():
    rig = Fed()
    rig.feeds.caller_waits = True
    assert rig.warnings(rig.at(60))
    assert rig.at(FEED_TIMEOUT_S) == rig.at(10 * FEED_TIMEOUT_S) == []


def test_the_warning_comes_before_the_time_out_however_short_that_is():
    rig = Fed(timeout_s=20.0)
    assert rig.at(9) == []
    assert rig.warnings(rig.at(10))


def test_a_node_that_works_on_something_else_is_only_warned_of():
    rig = Fed()
    assert rig.warnings(rig.at(60, idle_s=1.0))
    assert rig.at(900, idle_s=30.0) == []


@pytest.mark.parametrize("options", [{"warn_s": 0.0}, {"resumes": True}, {"stream": True}, {"timeout_s": 0.0}], ids=str)
def test_where_nodes_may_leave_rows_nobody_is_warned_of(options):
    rig = Fed(**options)
    assert rig.at(60) == rig.at(5000) == []


def test_a_node_that_has_returned_or_wants_no_rows_is_left_alone():
    rig = Fed()
    rig.receive(m.FeedStopped(rank=0))
    assert rig.at(900) == []
    rig = Fed()
    rig.receive(m.Ended(rank=1, outcome=m.Outcome(kind="returned")))
    assert rig.at(900) == []
