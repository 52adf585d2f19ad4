"""The trials of a search: what each has reported, which is the best, and a table of all. No threads, no clock."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tfos_lab.core.paths import short_path
from tfos_lab.core.states import NodeState
from tfos_lab.driver.metrics import EPOCH
from tfos_lab.driver.search.space import Params
from tfos_lab.driver.search.study import OptunaStudy
from tfos_lab.errors import RunFailed
from tfos_lab.texts import format_metric

if TYPE_CHECKING:
    import pandas as pd

# What a number that a function returns is called, where nothing was reported.
_RETURNED = "value"
_OWN_COLUMNS = (
    *("trial", "metric", "steps", "state", "seconds", "tries", "cluster_size", "error", "run_dir", "model_path"),
)
_MAX_LINES = 20


@dataclass(kw_only=True)
class Trial:
    """One trial of a search.

    Attributes
    ----------
    number : int
        Its number, from 0.
    params : dict
        Its parameters; empty where a sampler was never asked for them.
    metric : float or None
        The best value of the metric that it has reported.
    steps : int or None
        The last step that it has reported.
    state : str
        ``"done"``, ``"stopped early"``, ``"failed"``, ``"lost"`` or ``"stopped"``.
    seconds : float or None
        How long its last try took.
    tries : int
        How often it was started.
    cluster_size : int
        How many nodes it ran on.
    value : object
        What the function returned, on the node that leads.
    error : RunFailed or None
        Why it failed.
    run_dir : pathlib.Path or None
        The folder with its logs, event files and output.
    model_path : pathlib.Path or None
        The model that ``ctx.save_model`` saved, for `tfos_lab.predict`.
    history : tuple of (int, float)
        The values of the metric with their steps, as they were reported.
    """

    number: int
    params: Params = field(default_factory=dict)
    metric: float | None = None
    steps: int | None = None
    state: str = "waiting"
    seconds: float | None = None
    tries: int = field(default=0, repr=False)
    cluster_size: int = field(default=1, repr=False)
    value: Any = None
    error: RunFailed | None = None
    run_dir: Path | None = field(default=None, repr=False)
    model_path: Path | None = field(default=None, repr=False)
    history: tuple[tuple[int, float], ...] = field(default=(), repr=False)


def badness(value: float, mode: str) -> float:
    """Return a value as less is better."""
    return -value if mode == "max" else value


def ranked(trials: Iterable[Trial], mode: str) -> list[Trial]:
    """Return the trials in the order of the table: best first, then those without a value, failed ones last."""

    def place(trial: Trial) -> tuple[int, float, int]:
        state = NodeState(trial.state)
        if state.is_broken:
            return 3, 0.0, trial.number
        if trial.metric is not None:
            return 0, badness(trial.metric, mode), trial.number
        return (2 if state is NodeState.WAITING else 1), 0.0, trial.number

    return sorted(trials, key=place)


def best_of(ranking: Iterable[Trial]) -> Trial | None:
    """Return the best trial: of those that have returned, or else of all that have not failed."""
    known = [one for one in ranking if one.metric is not None and not NodeState(one.state).is_broken]
    done = [one for one in known if one.state == NodeState.DONE.value]
    return next(iter(done or known), None)


class Reports:
    """What all trials of one search have reported; the study decides which of them are cut.

    `metric` is what is compared, once it is known: by default the first that is reported. `trials` are by their
    numbers, as far as they are known from reports, and `histories` the metric's finite values of each, with their
    steps.
    """

    def __init__(self, count: int, *, metric: str | None, mode: str, study: OptunaStudy | None) -> None:
        self.metric = metric
        self.mode = mode
        self.trials = [Trial(number=number) for number in range(count)]
        self.study = study
        self.histories: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
        self._names: list[str] = []  # all metrics that were reported, in order
        # The node whose values of a trial count: the most leading one that has reported the metric, 0 for the one that
        # leads.
        self._sources: dict[int, int] = {}

    def begin(self, number: int) -> None:
        """A trial begins its first or next try: what an earlier one has reported does not count."""
        self.trials[number] = Trial(number=number, params=self.trials[number].params)
        self.histories[number].clear()
        self._sources.pop(number, None)

    def take(
        self, number: int, order: int, step: int, metrics: Mapping[str, float], total_steps: int | None = None
    ) -> bool:
        """Take in what a node of a trial has reported, and return whether the trial is to be cut."""
        trial, source = self.trials[number], self._sources.get(number)
        self._names += [name for name in metrics if name not in self._names]
        if self.metric is None:
            self.metric = next((name for name in self._names if name != EPOCH), None)
        if order in (0, source) or trial.steps is None:
            trial.steps = step
        if self.metric is None or self.metric not in metrics or (source is not None and order > source):
            return False
        if source != order:
            self._sources[number], trial.metric = order, None
            self.histories[number].clear()
        value = metrics[self.metric]
        if math.isfinite(value):
            self.histories[number].append((step, value))
            if trial.metric is None or badness(value, self.mode) < badness(trial.metric, self.mode):
                trial.metric = value
        best = badness(math.inf, self.mode) if trial.metric is None else trial.metric
        return self.study is not None and self.study.report(number, step, total_steps, best)

    def returned(self, number: int, value: Any) -> str:
        """A trial has returned; return why no trial can be compared, if that is certain, or ""."""
        trial = self.trials[number]
        if trial.metric is None:
            self._take_returned(trial, value)
        if number in self._sources or any(one.metric is not None for one in self.trials):
            return ""
        if not self._names:
            wanted = self.metric or "loss"
            return (
                f"trial {number} has returned without reporting anything to compare: call ctx.report(step, {wanted}=…) "
                f"in the function, or have it return {{'{wanted}': …}}"
            )
        told = ", ".join(self._names)
        return f"metric={self.metric!r}: trial {number} has returned without reporting it; it has reported {told}"

    def _take_returned(self, trial: Trial, value: Any) -> None:
        """Take the metric from what a function has returned instead of reporting it: in a dict, or as a number."""
        named = value if isinstance(value, Mapping) else {_RETURNED: value}
        numbers = {name: one for name, one in named.items() if isinstance(name, str) and _is_number(one)}
        if self.metric is None and not self._names:
            self.metric = next((name for name in numbers if name != EPOCH), None)
        if self.metric in numbers:
            trial.metric = float(numbers[self.metric])


def _is_number(value: object) -> bool:
    is_scalar = hasattr(value, "__float__") and getattr(value, "ndim", 0) == 0
    return is_scalar and not isinstance(value, bool | str) and math.isfinite(float(value))  # type: ignore[arg-type]


class SearchResults(Sequence[Trial]):
    """The trials of a search, in the order of their numbers.

    Attributes
    ----------
    best : Trial or None
        The best one that has returned; if none has, the best of those that were stopped. None where there is no value.
    metric : str
        What was compared; "" where nothing was reported.
    mode : {"min", "max"}
        Whether less or more is better.
    failures : dict of int to RunFailed
        The trials that failed, by their numbers.
    run_dir : pathlib.Path
        The folder that holds those of the trials.
    """

    def __init__(self, trials: Sequence[Trial], *, metric: str, mode: str, run_dir: Path) -> None:
        self._trials = list(trials)
        self._ranking = ranked(trials, mode)
        self.best = best_of(self._ranking)
        self.metric = metric
        self.mode = mode
        self.run_dir = run_dir
        self.failures = {trial.number: trial.error for trial in self._trials if trial.error is not None}

    @overload
    def __getitem__(self, index: int) -> Trial: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trial]: ...
    def __getitem__(self, index: int | slice) -> Trial | list[Trial]:
        return self._trials[index]

    def __len__(self) -> int:
        return len(self._trials)

    def __repr__(self) -> str:
        lines = [_line_of(trial, self.metric) for trial in self._ranking[:_MAX_LINES]]
        more = len(self) - len(lines)
        return "\n".join([*lines, *([f"… and {more} more"] if more else [])])

    def _repr_html_(self) -> str:
        table = self.table
        for column in ("run_dir", "model_path"):
            table[column] = [short_path(path) if path else "" for path in table[column].fillna("")]
        empty = [name for name in ("error", "run_dir", "model_path") if not any(table[name])]
        table = table.drop(columns=empty)
        looks = {"metric": format_metric, "seconds": "{:.2f}".format}
        return str(table.to_html(index=False, formatters=looks))

    @property
    def table(self) -> pd.DataFrame:
        """A table with a row for each trial, best first.

        Columns: ``trial`` (int64); one for each parameter; ``metric`` (float64, the best value; NaN where there is
        none), ``steps`` (Int64), ``state`` (string), ``seconds`` (float64), ``tries`` (int64), ``cluster_size``
        (int64), ``error`` (string, one line; "" without one), ``run_dir`` and ``model_path`` (string). A parameter
        whose name is among these has a ``_`` after it.
        """
        import pandas as pd

        rows = self._ranking
        names = dict.fromkeys(name for trial in self._trials for name in trial.params)
        params = {name: pd.Series([trial.params.get(name) for trial in rows]) for name in names}
        columns = {
            "trial": pd.Series([trial.number for trial in rows], dtype="int64"),
            **{f"{name}_" if name in _OWN_COLUMNS else name: values for name, values in params.items()},
            "metric": pd.Series([trial.metric for trial in rows], dtype="float64"),
            "steps": pd.Series([trial.steps for trial in rows], dtype="Int64"),
            "state": pd.Series([trial.state for trial in rows], dtype="string"),
            "seconds": pd.Series([trial.seconds for trial in rows], dtype="float64"),
            "tries": pd.Series([trial.tries for trial in rows], dtype="int64"),
            "cluster_size": pd.Series([trial.cluster_size for trial in rows], dtype="int64"),
            "error": pd.Series([trial.error.summary if trial.error else "" for trial in rows], dtype="string"),
            "run_dir": pd.Series([_path(trial.run_dir) for trial in rows], dtype="string"),
            "model_path": pd.Series([_path(trial.model_path) for trial in rows], dtype="string"),
        }
        return pd.DataFrame(columns)


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _line_of(trial: Trial, metric: str) -> str:
    params = ", ".join(f"{name}={value!r}" for name, value in trial.params.items())
    value = f" {metric} {trial.metric:.6g}" if trial.metric is not None else ""
    error = f" {trial.error.summary}" if trial.error is not None else ""
    return f"trial {trial.number} ({params}): {trial.state}{value}{error}"
