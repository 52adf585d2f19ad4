"""Which independent runs wait, go on, have returned or have failed, and what they returned. No threads, no clock."""

from __future__ import annotations

import itertools
import reprlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from tfos_lab.core.states import NodeState
from tfos_lab.errors import RunFailed, TfosError

if TYPE_CHECKING:
    import pandas as pd

    from tfos_lab.driver.parallel.tries import RunTry
    from tfos_lab.driver.run_dir import RunDir
    from tfos_lab.driver.state.events import NodeView

# A value, and all of them, as `repr` shows them; an argument as tables do.
_WIDTH = 120
_MAX_LINES = 50
_SHOWN_CHARS = 60


@dataclass
class RunEntry:
    """One run: its place in ``args_list``, and its argument in short.

    ``state`` is `NodeState.WAITING` until its first try begins, then how far the node is that runs it. The times, in
    seconds since the epoch, the failure and the folder (``part``) are those of the last try; ``node`` has its nodes as
    they were seen last, as one, once that try has ended.
    """

    index: int
    args: str
    state: NodeState = NodeState.WAITING
    tries: int = 0
    value: Any = None
    failure: RunFailed | None = None
    began_s: float | None = None
    ended_s: float | None = None
    slots: int = 1
    part: RunDir | None = None
    node: NodeView | None = None

    def seconds(self, now_s: float) -> float | None:
        """Return how long the last try has taken so far, or took."""
        return None if self.began_s is None else (self.ended_s or now_s) - self.began_s


@dataclass(frozen=True)
class Ending:
    """How a try has ended; `NodeState.WAITING` means that no slot, or no GPU, was free after all: it does not count.

    ``fatal`` is an error that would meet every other run as well.
    """

    state: NodeState
    value: Any = None
    failure: RunFailed | None = None
    fatal: TfosError | None = None

    @classmethod
    def of(cls, failure: RunFailed) -> Ending:
        """Return that of a try that has failed."""
        return cls(_state_after(failure), failure=failure)


class ParallelState:
    """All runs of one call; one that fails is tried again ``retries`` times.

    `entries` are the runs, in order, and `going` the tries that go on, by the places of their runs. While it is
    `stopping`, no run begins any more.
    """

    def __init__(self, args: Sequence[str], retries: int = 0) -> None:
        self.entries = [RunEntry(index, text) for index, text in enumerate(args)]
        self.going: dict[int, RunTry] = {}
        self.stopping = False
        self._retries = retries
        self._waiting = deque(self.entries)

    @property
    def next(self) -> RunEntry | None:
        """The run that is the next to begin, if one waits: they begin in order."""
        return self._waiting[0] if self._waiting else None

    @property
    def over(self) -> bool:
        """Whether all runs have ended."""
        return not self._waiting and not self.going

    def count(self, *states: NodeState) -> int:
        """Return how many runs are in one of the states."""
        return sum(entry.state in states for entry in self.entries)

    def begin(self, now_s: float) -> None:
        """Begin the next try of the first run that waits."""
        entry = self._waiting.popleft()
        entry.tries += 1
        entry.began_s, entry.ended_s = now_s, None

    def end(self, entry: RunEntry, ending: Ending, now_s: float) -> None:
        """Record how a try has ended.

        If it has failed, another one follows after those that wait already, unless there have been enough; if it found
        no slot, it is the next one to begin.
        """
        del self.going[entry.index]
        if ending.state is NodeState.WAITING:
            entry.tries -= 1
            entry.began_s = None
            entry.state = NodeState.STOPPED if self.stopping else NodeState.WAITING
            if not self.stopping:
                self._waiting.appendleft(entry)
            return
        entry.state, entry.ended_s = ending.state, now_s
        if ending.state is NodeState.STOPPED:
            return  # why an earlier try has failed stays
        entry.value, entry.failure = ending.value, ending.failure
        if ending.failure is not None and entry.tries <= self._retries and not self.stopping:
            entry.state = NodeState.WAITING
            self._waiting.append(entry)

    def stop(self) -> None:
        """Let no run begin any more; those that go on are the caller's to stop."""
        self.stopping = True
        for entry in self._waiting:  # those that have been tried come to what their last try came to
            entry.state = NodeState.STOPPED if entry.failure is None else _state_after(entry.failure)
        self._waiting.clear()

    def fail_waiting(self, message: str) -> None:
        """No run can begin any more, for one reason: those that wait are lost."""
        for entry in self._waiting:
            entry.state = NodeState.LOST
            entry.failure = entry.failure or RunFailed(
                run=entry.index, argument=entry.args, kind="lost", message=message, tries=entry.tries
            )
        self._waiting.clear()


def _state_after(failure: RunFailed) -> NodeState:
    return NodeState.LOST if failure.kind == "lost" else NodeState.FAILED


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
