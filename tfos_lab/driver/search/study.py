"""Optuna's part of a search: a study draws parameters, hears what trials report, and decides which of them are cut."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tfos_lab.core.states import NodeState
from tfos_lab.driver.search.space import Params, import_optuna
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    import optuna

    from tfos_lab.driver.search.runs import SearchPlan

# Optuna stores values of these types as they are.
_PLAIN = (str, int, float, bool, type(None))
_DIRECTIONS = {"min": "minimize", "max": "maximize"}
# Quotients are not exact.
_TINY = 1e-9

# How far a trial is, in steps of the pruner, by its last step and the number that it will take, if that is known.
Progress = Callable[[int, int | None], int]


def is_optuna(strategy: object) -> bool:
    """Whether this is a sampler or a study of Optuna's, which is then imported already."""
    module = sys.modules.get("optuna")
    return module is not None and isinstance(strategy, module.samplers.BaseSampler | module.Study)


def open_study(plan: SearchPlan, space: Mapping[str, Any], trials: int) -> OptunaStudy:
    """Return the study for a search of this number of trials.

    The plan's ``strategy`` is a study, whose pruner is used, too; a sampler; or a string for one of Optuna's. ``space``
    is empty where the points are known already. Raises ConfigError if Optuna is missing, or the study has another
    direction.
    """
    strategy = plan.strategy
    optuna = import_optuna(f"strategy={strategy!r}")
    if isinstance(strategy, optuna.Study):
        _require_direction(strategy, plan.mode)
        return OptunaStudy(strategy, space)
    pruner, progress = optuna.pruners.NopPruner(), None
    if strategy == "halving":
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=plan.reduction)
        progress = _halving_progress(trials, plan.reduction, plan.min_steps)
    if strategy == "optuna":
        strategy = optuna.samplers.TPESampler(seed=plan.seed)
    elif not is_optuna(strategy):
        strategy = optuna.samplers.RandomSampler(seed=plan.seed)
    return OptunaStudy(_create_study(strategy, pruner, plan.mode), space, progress)


def _create_study(sampler: optuna.samplers.BaseSampler, pruner: optuna.pruners.BasePruner, mode: str) -> optuna.Study:
    """Return a study in memory; Optuna's line about it is left out."""
    import optuna

    direction = optuna.study.StudyDirection[_DIRECTIONS[mode].upper()]
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(verbosity, optuna.logging.WARNING))
    try:
        return optuna.create_study(sampler=sampler, pruner=pruner, direction=direction)
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


def _halving_progress(trials: int, reduction: int, min_steps: int | None) -> Progress:
    """Return how far a trial is, where there is a rung at each power of ``reduction``.

    The first rung is at ``min_steps``. Without it, rungs are at parts of the steps where a trial reports how many
    there will be, as many as it takes to leave the best trial; else after 1, ``reduction``, ``reduction``²… steps.
    """
    whole: int = reduction ** max(1, math.floor(math.log(max(2, trials), reduction) + _TINY))

    def progress(step: int, total_steps: int | None) -> int:
        if total_steps and min_steps is None:
            return min(whole - 1, step * whole // total_steps)  # at the end there is no rung
        return step // (min_steps or 1)

    return progress


class OptunaStudy:
    """A study, and its trials by our numbers; it draws from the lists, ranges and distributions of ``space``.

    ``progress`` returns how far a trial is; by default that is the number of its reports, as steps may repeat, which
    Optuna's may not.
    """

    def __init__(self, study: optuna.Study, space: Mapping[str, Any], progress: Progress | None = None) -> None:
        self._study = study
        self._distributions = {name: _distribution_of(values) for name, values in space.items()}
        self._numbered = {name: values for name, values in space.items() if _is_numbered(values)}
        self._progress = progress
        self._trials: dict[int, optuna.Trial] = {}
        self._reached: dict[int, int] = {}

    def ask(self, trial: int) -> Params:
        """Return the parameters of a trial that begins."""
        asked = self._trials[trial] = self._study.ask(self._distributions)
        return {
            name: self._numbered[name][asked.params[name]] if name in self._numbered else asked.params[name]
            for name in self._distributions
        }

    def report(self, trial: int, step: int, total_steps: int | None, best: float) -> bool:
        """Tell the study the best value so far, and return whether its pruner would end the trial."""
        asked, reached = self._trials[trial], self._reached.get(trial, 0)
        now = self._progress(step, total_steps) if self._progress is not None else reached + 1
        if now <= reached:
            return False
        self._reached[trial] = now
        asked.report(best, now)
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


def _distribution_of(values: Any) -> optuna.distributions.BaseDistribution:
    from optuna.distributions import CategoricalDistribution, IntDistribution

    if isinstance(values, range):
        return IntDistribution(min(values[0], values[-1]), max(values[0], values[-1]), step=abs(values.step))
    if isinstance(values, list):
        return CategoricalDistribution(range(len(values)) if _is_numbered(values) else values)
    return values  # type: ignore[no-any-return]


def _is_numbered(values: Any) -> bool:
    """Whether Optuna draws the place of a value, as it cannot store the value."""
    return isinstance(values, list) and not all(isinstance(value, _PLAIN) for value in values)
