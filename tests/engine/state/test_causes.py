"""What TensorFlow says of collectives that do not match is told in terms of the nodes' steps."""

from __future__ import annotations

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.state.causes import in_terms_of_steps
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


def test_other_errors_are_told_as_they_are():
    failure = Failure("worker:1", "UnavailableError", "Connection reset by peer", gone=True)
    assert in_terms_of_steps(failure, {}, {"chief:0": 3}) is failure
