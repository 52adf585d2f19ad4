"""A node's part in the lock-step: what it announces, what it waits for, and what it says of a node that has left."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from tfos_lab import messages as m
from tfos_lab.errors import FeedError
from tfos_lab.errors.channel import own_error_in
from tfos_lab.node import lock_step
from tfos_lab.node.lock_step import STEP_COUNT, LockStep, StepCount

SPEC = {"chief": ["a:1"], "evaluator": ["b:1"], "worker": ["c:1", "d:1"]}


class Node:
    """The chief, and what it sends."""

    def __init__(self, job="chief", index=0, spec=None):
        start = {"cluster_spec": spec or SPEC, "job_name": job, "task_index": index, "is_chief": job == "chief"}
        self.sent = []
        self.steps = LockStep(
            m.Start(cluster_id="c", rank=0, payload=b"", env={}, log_dir="/logs", **start), self.sent.append
        )

    def factor(self, step, *, passage=0, timeout_s=0.0):
        return self.steps.factor(0, passage, step, timeout_s, drop=False)

    def agree(self, *runs, passage=0, **fields):
        self.steps.handle(m.StepsAgreed(0, passage, list(runs), **fields))


def test_only_nodes_that_train_together_wait_for_one_another():
    assert Node().steps.nodes == Node("worker", 1).steps.nodes == 3
    assert Node("evaluator").steps.nodes == 1
    assert Node("worker", 0, {"ps": ["x:1"], **SPEC}).steps.nodes == 1
    assert Node(spec={"chief": ["a:1"]}).steps.nodes == 1


def test_steps_are_announced_several_at_once_or_when_one_is_waited_for():
    node = Node()
    for rows in (8, 8, 8, 3, 8):
        node.steps.add_step(0, 0, rows, drop=False)
    assert node.sent == [m.StepsAhead(0, 0, 0, [(3, 8), (1, 3)])]
    assert node.factor(0) is None
    assert node.sent[1:] == [m.StepsAhead(0, 0, 0, [(1, 8)])]
    node.steps.end_pass(0, 0, drop=True)
    assert node.sent[2:] == [m.StepsAhead(0, 0, 0, [], ended=True, drop=True)]


def test_the_factor_is_this_nodes_part_of_the_mean_over_all_rows():
    node = Node()
    for rows in (8, 4):
        node.steps.add_step(0, 0, rows, drop=False)
    node.agree((1, 24), (2, 16), ended=True)
    assert [node.factor(step) for step in range(4)] == [1.0, 0.75, 0.0, -1.0]
    node.agree((1, 0), passage=1)
    assert node.factor(0, passage=1) == 1.0  # a step of empty batches


def test_a_step_is_waited_for():
    node = Node()
    node.steps.add_step(0, 0, 8, drop=False)
    timer = threading.Timer(0.05, node.agree, [(1, 24)])
    timer.start()
    assert node.factor(0, timeout_s=20) == 1.0
    timer.join()


def test_who_reads_on_where_another_node_has_left_is_told_at_that_step():
    node = Node()
    for _ in range(2):
        node.steps.add_step(0, 0, 8, drop=False)
    node.agree((1, 24))
    node.agree(left="worker:1")
    assert node.factor(0) == 1.0
    with pytest.raises(
        FeedError, match=r"^worker:1 has left a pass over ctx.even\(dataset\) that chief:0 still reads \(s"
    ):
        node.factor(1, timeout_s=20)


def test_datasets_are_numbered_as_they_are_made():
    node = Node()
    assert [node.steps.open(), node.steps.open()] == [0, 1]


@pytest.fixture
def _at_once(monkeypatch):
    monkeypatch.setattr(lock_step, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(STEP_COUNT, "steps", 13)


@pytest.mark.usefixtures("_at_once")
def test_collectives_are_ended_with_a_sentence_when_another_node_has_returned(monkeypatch):
    aborted, done = [], threading.Event()

    def abort(code, message):
        aborted.append((code, message))
        done.set()

    context = SimpleNamespace(_collective_ops_server_def="some", abort_collective_ops=abort)
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", SimpleNamespace(context_safe=lambda: context))
    Node().steps.handle(m.PeerReturned("worker:1", 12, ended=True))
    assert done.wait(20)
    ((code, message),) = aborted
    assert code == 9
    assert str(own_error_in(message)) == (
        "worker:1 has ended its dataset after 12 steps while chief:0 still trains (step 13): give all nodes equally "
        "many steps, or wrap the dataset in ctx.even(dataset)"
    )


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("context", [None, SimpleNamespace(_collective_ops_server_def=None)])
def test_a_process_without_collectives_is_left_alone(monkeypatch, context):
    monkeypatch.setitem(sys.modules, "tensorflow.python.eager.context", SimpleNamespace(context_safe=lambda: context))
    node = Node()
    node.steps._end_collectives(m.PeerReturned("worker:1"))


def test_a_node_that_has_ended_itself_ends_nothing(monkeypatch):
    ended = []
    node = Node()
    monkeypatch.setattr(lock_step, "_PATIENCE_S", 60.0)
    monkeypatch.setattr(node.steps, "_end_collectives", ended.append)
    node.steps.handle(m.PeerReturned("worker:1"))
    (timer,) = node.steps._timers
    node.steps.close()
    timer.join(20)
    assert not timer.is_alive()
    assert ended == []


def test_elements_are_counted_for_each_iterator():
    count, one, other = StepCount(), object(), object()
    assert (count.steps, count.ended) == (-1, False)
    count.take(one)
    count.take(one)
    count.end(one)
    assert (count.steps, count.ended) == (2, True)
    count.take(other)
    assert (count.steps, count.ended) == (1, False)
    count.end(one)
    assert (count.steps, count.ended) == (0, True)
