"""What independent runs returned, in the order of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from tfos_lab.core.states import NodeState
from tfos_lab.driver.parallel.state import RunEntry
from tfos_lab.errors import RunFailed

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 120
_MAX_LINES = 50


class ParallelResults(Sequence[Any]):
    """The values that the runs returned, in the order of ``args_list``.

    In the place of a run that failed stands its `RunFailed`, in that of a run that was stopped None.

    Attributes
    ----------
    failures : dict of int to RunFailed
        The runs that failed, by their places.
    states : list of str
        ``"done"``, ``"failed"``, ``"lost"`` or ``"stopped"``, one for each run.
    """

    def __init__(self, entries: Sequence[RunEntry]) -> None:
        self._entries = list(entries)
        self.failures: dict[int, RunFailed] = {
            entry.index: entry.failure for entry in self._entries if entry.failure is not None
        }
        self.states = [entry.state.value for entry in self._entries]

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [_value_of(entry) for entry in self._entries[index]]
        return _value_of(self._entries[index])

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, ParallelResults | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __repr__(self) -> str:
        lines = [f"{entry.index}: {_shown(entry)}" for entry in self._entries[:_MAX_LINES]]
        more = len(self) - len(lines)
        return "\n".join([*lines, *([f"… and {more} more"] if more else [])]) or "no runs"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))

    @property
    def done(self) -> int:
        """How many runs returned."""
        return sum(entry.state is NodeState.DONE for entry in self._entries)

    @property
    def results(self) -> list[Any]:
        """What the runs returned, in the order of ``args_list``; a `RunFailed` for those that failed."""
        return list(self)

    @property
    def table(self) -> pd.DataFrame:
        """A table with a row for each run.

        Columns: ``run`` (int64), ``args`` (string, in short), ``state`` (string), ``tries`` (int64), ``seconds``
        (float64, of the last try; NaN where there was none), ``error`` (string, one line; "" where it returned).
        """
        import pandas as pd

        entries = self._entries
        return pd.DataFrame(
            {
                "run": pd.Series([entry.index for entry in entries], dtype="int64"),
                "args": pd.Series([entry.args for entry in entries], dtype="string"),
                "state": pd.Series(self.states, dtype="string"),
                "tries": pd.Series([entry.tries for entry in entries], dtype="int64"),
                "seconds": pd.Series([entry.seconds(entry.ended_s or 0.0) for entry in entries], dtype="float64"),
                "error": pd.Series([_error_of(entry) for entry in entries], dtype="string"),
            }
        )


def _value_of(entry: RunEntry) -> Any:
    return entry.value if entry.failure is None else entry.failure


def _error_of(entry: RunEntry) -> str:
    return "" if entry.failure is None else entry.failure.summary


def _shown(entry: RunEntry) -> str:
    if entry.state is not NodeState.DONE:
        return f"{entry.state.value} {_error_of(entry)}".strip()
    text = repr(entry.value)
    return text if len(text) <= _WIDTH else text[:_WIDTH] + "…"
