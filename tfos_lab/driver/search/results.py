"""What a search has found: the best trial, and a table of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from tfos_lab.errors import RunFailed

if TYPE_CHECKING:
    import pandas as pd

_OWN_COLUMNS = (
    *("trial", "metric", "steps", "state", "seconds", "tries", "cluster_size", "error", "run_dir", "model_path"),
)
_MAX_LINES = 20


@dataclass(frozen=True, kw_only=True)
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
    params: dict[str, Any]
    metric: float | None = None
    steps: int | None = None
    state: str = "waiting"
    seconds: float | None = None
    tries: int = 0
    cluster_size: int = 1
    value: Any = None
    error: RunFailed | None = None
    run_dir: Path | None = None
    model_path: Path | None = None
    history: tuple[tuple[int, float], ...] = field(default=(), repr=False)


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

    Parameters
    ----------
    ranking : sequence of Trial
        All trials, best first.
    """

    def __init__(self, ranking: Sequence[Trial], *, best: Trial | None, metric: str, mode: str, run_dir: Path) -> None:
        self._ranking = list(ranking)
        self._trials = sorted(ranking, key=lambda trial: trial.number)
        self.best = best
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
        return str(self.table.to_html(index=False))

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
        columns = {
            "trial": pd.Series([trial.number for trial in rows], dtype="int64"),
            **{name: pd.Series(values) for name, values in self._param_columns()},
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

    def _param_columns(self) -> Iterator[tuple[str, list[Any]]]:
        for name in dict.fromkeys(name for trial in self._trials for name in trial.params):
            yield f"{name}_" if name in _OWN_COLUMNS else name, [trial.params.get(name) for trial in self._ranking]


def _path(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _line_of(trial: Trial, metric: str) -> str:
    params = ", ".join(f"{name}={value!r}" for name, value in trial.params.items())
    value = f" {metric} {trial.metric:.6g}" if trial.metric is not None else ""
    error = f" {trial.error.summary}" if trial.error is not None else ""
    return f"trial {trial.number} ({params}): {trial.state}{value}{error}"
