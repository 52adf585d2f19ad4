"""Finds runs by what people call them: a name, an identifier or a part of it, or a folder."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from tfos_lab.core.paths import is_local
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.runs.read import Runs, Unreadable, read_part, read_run, read_runs
from tfos_lab.driver.runs.run import Run
from tfos_lab.errors import NoRun
from tfos_lab.texts import nearest

_NAMED = 6
# A part of an identifier has at least so many characters, as its last group has; a mistyped name is not taken for one.
_SHORTEST_PART = 4
# When a run began, in the name of its folder.
_STAMP = re.compile(r"-\d{8}-\d{6}$")
# So many folders are looked at for the previous run of a name.
_LOOKED_AT = 5


def choose_run(name: str, found: Runs) -> Run:
    """Return the run that ``name`` means among these.

    That is its identifier, its label (then the newest run of that label is meant), the beginning or end of an
    identifier, at least four characters such as ``"1f2e"``, or the run's folder or address. ``"1f2e.3"`` is one of the
    independent runs of a search. Raises NoRun if there is no such run, or several could be meant.
    """
    meant = _meant(name, found)
    if len(meant) > 1:
        raise NoRun([f"{name!r} could be any of {len(meant)} runs: {_listed([run.id for run in meant])}"])
    if meant:
        return meant[0]
    if not is_local(name):
        place, _, run_id = name.rstrip("/").rpartition("/")
        return choose_run(run_id, read_runs(place))
    if "/" in name or RunDir(Path(name)).may_hold_run:
        return _open_folder(Path(name).expanduser().absolute())
    raise NoRun([_no_such(name, found)])


def may_mean(name: str, found: Runs) -> bool:
    """Whether a name means one of these runs, or several."""
    return bool(_meant(name, found))


def _meant(name: str, found: Runs) -> list[Run]:
    """Return the run of that identifier, or the newest of that label, or those whose identifiers begin or end so."""
    return _listed_ones(name, found) or _parts(name, found)


def _parts(name: str, found: Runs) -> list[Run]:
    """Return the independent run that ``7e8f.3`` means: it is not listed, but stands in the folder of the whole."""
    whole, dot, number = name.partition(".")
    wholes = [run for run in _listed_ones(whole, found) if run.record.view.of_runs] if dot else []
    parts = [read_part(run, f"run-{number}") for run in wholes]
    return [part for part in parts if isinstance(part, Run)]


def _listed_ones(name: str, found: Runs) -> list[Run]:
    exact = [run for run in found.runs if run.id == name] or [run for run in found.runs if run.name == name]
    if exact or len(name) < _SHORTEST_PART:
        return exact[:1]
    return [run for run in found.runs if run.id.startswith(name) or run.id.endswith(name)]


def previous_run(folder: Path, name: str) -> Run | None:
    """Return the run of this label that had ended before the one in ``folder`` began; None if there is none."""
    label, _, _ = folder.name.rpartition("-")
    start = _STAMP.sub("", label)
    if start == label:  # no folder of a run that has begun by itself
        return None
    others = sorted(path for path in folder.parent.glob(f"{glob.escape(start)}-*-*") if path.name < folder.name)
    for path in reversed(others[-_LOOKED_AT:]):
        run = read_run(path) if RunDir(path).may_hold_run else None
        if isinstance(run, Run) and run.name == name and run.state.ended and run.last_metrics:
            return run
    return None


def fitting(patterns: Sequence[str], runs: Sequence[Run]) -> list[Run]:
    """Return the runs whose label, identifier or tag fits one of the patterns, such as ``"mnist-2026*"``; all of none.

    Raises NoRun if no run fits a pattern.
    """
    by_pattern = {pattern: [run for run in runs if _fits(pattern, run)] for pattern in patterns}
    for pattern, chosen in by_pattern.items():
        if not chosen:
            raise NoRun([_no_such(pattern, Runs(tuple(runs), (), ()))])
    kept = {run.id for chosen in by_pattern.values() for run in chosen}
    return [run for run in runs if run.id in kept or not patterns]


def _fits(pattern: str, run: Run) -> bool:
    return any(fnmatchcase(text, pattern) for text in (run.id, run.name, *run.tags)) or run.id.endswith(f"-{pattern}")


def _open_folder(path: Path) -> Run:
    if not RunDir(path).may_hold_run:
        raise NoRun([f"{path}: there is no run.json, so this is no run's folder"])
    run = read_run(path)
    if isinstance(run, Unreadable):
        raise NoRun([str(run)])
    return run


def _no_such(name: str, found: Runs) -> str:
    if not found.runs:
        where = " or ".join(map(str, found.places))
        return f"there is no run {name!r}: no run has been recorded" + (f" in {where}" if where else " here")
    names = list(dict.fromkeys(run.name for run in found.runs))
    close = nearest(name, [*names, *(run.id for run in found.runs)])
    hint = f"did you mean {close}?" if close else f"there are {_listed(names)}"
    return f"there is no run {name!r}; {hint}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
