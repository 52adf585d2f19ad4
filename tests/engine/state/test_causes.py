"""What TensorFlow says of collectives that do not match is told in terms of the nodes' steps."""

from __future__ import annotations

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.state.causes import (
    CONSEQUENCE_PATIENCE_S,
    MISMATCH_PATIENCE_S,
    Causes,
    in_terms_of_steps,
    silent_nodes_in,
)
from tfos_lab.engine.state.instructions import Failure

MISMATCH = "Collective ops is aborted by: Collective instance 113 expected type 0 and data_type 1 but got type 2"
FAILURE = Failure("worker:1", "InternalError", MISMATCH, traceback="Traceback", gone=True)
ADVICE = "give all nodes equally many steps, or wrap the dataset in ctx.even(dataset)"


def outcome(steps, *, ended):
    return m.Outcome(kind="raised", steps=steps, dataset_ended=ended)


@pytest.mark.parametrize(
    ("outcomes", "reported", "text"),
    [
        (
            {"worker:1": outcome(12, ended=True), "chief:0": outcome(13, ended=False)},
            {"chief:0": -1, "worker:1": -1},
            f"worker:1 has ended its dataset after 12 steps while chief:0 still trains (step 13): {ADVICE}",
        ),
        (
            {"worker:1": outcome(1, ended=True)},
            {"chief:0": 1, "worker:1": 1},
            f"worker:1 has ended its dataset after 1 step while chief:0 still trains (step 2): {ADVICE}",
        ),
        (
            {"worker:1": outcome(12, ended=True)},
            {"chief:0": -1, "worker:1": -1},
            f"worker:1 has ended its dataset after 12 steps while chief:0 still trains: {ADVICE}",
        ),
        (
            {"worker:1": outcome(3, ended=False)},
            {"chief:0": -1, "worker:1": 3},
            f"the nodes that train do not take the same steps together: {ADVICE}",
        ),
    ],
)
def test_a_mismatch_of_collectives_is_one_of_steps(outcomes, reported, text):
    failure = in_terms_of_steps(FAILURE, outcomes, reported)
    assert (failure.node, failure.kind, failure.message, failure.gone) == ("worker:1", "FeedError", text, False)
    assert failure.traceback == "Traceback"


def test_a_mismatch_waits_for_the_error_of_another_node_which_says_why():
    causes = Causes()
    assert not causes.add(FAILURE, 100.0, consequence=True, others_alive=True)
    assert causes.overdue(100.0 + MISMATCH_PATIENCE_S - 0.1) is None
    causes.add(Failure("chief:0", "InternalError", MISMATCH, gone=True), 102.0, consequence=True, others_alive=True)
    assert causes.overdue(102.0) == FAILURE


def test_a_mismatch_that_no_other_node_meets_is_told_too():
    causes = Causes()
    causes.add(FAILURE, 100.0, consequence=True, others_alive=True)
    assert causes.overdue(100.0 + MISMATCH_PATIENCE_S + 0.1) == FAILURE


def test_other_errors_are_told_as_they_are():
    failure = Failure("worker:1", "UnavailableError", "Connection reset by peer", gone=True)
    assert in_terms_of_steps(failure, {}, {"chief:0": 3}) is failure


# As TensorFlow 2.20 says it on the nodes that are left.
UNHEALTHY = """Graph execution error:

Detected at node CollectiveReduceV2 defined at (most recent call last):
Collective ops is aborted by: Error reported from /job:worker/task:1: The following tasks are unhealthy (stopped \
sending heartbeats):
/job:worker/replica:0/task:1
/job:ps/replica:0/task:0
The tasks have crashed. Check the task logs for an earlier error, or scheduler events to debug further.
"""
AT_A_BARRIER = """Barrier timed out. Id: [Init]. # of tasks that reached the barrier: 1/2.
The first task at the barrier: /job:chief/replica:0/task:0. Some timed out task names:
/job:worker/replica:0/task:0
"""


@pytest.mark.parametrize(
    ("message", "nodes"),
    [
        (UNHEALTHY, ["worker:1", "ps:0"]),
        (AT_A_BARRIER, ["worker:0"]),
        ("Error reported from /job:worker/task:1: Connection reset by peer", []),
        ("", []),
    ],
)
def test_the_nodes_that_tensorflow_calls_silent_are_read_from_its_text(message, nodes):
    assert silent_nodes_in(message) == nodes


def test_an_error_waits_for_as_long_as_nodes_are_asked_for_its_cause():
    causes = Causes()
    failure = Failure("chief:0", "UnavailableError", UNHEALTHY, gone=True)
    assert not causes.add(failure, 100.0, consequence=True, others_alive=True)
    assert causes.silent_nodes == ("chief:0", ["worker:1", "ps:0"])
    late_s = 100.0 + CONSEQUENCE_PATIENCE_S + 0.1
    causes.hold(late_s + 1.0)
    assert causes.overdue(late_s) is None
    causes.hold(0.0)
    assert causes.overdue(late_s) is failure
    assert causes.silent_nodes == ("", [])
