"""Which nodes hang, which only wait for them, and which take none of their rows: nodes that the test plays."""

from types import SimpleNamespace

import pytest

from tests.support.eventually import eventually
from tfos_lab.core import messages as m
from tfos_lab.core.messages import Condition
from tfos_lab.errors import NodeFailed

pytestmark = pytest.mark.leaves_nothing

BUSY, ROWS, WAITS, INSIDE = Condition.BUSY, Condition.WAITS_FOR_ROWS, Condition.WAITS, Condition.IN_TENSORFLOW
STOPPED, LOCKED, AWAY = Condition.STOPPED, Condition.LOCKED, Condition.AWAY
NOT_AT_ALL = None


class Stage:
    """A cluster whose nodes tell how long they have been idle, and answer with ``conditions`` when they are asked."""

    def __init__(self, cluster, nodes, conditions):
        self.cluster, self.nodes, self.conditions = cluster, nodes, conditions
        self.names = [node.name for node in cluster.nodes]
        self.asked = self.answered = 0
        self.calls = dict.fromkeys(self.names, "")
        self._played = nodes.listener.on_send
        nodes.listener.on_send = self._on_send

    def _on_send(self, identity, message):
        self._played(identity, message)
        rank = int(identity.removeprefix(b"agent/"))
        if isinstance(message, m.StacksWanted) and rank == len(self.names) - 1:
            self.asked += 1
        if isinstance(message, m.StacksWanted) and (condition := self.conditions.get(self.names[rank])):
            told = {"place": "train.py, line 7", "call": self.calls[self.names[rank]]}
            text = f"stacks of {self.names[rank]}"
            self.nodes.send(m.Stacks(message.request, condition, text, **told, rank=rank))
            self.answered += 1
        if isinstance(message, m.FeedOpen):
            self.nodes.send(m.FeedReady(message.feed, [], rank=rank))
        if isinstance(message, m.FilesAsked):
            self.nodes.send(m.FilesFound(message.feed, {}, done=True, rank=rank))

    def say(self, node, idle_s, *, step=None, sign="step 41"):
        seen = m.NodeActivity(step=step, idle_s=idle_s, last_sign=sign)
        self.nodes.send(m.Activity(seen, rank=self.names.index(node)))

    def hung_once_asked(self, times=1):
        """Wait until all nodes have been asked so often and what they answered has been judged; return who hangs."""
        eventually(lambda: self.asked >= times)
        self.nodes.settle()
        return [view.name for view in self.cluster.nodes if view.hung]


@pytest.fixture
def stage(start, nodes):
    def stage(conditions, **options):
        cluster = start(**options)
        cluster.wait_until_running()
        return Stage(cluster, nodes, conditions)

    return stage


@pytest.mark.parametrize(
    ("chief", "worker", "steps", "hung"),
    [
        (INSIDE, BUSY, (41, 41), ["worker:0"]),
        (INSIDE, STOPPED, (41, 41), ["worker:0"]),
        (INSIDE, LOCKED, (41, 41), ["worker:0"]),
        (BUSY, STOPPED, (41, 41), ["chief:0", "worker:0"]),
        (WAITS, STOPPED, (41, 41), ["worker:0"]),
        (INSIDE, ROWS, (41, 41), []),
        (ROWS, ROWS, (41, 41), []),
        (INSIDE, WAITS, (41, 41), []),
        (INSIDE, AWAY, (41, 41), []),
        # Of nodes that all wait in TensorFlow, those that have come least far.
        (INSIDE, INSIDE, (41, 40), ["worker:0"]),
        (INSIDE, INSIDE, (41, 41), ["chief:0", "worker:0"]),
    ],
)
def test_the_node_hangs_that_others_wait_for(stage, chief, worker, steps, hung):
    seen = stage({"chief:0": chief, "worker:0": worker})
    for node, step in zip(seen.names, steps, strict=True):
        seen.say(node, 64.0, step=step)
    assert seen.hung_once_asked() == hung


