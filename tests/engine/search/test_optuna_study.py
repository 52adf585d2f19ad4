"""Optuna as the sampler: what it is asked and told."""

from __future__ import annotations

import sys

import optuna
import pytest

from tfos_lab.core.states import NodeState
from tfos_lab.engine.search.domains import integers, log_uniform, uniform
from tfos_lab.engine.search.optuna_study import is_optuna, open_study
from tfos_lab.engine.search.space import make_space
from tfos_lab.errors import ConfigError

SPACE = make_space(
    {
        "lr": log_uniform(1e-4, 1),
        "drop": uniform(0, 0.5),
        "units": integers(1, 8),
        "act": ["a", None],
        "layers": [(1, 2), (3,)],
    }
)


def test_a_sampler_draws_from_the_space():
    study = open_study("optuna", SPACE, mode="min", seed=1)
    params = study.ask(0)
    assert list(params) == SPACE.names
    assert 1e-4 <= params["lr"] <= 1
    assert params["units"] in range(1, 9)
    assert params["layers"] in [(1, 2), (3,)], "a value that Optuna cannot store"
    assert params == open_study("optuna", SPACE, mode="min", seed=1).ask(0)


def test_a_study_is_told_how_trials_have_ended():
    asked = optuna.create_study(direction="maximize", pruner=optuna.pruners.NopPruner())
    study = open_study(asked, make_space({"x": uniform(0, 1)}), mode="max", seed=None)
    ends = [(0.5, NodeState.DONE), (0.25, NodeState.STOPPED_EARLY), (None, NodeState.FAILED), (0.5, NodeState.STOPPED)]
    for number, (value, state) in enumerate(ends):
        study.ask(number)
        study.report(number, 1, None, -0.25)
        study.tell(number, value, state)
    study.tell(9, 1.0, NodeState.STOPPED)  # never asked for
    assert [trial.state.name for trial in asked.trials] == ["COMPLETE", "PRUNED", "FAIL", "FAIL"]
    assert asked.best_value == 0.5
    assert asked.trials[1].intermediate_values == {1: 0.25}


def test_the_pruner_of_a_study_cuts():
    asked = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=1.0))
    study = open_study(asked, make_space({"x": uniform(0, 1)}), mode="min", seed=None)
    study.ask(0)
    assert not study.report(0, 1, None, 0.5)
    assert study.report(0, 1, None, 2.0), "also where a step is reported twice"


def test_what_does_not_fit_is_refused():
    asked = optuna.create_study(direction="maximize")
    with pytest.raises(ConfigError, match="a study that wants to maximize, with mode='min': give mode='max'"):
        open_study(asked, SPACE, mode="min", seed=None)
    with pytest.raises(ConfigError, match="give one of a single objective"):
        open_study(optuna.create_study(directions=["minimize", "maximize"]), SPACE, mode="min", seed=None)
    with pytest.raises(ConfigError, match="Optuna samples from one dict"):
        open_study("optuna", make_space([{"a": 1}, {"b": 2}]), mode="min", seed=None)


def test_optuna_is_known_by_its_classes():
    assert is_optuna(optuna.samplers.RandomSampler())
    assert is_optuna(optuna.create_study())
    assert not is_optuna("optuna")


def test_without_optuna_it_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match=r"needs Optuna, which is not installed here: pip install optuna"):
        open_study("optuna", SPACE, mode="min", seed=None)
    assert not is_optuna(object())
