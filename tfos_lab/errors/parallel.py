"""Errors of independent runs: one run failed, some or all runs of a call failed, too few slots for all at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tfos_lab.errors.base import TfosError
from tfos_lab.errors.resources import NotEnoughSlots
from tfos_lab.errors.text import first_line, format_count

# `ParallelFailed` shows so many different tracebacks; each failure keeps its own.
_MAX_TRACEBACKS = 3
_MAX_NAMED = 12


class RunFailed(TfosError, RuntimeError):
    """One independent run failed, after all its tries.

    Attributes
    ----------
    run : int
        Its place in ``args_list``, from 0.
    argument : str
        What it got as ``args``, in short.
    kind : {"raised", "exited", "lost", "hung", "timed out"}
        Whether the function raised, its process exited, its node was lost (killed, unreachable, gone with its
        executor) or hung (with ``on_hang="fail"``), or its time was up.
    error : str
        The name of the remote exception's type; "" where none was raised.
    message : str
        The remote exception's text, or what happened.
    traceback : str
        The remote traceback without frames of tfos_lab, the stacks of a run that hung, or "".
    log_tail : str
        The last lines that the run printed.
    tries : int
        How often it was tried.
    seconds : float
        How long the last try took.
    noun : str
        What such a run is called: "run", or "trial" in a search.
    """

    run: int
    argument: str
    kind: str
    error: str
    message: str
    traceback: str
    log_tail: str
    tries: int
    seconds: float
    noun: str

    def __init__(
        self,
        *,
        run: int,
        kind: str,
        message: str,
        argument: str = "",
        error: str = "",
        traceback: str = "",
        log_tail: str = "",
        tries: int = 1,
        seconds: float = 0.0,
        noun: str = "run",
    ) -> None:
        super().__init__(
            run=run,
            kind=kind,
            message=message,
            argument=argument,
            error=error,
            traceback=traceback,
            log_tail=log_tail,
            tries=tries,
            seconds=seconds,
            noun=noun,
        )

    def __repr__(self) -> str:
        return f"<RunFailed {self.run}: {self.summary}>"

    def __str__(self) -> str:
        return "\n".join(part for part in (self.headline, self.details) if part)

    @property
    def details(self) -> str:
        """The traceback, or else the last lines that the run printed, under a heading."""
        if self.traceback:
            what = "stacks" if self.kind == "hung" else "traceback"
            return f"--- {what} of {self.noun} {self.run} ---\n{self.traceback.rstrip()}"
        return f"--- last lines of {self.noun} {self.run} ---\n{self.log_tail.rstrip()}" if self.log_tail else ""

    @property
    def summary(self) -> str:
        """What happened, in a line: ``ValueError: …``, or ``lost: …``."""
        return f"{self.error or self.kind}: {first_line(self.message)}"

    @property
    def headline(self) -> str:
        """Which run it was, with its argument, and what happened, in a line."""
        argument = f" ({self.argument})" if self.argument else ""
        tries = f", after {self.tries} tries" if self.tries > 1 else ""
        return f"{self.noun} {self.run}{argument}{tries}: {self.summary}"


class ParallelFailed(TfosError, RuntimeError):
    """Some independent runs failed; the others have gone on to their ends.

    Attributes
    ----------
    failed : list of dict
        The fields of each run's `RunFailed`; `failures` has the errors themselves.
    results : ParallelResults
        All that the call has to give: values of the runs that returned, and the failures in the places of the others.
    """

    failed: list[dict[str, Any]]
    results: Sequence[Any]

    def __init__(self, *, failed: Iterable[RunFailed | Mapping[str, Any]], results: Sequence[Any]) -> None:
        super().__init__(failed=[_fields_of(failure) for failure in failed], results=results)

    @property
    def failures(self) -> dict[int, RunFailed]:
        """What failed, by its place in ``args_list``."""
        return {fields["run"]: RunFailed(**fields) for fields in self.failed}

    def _first_line(self, told: str) -> str:
        count = f"{len(self.failed)} of {format_count(len(self.results), 'run')}"
        return f"{count} failed ({told}); .results has the values of the others"

    def __str__(self) -> str:
        failures = list(self.failures.values())
        kinds = [failure.kind for failure in failures]
        lines = [self._first_line(", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds)))]
        lines += [f"  {failure.headline}" for failure in failures[:_MAX_NAMED]]
        if len(failures) > _MAX_NAMED:
            lines.append(f"  … and {len(failures) - _MAX_NAMED} more in .failures")
        return "\n".join([*lines, *_tracebacks(failures)])


class SearchFailed(ParallelFailed):
    """All trials of a search failed. ``results`` is its `SearchResults`, without a best trial."""

    def _first_line(self, told: str) -> str:
        count = "the only trial" if len(self.results) == 1 else f"all {len(self.results)} trials"
        return f"{count} failed ({told}), so none is the best; .results.table has a row for each"


def _fields_of(failure: RunFailed | Mapping[str, Any]) -> dict[str, Any]:
    """Return a failure as plain data, which it is already where the error has crossed from another process."""
    if isinstance(failure, Mapping):
        return dict(failure)
    return {name: getattr(failure, name) for name in RunFailed.__annotations__}


def _tracebacks(failures: Sequence[RunFailed]) -> list[str]:
    """Return the first failure of each sort with its traceback, or the last lines that it printed."""
    sorts = {(failure.kind, failure.error, failure.message): failure for failure in reversed(failures)}
    chosen = sorted(sorts.values(), key=lambda failure: failure.run)[:_MAX_TRACEBACKS]
    return [f"\n{failure.details}" for failure in chosen if failure.details]


class NotAllAtOnce(NotEnoughSlots):
    """Instances were to run all at once, and there are fewer free task slots."""

    def __str__(self) -> str:
        use = f"Ask for {self.free}" if self.free else "Stop what holds the slots"
        return (
            f"{self.wanted} instances are to run at once (use_barrier=True), with "
            f"{format_count(self.free, 'free task slot')} of {self.total}. {use}, add executors or cores, or give "
            "use_barrier=False, so that instances wait for free slots."
        )
