"""What a search decides about its trials as they begin and end."""

from __future__ import annotations

import pytest

from tfos_lab.core.states import NodeState
from tfos_lab.engine.parallel.state import ParallelState
from tfos_lab.engine.search.policy import SearchPolicy
from tfos_lab.engine.search.state import SearchState
from tfos_lab.engine.state.events import MetricsReported
from tfos_lab.errors import ConfigError


class Study:
    """Stands in for Optuna's."""

    def __init__(self):
        self.told = []

    def ask(self, trial):
        self.told.append(("asked", trial))
        return {"x": trial}

    def tell(self, trial, value, state):
        self.told.append((trial, value, state.value))

    def close(self):
        self.told.append("closed")


def report(**metrics):
    return MetricsReported(time_s=0.0, node="chief:0", step=1, total_steps=None, metrics=metrics)


def test_parameters_that_are_known_before_are_shown_while_a_trial_waits():
    entries = ParallelState(["", ""]).entries
    policy = SearchPolicy(SearchState(2), lambda params: params["x"], None)
    policy.set_all(entries, [{"x": 1}, {"x": 2}])
    assert [(entry.args, policy.size(entry)) for entry in entries] == [("x=1", 1), ("x=2", 2)]
    assert policy.params(1) == {"x": 2}


def test_a_sampler_is_asked_as_late_as_can_be_and_told_the_end():
    study, entries = Study(), ParallelState(["", ""]).entries
    policy = SearchPolicy(SearchState(2), lambda params: 1, study)
    assert entries[0].args == ""
    assert policy.size(entries[0]) == policy.size(entries[0]) == 1
    assert entries[0].args == "x=0"
    policy.prepare(entries[0])
    assert not policy.reported(entries[0], 0, report(loss=0.5))
    assert policy.returned(entries[0], None) is None
    policy.ended(entries[0], NodeState.DONE)
    policy.close()
    assert study.told == [("asked", 0), (0, 0.5, "done"), "closed"]


def test_a_trial_that_reports_nothing_proves_that_none_can_be_compared():
    entries = ParallelState([""]).entries
    policy = SearchPolicy(SearchState(1, metric="loss"), lambda params: 1, None)
    error = policy.returned(entries[0], None)
    assert isinstance(error, ConfigError)
    assert "call ctx.report(step, loss=…)" in str(error)


def test_a_size_that_cannot_be_is_told():
    def size_of(params):
        raise ConfigError(["cluster_size=9: too many"])

    policy = SearchPolicy(SearchState(1), size_of, Study())
    with pytest.raises(ConfigError, match="too many"):
        policy.size(ParallelState([""]).entries[0])
