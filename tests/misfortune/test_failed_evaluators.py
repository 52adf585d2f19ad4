"""An evaluator that fails, for real: training goes on and says so, unless the evaluator is needed."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from tests.misfortune.conftest import PATIENCE_S
from tfos_lab.engine.state.events import EvaluatorFailed
from tfos_lab.errors import NodeFailed

pytestmark = pytest.mark.leaves_nothing


def train_beside(args, ctx):
    """Fail or wait on the evaluator; train on the chief until it is told that the evaluator has ended."""
    import threading
    import time
    from pathlib import Path

    if ctx.job_name == "evaluator":
        if args["fails"]:
            raise ValueError("no checkpoint is there")
        threading.Event().wait()
    while not Path(args["until"]).exists():
        time.sleep(0.02)
    return "trained"


@pytest.fixture
def start(run, tmp_path):
    """A function that starts a chief and an evaluator, with the file that ends training."""
    until = tmp_path / "enough"
    return lambda *, fails, **options: (
        run(train_beside, {"fails": fails, "until": str(until)}, eval_node=True, **options),
        until,
    )


def evaluator_of(cluster):
    return next(view for view in cluster.nodes if view.job_name == "evaluator")


def await_end_of_evaluator(cluster):
    deadline = time.monotonic() + PATIENCE_S
    while not evaluator_of(cluster).state.ended:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_training_goes_on_when_the_evaluator_raises_and_all_say_so(start):
    cluster, until = start(fails=True)
    await_end_of_evaluator(cluster)
    assert (cluster.state, evaluator_of(cluster).state) == ("running", "failed")
    assert evaluator_of(cluster).detail == "ValueError: no checkpoint is there"
    until.touch()
    assert dict(cluster.wait(timeout_s=60)) == {"chief:0": "trained"}
    [event] = [event for event in cluster.events if isinstance(event, EvaluatorFailed)]
    assert (event.node, event.kind, event.message) == ("evaluator:0", "ValueError", "no checkpoint is there")
    [note] = cluster.view().notes
    assert note.startswith(
        "evaluator:0 failed, and training goes on without it: ValueError: no checkpoint is there (see cluster.logs"
    )
    assert 'raise ValueError("no checkpoint is there")' in cluster.logs("evaluator:0")
    cluster.stop()
    record = json.loads((cluster.run_dir / "run.json").read_text())
    assert (record["outcome"], record["notes"]) == ("done", [note])
    assert [node["state"] for node in record["nodes"]] == ["done", "failed"]


def test_training_goes_on_when_the_evaluator_is_killed(start):
    cluster, until = start(fails=False)
    os.kill(evaluator_of(cluster).pid, signal.SIGKILL)
    await_end_of_evaluator(cluster)
    until.touch()
    assert dict(cluster.wait(timeout_s=60)) == {"chief:0": "trained"}
    assert "Exited: the process was killed (SIGKILL)" in cluster.view().notes[0]


def test_the_run_ends_with_an_evaluator_that_it_needs(start):
    with pytest.raises(NodeFailed) as failed:
        start(fails=True, on_evaluator_failure="fail")[0].wait(timeout_s=60)
    assert (failed.value.node, failed.value.kind) == ("evaluator:0", "ValueError")
    assert "no checkpoint is there" in failed.value.traceback