def test_a_hung_node_says_since_when_and_where_it_is_until_it_goes_on(stage):
    seen = stage({"chief:0": INSIDE, "worker:0": BUSY})
    seen.say("chief:0", 1.0, step=1)
    seen.say("worker:0", 64.2, step=41)
    assert seen.hung_once_asked() == ["worker:0"]
    text = "no step, row or log line for 64 s; last: step 41; it is at train.py, line 7"
    assert seen.cluster.nodes[1].hung == text
    seen.say("worker:0", 0.5, step=42)
    eventually(lambda: not seen.cluster.nodes[1].hung)
    assert seen.asked == 1, "nodes are asked again only after as long again"


@pytest.mark.parametrize(
    ("options", "signs", "conditions", "hung"),
    [
        # Nothing hangs before training has begun, except a process that is stopped.
        ({}, {"chief:0": "began", "worker:0": "began"}, {"chief:0": BUSY, "worker:0": INSIDE}, []),
        ({}, {"chief:0": "began", "worker:0": "began"}, {"chief:0": BUSY, "worker:0": STOPPED}, ["worker:0"]),
        # Parameter servers and evaluators may wait for as long as they like.
        (
            {"cluster_size": 3, "num_ps": 1, "evaluator": True},
            {"ps:0": "began", "evaluator:0": "began"},
            {"ps:0": WAITS, "evaluator:0": BUSY, "chief:0": INSIDE},
            [],
        ),
        ({"num_ps": 1}, {"ps:0": "began", "chief:0": "step 4"}, {"ps:0": STOPPED, "chief:0": INSIDE}, ["ps:0"]),
    ],
    ids=["not yet", "stopped", "ps and evaluator", "a stopped ps"],
)
def test_who_may_be_idle(stage, options, signs, conditions, hung):
    seen = stage(conditions, **options)
    for node, sign in signs.items():
        seen.say(node, 300.0, step=None if sign == "began" else 4, sign=sign)
    assert seen.hung_once_asked() == hung


@pytest.mark.parametrize(("call", "hung"), [("strategy (tfos_lab)", ["chief:0"]), ("matmul (tensorflow)", [])])
def test_a_node_hangs_that_waits_in_its_strategy_for_one_that_has_returned(stage, nodes, call, hung):
    seen = stage({"chief:0": INSIDE, "worker:0": NOT_AT_ALL})
    seen.calls["chief:0"] = call
    nodes.end(1)
    seen.say("chief:0", 64.0, sign="began")
    eventually(lambda: seen.answered)
    nodes.settle()
    assert [view.name for view in seen.cluster.nodes if view.hung] == hung
    if hung:
        told = "it has waited in ctx.strategy() for 64 s for nodes that have returned without it: worker:0. Call"
        assert seen.cluster.nodes[0].hung.startswith(told)


def test_a_hung_node_is_a_reason_to_start_again(stage, nodes):
    seen = stage({"chief:0": INSIDE, "worker:0": STOPPED}, on_hang="fail", restarts=1)
    for node in seen.names:
        seen.say(node, 64.0, step=41)
    eventually(lambda: len(nodes.launchers) == 2)
    eventually(lambda: seen.cluster.state == "running")


# ---- a process that others have failed for --------------------------------------------------------------------------

NAMES_WORKER = "The following tasks are unhealthy (stopped sending heartbeats):\n/job:worker/replica:0/task:0\n"


@pytest.mark.parametrize(
    ("idle_s", "message", "condition", "told"),
    [
        (13.0, "task is silent", STOPPED, "its process is stopped (SIGSTOP)"),
        (13.0, "task is silent", LOCKED, "its Python does not answer"),
        (2.0, NAMES_WORKER, STOPPED, "its process is stopped (SIGSTOP)"),
        (2.0, NAMES_WORKER, BUSY, "TensorFlow on chief:0 has had no heartbeat of its process for too long; it answers"),
        (2.0, NAMES_WORKER, NOT_AT_ALL, "its agent does not answer either: its host is cut off, or all of it stands"),
    ],
)
def test_a_node_that_is_silent_is_the_cause_of_its_peers_errors(stage, idle_s, message, condition, told):
    seen = stage({"worker:0": condition}, hang_timeout=0.0)
    seen.say("worker:0", idle_s, step=4)
    outcome = m.Outcome(kind="raised", error="UnavailableError", message=message, consequence=True)
    seen.nodes.send(m.Ended(rank=0, outcome=outcome))
    with pytest.raises(NodeFailed) as failed:
        seen.cluster.wait(timeout=60)
    assert (failed.value.node, failed.value.kind) == ("worker:0", "Hung")
    assert told in failed.value.message
    assert list(failed.value.consequences) == ["chief:0"]


