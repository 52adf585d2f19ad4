"""Optuna as the sampler of a search: a study is asked for each trial's parameters, and told how the trial ended.

Optuna is imported only if it is asked for: ``pip install tfos_lab[search]``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tfos_lab.core.states import NodeState
from tfos_lab.driver.search.domains import PLAIN, Domain, Integers, LogUniform, Uniform
from tfos_lab.driver.search.space import Params, Space
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import optuna

_DIRECTIONS = {"min": "minimize", "max": "maximize"}


def is_optuna(strategy: object) -> bool:
    """Whether this is a sampler or a study of Optuna's; whoever has one has imported it."""
    module = sys.modules.get("optuna")
    return module is not None and isinstance(strategy, module.samplers.BaseSampler | module.Study)


def open_study(strategy: Any, space: Space, *, mode: str, seed: int | None) -> OptunaStudy:
    """Return the study for a search.

    Parameters
    ----------
    strategy : str, optuna.samplers.BaseSampler or optuna.Study
        A study, whose pruner is used, too; a sampler; or a string for Optuna's usual sampler.
    space : Space
        What it samples from.
    mode : {"min", "max"}
        Whether less or more is better.
    seed : int or None
        For Optuna's usual sampler.

    Raises
    ------
    ConfigError
        If Optuna is missing, the study has another direction, or the space is of several parts.
    """
    try:
        import optuna
    except ImportError:
        raise ConfigError(
            ["strategy='optuna' needs Optuna, which is not installed here: pip install optuna, or tfos_lab[search]"]
        ) from None
    if len(space.parts) > 1:
        raise ConfigError(["space is a list: Optuna samples from one dict; use strategy='random' for several"])
    if isinstance(strategy, optuna.Study):
        _require_direction(strategy, mode)
        return OptunaStudy(strategy, space)
    sampler = optuna.samplers.TPESampler(seed=seed) if isinstance(strategy, str) else strategy
    return OptunaStudy(_create_study(sampler, mode), space)


def _create_study(sampler: optuna.samplers.BaseSampler, mode: str) -> optuna.Study:
    """Return a study in memory; Optuna's line about it is left out."""
    import optuna

    direction = optuna.study.StudyDirection[_DIRECTIONS[mode].upper()]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(verbosity, optuna.logging.WARNING))
    try:
        return optuna.create_study(sampler=sampler, pruner=optuna.pruners.NopPruner(), direction=direction)
    finally:
        optuna.logging.set_verbosity(verbosity)


def _require_direction(study: optuna.Study, mode: str) -> None:
    directions = [direction.name.lower() for direction in study.directions]
    if directions != [_DIRECTIONS[mode]]:
        other = next((name for name, direction in _DIRECTIONS.items() if [direction] == directions), None)
        advice = f"give mode={other!r}" if other else "give one of a single objective"
        raise ConfigError(
            [f"strategy is a study that wants to {' and '.join(directions)}, with mode={mode!r}: {advice}"]
        )


class OptunaStudy:
    """A study, and its trials by our numbers; as a judge it asks the study's pruner."""

    def __init__(self, study: optuna.Study, space: Space) -> None:
        self._study = study
        [self._space] = space.parts
        self._trials: dict[int, optuna.Trial] = {}
        self._reports: dict[int, int] = {}

    def ask(self, trial: int) -> Params:
        """Return the parameters of a trial that begins."""
        asked = self._trials[trial] = self._study.ask()
        return {name: _suggest(asked, name, domain) for name, domain in self._space.items()}

    def forget(self, trial: int) -> None:
        """A trial begins anew; what Optuna was told stays."""

    def report(self, trial: int, step: int, total_steps: int | None, badness: float) -> bool:  # noqa: ARG002
        """Tell the study the best value so far, and return whether its pruner would end the trial."""
        asked = self._trials[trial]
        # Steps may repeat, which Optuna's may not.
        number = self._reports[trial] = self._reports.get(trial, 0) + 1
        is_more_better = self._study.direction.name == "MAXIMIZE"
        asked.report(-badness if is_more_better else badness, number)
        return bool(asked.should_prune())

    def tell(self, trial: int, value: float | None, state: NodeState) -> None:
        """Tell the study how a trial has ended."""
        from optuna.trial import TrialState

        asked = self._trials.pop(trial, None)
        if asked is None:
            return
        if state is NodeState.STOPPED_EARLY:
            self._study.tell(asked, state=TrialState.PRUNED)
        elif value is None or state is not NodeState.DONE:
            self._study.tell(asked, state=TrialState.FAIL)
        else:
            self._study.tell(asked, value)

    def close(self) -> None:
        """Tell the study that trials which have been asked for and not ended will not."""
        for trial in list(self._trials):
            self.tell(trial, None, NodeState.STOPPED)


def _suggest(trial: optuna.Trial, name: str, domain: Domain) -> Any:
    match domain:
        case Uniform(low=low, high=high):
            return trial.suggest_float(name, low, high)
        case LogUniform(low=low, high=high):
            return trial.suggest_float(name, low, high, log=True)
        case Integers(low=low, high=high):
            return trial.suggest_int(name, low, high)
    values = list(domain.values or ())
    if all(isinstance(value, PLAIN) for value in values):
        return trial.suggest_categorical(name, values)
    return values[trial.suggest_categorical(name, range(len(values)))]
