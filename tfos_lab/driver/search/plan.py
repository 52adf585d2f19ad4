"""What a search is asked for, beside its function and space: checked once, before anything starts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tfos_lab.core.options import is_int
from tfos_lab.driver.search.space import Space
from tfos_lab.driver.search.study import is_optuna
from tfos_lab.errors import ConfigError

GRID, RANDOM, HALVING, OPTUNA = "grid", "random", "halving", "optuna"
STRATEGIES = (GRID, RANDOM, HALVING, OPTUNA)
MODES = ("min", "max")
# A grid of more points is most likely a mistake.
MOST_POINTS = 10_000


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """How to search.

    Attributes
    ----------
    strategy : str or object
        One of `STRATEGIES`, an Optuna sampler or study; None for the grid of a finite space, else random.
    trials : int or None
        The most trials; None for all points of a finite space.
    metric : str or None
        What is compared; None for the first metric that is reported.
    mode : {"min", "max"}
        Whether less or more is better.
    reduction : int
        With halving, one of so many trials goes on at each rung.
    min_steps : int or None
        With halving, the step of the first rung.
    seed : int or None
        Makes random points the same each time.
    """

    strategy: Any = None
    trials: int | None = None
    metric: str | None = None
    mode: str = "min"
    reduction: int = 3
    min_steps: int | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        problems = list(self._problems())
        if problems:
            raise ConfigError(problems)

    def _problems(self) -> Iterator[str]:
        if self.strategy is not None and self.strategy not in STRATEGIES and not is_optuna(self.strategy):
            yield f"strategy={self.strategy!r}: {_use(self.strategy, STRATEGIES)}, or an Optuna sampler or study"
        if self.mode not in MODES:
            yield f"mode={self.mode!r}: {_use(self.mode, MODES)}"
        yield from _too_small("trials", self.trials, 1)
        yield from _too_small("min_steps", self.min_steps, 1)
        yield from _too_small("reduction", self.reduction, 2)
        if self.metric is not None and (not isinstance(self.metric, str) or not self.metric):
            yield f"metric={self.metric!r}: the name of a metric that the function reports is needed, such as 'loss'"
        if self.seed is not None and not is_int(self.seed):
            yield f"seed={self.seed!r}: a whole number is needed"

    def kind_for(self, space: Space) -> str:
        """Return the strategy by its name."""
        if self.strategy is None:
            return GRID if space.size is not None and self.trials is None else RANDOM
        return self.strategy if isinstance(self.strategy, str) else OPTUNA

    def count_for(self, space: Space) -> int:
        """Return how many trials there will be.

        Raises
        ------
        ConfigError
            For a space without an end, or a very large one, if it is not said how many trials there may be.
        """
        kind, endless = self.kind_for(space), " and ".join(space.endless)
        if kind == GRID and space.size is None:
            why = f"there is no end of values for {endless}"
            raise ConfigError([f"strategy='grid': {why}; list them, or use strategy='random' with trials="])
        if self.trials is None and (space.size is None or kind == OPTUNA):
            why = f"there is no end of values for {endless}" if endless else "Optuna would go on without end"
            raise ConfigError([f"trials=None: {why}; say how many to try, such as trials=20"])
        if self.trials is None and (space.size or 0) > MOST_POINTS:
            raise ConfigError([f"space has {space.size:,} points: say how many to try, such as trials=100"])
        if len(space.parts) > 1 and (kind == OPTUNA or endless):
            advice = "use strategy='grid'" if not endless else f"list values for {endless}"
            raise ConfigError(
                [f"space is a list: Optuna samples from one dict; {advice}, or search each dict by itself"]
            )
        limits = [self.trials, None if kind == OPTUNA else space.size]
        return min(limit for limit in limits if limit is not None)


def _too_small(name: str, value: object, least: int) -> Iterator[str]:
    if value is not None and (not is_int(value) or value < least):  # type: ignore[operator]
        yield f"{name}={value!r}: a whole number from {least} on is needed"


def _use(given: object, known: Sequence[str]) -> str:
    """Return which values there are, the nearest one first if there is one."""
    near = difflib.get_close_matches(str(given).lower(), known, 1, cutoff=0.5)
    there = f"there are {', '.join(known)}"
    return f"did you mean {near[0]!r}? {there}" if near else there
