"""What the trials of a search have reported, which is the best, and which is cut. Pure state: no threads, no clock."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tfos_lab.core.states import NodeState
from tfos_lab.driver.metrics import EPOCH
from tfos_lab.driver.parallel.state import RunEntry
from tfos_lab.driver.search.space import Params
from tfos_lab.driver.search.study import OptunaStudy

# What a number that a function returns is called, where nothing was reported.
RETURNED = "value"


@dataclass
class TrialRecord:
    """What one trial has reported.

    Attributes
    ----------
    params : dict or None
        Its parameters; None until a sampler has been asked for them.
    best : float or None
        The best value of the metric so far.
    steps : int or None
        The last step that was reported.
    source : int
        The node whose values count: the most leading one that has reported the metric, 0 for the one that leads.
    history : list of (int, float)
        The metric's finite values with their steps.
    """

    number: int
    params: Params | None = None
    best: float | None = None
    steps: int | None = None
    source: int | None = None
    history: list[tuple[int, float]] = field(default_factory=list)


class SearchState:
    """All trials of one search.

    Parameters
    ----------
    count : int
        How many trials there are.
    metric : str or None
        What is compared; None for the first that is reported.
    mode : {"min", "max"}
        Whether less or more is better.
    judge : OptunaStudy or None
        Decides which trials are cut.

    Attributes
    ----------
    metric : str or None
        What is compared, once it is known.
    trials : list of TrialRecord
        The trials, by their numbers.
    reported : list of str
        All metrics that were reported, in order.
    """

    def __init__(
        self, count: int, *, metric: str | None = None, mode: str = "min", judge: OptunaStudy | None = None
    ) -> None:
        self.metric = metric
        self.mode = mode
        self.trials = [TrialRecord(number) for number in range(count)]
        self.reported: list[str] = []
        self._judge = judge

    def badness(self, value: float) -> float:
        """Return a value as less is better."""
        return -value if self.mode == "max" else value

    def begin(self, number: int) -> None:
        """A trial begins its first or next try: what an earlier one has reported does not count."""
        trial = self.trials[number]
        self.trials[number] = TrialRecord(number, trial.params)

    def report(
        self, number: int, order: int, step: int, metrics: Mapping[str, float], total_steps: int | None = None
    ) -> bool:
        """Take in what a node of a trial has reported, and return whether the trial is to be cut."""
        trial = self.trials[number]
        self._note_names(metrics)
        if order in (0, trial.source) or trial.steps is None:
            trial.steps = step
        if self.metric is None or self.metric not in metrics:
            return False
        if trial.source is not None and order > trial.source:
            return False
        if trial.source != order:
            trial.source, trial.best, trial.history = order, None, []
        return self._take_value(trial, step, metrics[self.metric], total_steps)

    def _note_names(self, metrics: Iterable[str]) -> None:
        self.reported += [name for name in metrics if name not in self.reported]
        if self.metric is None:
            self.metric = next((name for name in self.reported if name != EPOCH), None)

    def _take_value(self, trial: TrialRecord, step: int, value: float, total_steps: int | None) -> bool:
        if math.isfinite(value):
            trial.history.append((step, value))
            if trial.best is None or self.badness(value) < self.badness(trial.best):
                trial.best = value
        badness = math.inf if trial.best is None else self.badness(trial.best)
        return self._judge is not None and self._judge.report(trial.number, step, total_steps, badness)

    def returned(self, number: int, value: Any) -> str:
        """A trial has returned; return why no trial can be compared, if that is certain, or ""."""
        trial = self.trials[number]
        if trial.best is None:
            self._take_returned(trial, value)
        if trial.best is not None or trial.source is not None or any(one.best is not None for one in self.trials):
            return ""
        return self._unreported(number)

    def _take_returned(self, trial: TrialRecord, value: Any) -> None:
        """Take the metric from what a function has returned instead of reporting it: in a dict, or as a number."""
        named = value if isinstance(value, Mapping) else {RETURNED: value}
        numbers = {name: one for name, one in named.items() if isinstance(name, str) and _is_number(one)}
        if self.metric is None and not self.reported:
            self.metric = next((name for name in numbers if name != EPOCH), None)
        if self.metric in numbers:
            trial.best = float(numbers[self.metric])

    def _unreported(self, number: int) -> str:
        if not self.reported:
            wanted = self.metric or "loss"
            return (
                f"trial {number} has returned without reporting anything to compare: call ctx.report(step, {wanted}=…) "
                f"in the function, or have it return {{'{wanted}': …}}"
            )
        told = ", ".join(self.reported)
        return f"metric={self.metric!r}: trial {number} has returned without reporting it; it has reported {told}"

    # ---- order ------------------------------------------------------------------------------------------------------

    def ranking(self, entries: Iterable[RunEntry]) -> list[RunEntry]:
        """Return the trials in the order of the table: best first, then those without a value, failed ones last."""
        return sorted(entries, key=self._key)

    def _key(self, entry: RunEntry) -> tuple[int, float, int]:
        best = self.trials[entry.index].best
        if entry.state.is_broken:
            return 3, 0.0, entry.index
        if best is not None:
            return 0, self.badness(best), entry.index
        return (2 if entry.state is NodeState.WAITING else 1), 0.0, entry.index

    def best(self, entries: Iterable[RunEntry]) -> RunEntry | None:
        """Return the best trial: of those that have returned, or else of all that have not failed."""
        ranking = self.ranking(entries)
        known = [one for one in ranking if not one.state.is_broken and self.trials[one.index].best is not None]
        done = [entry for entry in known if entry.state is NodeState.DONE]
        return next(iter(done or known), None)


def _is_number(value: object) -> bool:
    is_scalar = hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0
    return is_scalar and not isinstance(value, bool | str) and math.isfinite(float(value))  # type: ignore[arg-type]
