"""What is known of each trial of a search, which is the best, and a table of all: `SearchResults`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tfos_lab.core.paths import short_path
from tfos_lab.core.states import NodeState
from tfos_lab.data.model_files import find_model
from tfos_lab.driver.parallel.results import ParallelRun
from tfos_lab.driver.search.space import Params
from tfos_lab.errors import RunFailed
from tfos_lab.texts import format_metric, format_seconds_if_known

if TYPE_CHECKING:
    import pandas as pd

# The columns of the table beside those of the parameters.
_COLUMNS = {
    "trial": "int64", "metric": "float64", "steps": "Int64", "state": "string", "seconds": "float64", "tries": "int64",
    "cluster_size": "int64", "error": "string", "run_dir": "string", "model_path": "string",
}  # fmt: skip
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


@dataclass
class TrialRun(ParallelRun):
    """A trial as a run, with what its nodes have reported in its last try.

    ``source`` is the node whose values count: the most leading one that has reported the metric, 0 for the one that
    leads.
    """

    params: Params = field(default_factory=dict)
    metric: float | None = None
    steps: int | None = None
    history: list[tuple[int, float]] = field(default_factory=list)
    source: int | None = None

    def result(self) -> Trial:
        """Return what has become of it so far."""
        return Trial(
            number=self.index,
            params=self.params,
            metric=self.metric,
            steps=self.steps,
            state=self.state.value,
            seconds=None if self.ended_s is None else self.seconds(self.ended_s),
            tries=self.tries,
            cluster_size=self.slots,
            value=self.value,
            error=self.failure,
            run_dir=self.part.path if self.part is not None else None,
            model_path=find_model(self.part.output) if self.part is not None else None,
            history=tuple(self.history),
        )


T = TypeVar("T", Trial, TrialRun)


def badness(value: float, mode: str) -> float:
    """Return a value as less is better."""
    return -value if mode == "max" else value


def ranked(trials: Iterable[T], mode: str) -> list[T]:
    """Return trials in the order of the table: best first, then those without a value, failed ones last."""

    def place(trial: T) -> tuple[int, float]:
        state = NodeState(trial.state)
        if state.is_broken:
            return 3, 0.0
        if trial.metric is not None:
            return 0, badness(trial.metric, mode)
        return (2 if state is NodeState.WAITING else 1), 0.0

    return sorted(trials, key=place)


def best_of(ranking: Iterable[T]) -> T | None:
    """Return the best trial: of those that have returned, or else of all that have not failed."""
    known = [one for one in ranking if one.metric is not None and not NodeState(one.state).is_broken]
    done = [one for one in known if one.state == NodeState.DONE.value]
    return next(iter(done or known), None)


class SearchResults(list[Trial]):
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
        super().__init__(trials)
        self._ranking = ranked(trials, mode)
        self.best = best_of(self._ranking)
        self.metric = metric
        self.mode = mode
        self.run_dir = run_dir
        self.failures = {trial.number: trial.error for trial in self if trial.error is not None}

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
        looks = {"metric": format_metric, "seconds": format_seconds_if_known}
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

        rows = [
            {**vars(trial), "trial": trial.number, "error": trial.error.summary if trial.error else ""}
            for trial in self._ranking
        ]
        own = {name: pd.Series([row[name] for row in rows], dtype=dtype) for name, dtype in _COLUMNS.items()}
        params = {
            f"{name}_" if name in _COLUMNS else name: pd.Series([row["params"].get(name) for row in rows])
            for name in dict.fromkeys(name for trial in self for name in trial.params)
        }
        return pd.DataFrame({"trial": own.pop("trial"), **params, **own})


def _line_of(trial: Trial, metric: str) -> str:
    params = ", ".join(f"{name}={value!r}" for name, value in trial.params.items())
    value = f" {metric} {trial.metric:.6g}" if trial.metric is not None else ""
    error = f" {trial.error.summary}" if trial.error is not None else ""
    return f"trial {trial.number} ({params}): {trial.state}{value}{error}"
