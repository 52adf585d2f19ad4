"""What is known of each independent run, and what all have returned: `ParallelResults`."""

from __future__ import annotations

import itertools
import reprlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.states import NodeState
from tfos_lab.errors import RunFailed
from tfos_lab.texts import format_seconds_if_known

if TYPE_CHECKING:
    import pandas as pd

    from tfos_lab.driver.cluster import Cluster
    from tfos_lab.driver.run_dir import RunDir
    from tfos_lab.driver.state.events import NodeView

# A value, and all of them, as `repr` shows them; an argument as tables do.
_WIDTH = 120
_MAX_LINES = 50
_SHOWN_CHARS = 60
_COLUMNS = {
    "run": "int64", "args": "string", "state": "string", "tries": "int64", "seconds": "float64", "error": "string",
}  # fmt: skip


@dataclass
class ParallelRun:
    """One run: what its nodes are called with and asked for, its argument in short, and the outcome of its last try.

    ``state`` is `NodeState.WAITING` until it has ended, also while a try goes on. The times, in seconds since the
    epoch, the failure and the folder (``part``) are those of the last try; ``node`` has its nodes as they were seen
    last, as one, once that try has ended. The fields below are of a try that goes on: whether its function has begun,
    whether it is cut, or stopped with all others, its nodes, and what feeds them.
    """

    index: int
    args: str
    call: tuple[Callable[..., Any], Any]
    config: ClusterConfig
    slots: int = 1
    state: NodeState = NodeState.WAITING
    tries: int = 0
    value: Any = None
    failure: RunFailed | None = None
    began_s: float | None = None
    ended_s: float | None = None
    part: RunDir | None = None
    node: NodeView | None = None

    has_run: bool = False
    is_cut: bool = False
    is_stopped: bool = False
    cluster: Cluster | None = None
    fed: Future[None] | None = None

    def seconds(self, now_s: float) -> float | None:
        """Return how long the last try has taken so far, or took."""
        return None if self.began_s is None else (self.ended_s or now_s) - self.began_s


class ParallelResults(list[Any]):
    """The values that the runs returned, in the order of ``args_list``.

    In the place of a run that failed stands its `RunFailed`, in that of a run that was stopped None.

    Attributes
    ----------
    failures : dict of int to RunFailed
        The runs that failed, by their places.
    states : list of str
        ``"done"``, ``"failed"``, ``"lost"`` or ``"stopped"``, one for each run.
    done : int
        How many runs returned.
    """

    def __init__(self, runs: Iterable[ParallelRun]) -> None:
        super().__init__()
        self.failures: dict[int, RunFailed] = {}
        self._rows: list[tuple[Any, ...]] = []
        for run in runs:
            error = "" if run.failure is None else run.failure.summary
            seconds = None if run.ended_s is None else run.seconds(run.ended_s)
            self._rows.append((run.index, run.args, run.state.value, run.tries, seconds, error))
            self.append(run.value if run.failure is None else run.failure)
            if run.failure is not None:
                self.failures[run.index] = run.failure
        self.states: list[str] = [row[2] for row in self._rows]
        self.done = self.states.count(NodeState.DONE.value)

    def __repr__(self) -> str:
        lines = []
        for (index, _, state, _, _, error), value in zip(self._rows[:_MAX_LINES], self, strict=False):
            text = repr(value) if state == NodeState.DONE.value else f"{state} {error}".strip()
            is_long = state == NodeState.DONE.value and len(text) > _WIDTH
            lines.append(f"{index}: {text[:_WIDTH]}…" if is_long else f"{index}: {text}")
        more = len(self) - len(lines)
        return "\n".join([*lines, *([f"… and {more} more"] if more else [])]) or "no runs"

    def _repr_html_(self) -> str:
        table = self.table.drop(columns=[] if self.failures else ["error"])
        return str(table.to_html(index=False, formatters={"seconds": format_seconds_if_known}))

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

        return pd.DataFrame(self._rows, columns=list(_COLUMNS)).astype(_COLUMNS)


_short = reprlib.Repr()
_short.maxstring = _short.maxother = _short.maxlong = _SHOWN_CHARS
_short.maxdict = _short.maxlist = _short.maxtuple = 8


def short(args: Any) -> str:
    """Return an argument in short: options as ``lr=0.1, units=64``, others as Python shows them."""
    fields = args if isinstance(args, Mapping) else getattr(args, "__dict__", None)
    if fields and all(isinstance(key, str) for key in fields):
        text = ", ".join(f"{key}={_short.repr(value)}" for key, value in itertools.islice(fields.items(), 8))
    elif args is None:
        text = ""
    else:
        text = _short.repr(args)
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS else line[: _SHOWN_CHARS - 1] + "…"