# ---- rows that nobody takes -----------------------------------------------------------------------------------------


# What comes of it is in `tests/faults/table.py`; when, and of whom not, is as the driver's clock says.
START_S = 1000.0


NEVER = [(60, 60, False), (5000, 5000, False)]


@pytest.mark.parametrize(
    ("options", "looks"),
    [
        pytest.param({}, [(59, 59, False), (60, 60, True), (61, 61, False), (300, 300, False)], id="once"),
        pytest.param({"timeout_s": 20.0}, [(9, 9, False), (10, 10, True)], id="before the time-out, however short"),
        pytest.param({}, [(60, 1, True), (900, 30, False)], id="though it works on something else, which may be"),
        pytest.param(
            {"caller_waits": True},
            [(60, 60, True), (600, 600, False), (6000, 6000, False)],
            id="though who feeds waits, who fails then",
        ),
        # Where nodes may leave rows, or want none.
        pytest.param({"warn_s": 0.0}, NEVER, id="no warning"),
        pytest.param({"resumes": True}, NEVER, id="resumes"),
        pytest.param({"stream": True}, NEVER, id="stream"),
        pytest.param({"timeout_s": 0.0}, NEVER, id="no time-out"),
        pytest.param({"then": m.FeedStopped(rank=0)}, NEVER, id="stopped"),
        pytest.param({"then": m.Ended(rank=1, outcome=m.Outcome(kind="returned"))}, NEVER, id="returned"),
    ],
)
def test_a_node_that_takes_none_of_its_rows_is_warned_of(start, nodes, monkeypatch, options, looks):
    """Each look is after some seconds, the worker's last sign so many seconds ago, and finds a warning or nothing."""
    clock = SimpleNamespace(now_s=START_S)
    times = SimpleNamespace(monotonic=lambda: clock.now_s, time=lambda: clock.now_s)
    monkeypatch.setattr("tfos_lab.driver.head.time", times)
    resumes = options.get("resumes", False)
    cluster = start(hang_timeout=options.get("warn_s", 60.0), restarts=int(resumes))
    cluster.wait_until_running()
    if resumes:
        nodes.kill(1)
        eventually(lambda: len(nodes.launchers) == 2 and cluster.state == "running")
    nodes.listener.is_behind = True  # else the nodes would be lost, of which nothing is heard in such leaps of time
    head, feeds = cluster.head, cluster.head.feed_state
    opened = m.FeedOpen(feed=-1, epochs=1, remainder="exact", schema="", token="t", stream=options.get("stream", False))
    head.request(lambda _now_s: feeds.open(opened, 0, options.get("timeout_s", 600.0)))
    nodes.send(m.AttemptStored(rank=0, feed=0, partition=0, attempt="a", rows=10, size_bytes=9))
    nodes.settle()
    head.request(lambda now_s: feeds.job_done(0, 20, 1, now_s))
    nodes.send(m.RowsTaken(rank=0, rows=10, feeds={0: (1, 10)}))
    nodes.settle()
    feeds.caller_waits = options.get("caller_waits", False)
    if "then" in options:
        nodes.send(options["then"])
        nodes.settle()
    for passed_s, idle_s, is_warned_of in looks:
        before = cluster.view().notes
        clock.now_s = START_S + passed_s
        nodes.send(m.Activity(m.NodeActivity(idle_s=idle_s, last_sign="began"), rank=1))
        nodes.settle()
        clock.now_s += 0.3  # more than passes between two looks of the driver
        for _ in range(2):
            nodes.settle()
        told = [note for note in cluster.view().notes if note not in before]
        if is_warned_of:
            [warning] = told
            assert warning.startswith(f"worker:0 has taken none of its 10 rows, which had all come {passed_s} s ago: ")
        else:
            assert told == []
