"""The assessor judges views as they come, and keeps the last verdict of a run that is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tfos_lab.core.states import NodeState, RunState
from tfos_lab.engine.diagnosis.diagnosis import Assessor, Diagnosis
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.engine.state.events import ClusterView, NodeView

SLOW = NodeActivity(step=30, step_s=0.5, computes=0.95, python=0.05)
ENDING = NodeActivity(step=60, step_s=0.5, python=1.0, where="save")


def view(activity, step=30, **fields):
    node = NodeView(
        "chief:0", "chief", 0, is_chief=True, state=NodeState.RUNNING, step=step, total_steps=60, activity=activity
    )
    rest = {"cluster_id": "c", "name": "c", "launcher": "local", "started_s": 0.0, "ended_s": None, "timings": {}}
    return replace(ClusterView(**rest, state=RunState.RUNNING, nodes=(node,)), **fields)


def test_a_view_gets_verdict_progress_and_time_left():
    assessor = Assessor()
    assessor.assess(view(SLOW, step=15), 100.0)
    seen = assessor.assess(view(SLOW), 110.0)
    assert seen.verdict.startswith("compute bound: 95 %")
    assert (seen.progress, seen.seconds_left) == (0.5, pytest.approx(20.0))
    diagnosis = assessor.diagnose(seen)
    assert (diagnosis.kind, str(diagnosis)) == ("compute", seen.verdict)
    assert diagnosis.nodes == {"chief:0": SLOW}
    assert (diagnosis.progress, diagnosis.seconds_left) == (0.5, seen.seconds_left)


def test_a_run_that_is_over_keeps_what_was_known():
    assessor = Assessor()
    assessor.assess(view(SLOW), 1.0)
    over = assessor.assess(view(ENDING, step=60, state=RunState.DONE), 2.0)
    assert over.verdict.startswith("compute bound")
    assert (over.progress, over.seconds_left) == (1.0, None)
    assert assessor.diagnose(over).kind == "compute"


def test_a_run_that_nobody_has_looked_at_is_judged_at_its_end():
    assessor = Assessor()
    assert assessor.assess(view(SLOW, state=RunState.DONE), 2.0).verdict.startswith("compute bound")


def test_what_is_not_known_is_said_in_words_only_when_asked_for():
    assert Diagnosis().verdict == ""
    assert str(Diagnosis()) == "why training is as slow as it is cannot be told (yet)"
