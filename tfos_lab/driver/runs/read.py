"""Reads the runs below a folder, and finds those that people name by a label, an identifier, a part of it, or a folder.

A file that cannot be read is reported in one line, and the others are found all the same.
"""

from __future__ import annotations

import difflib
import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.paths import is_local
from tfos_lab.driver.record.format import RunHeader, decode
from tfos_lab.driver.run_dir import RunDir, parts_of, run_bases
from tfos_lab.driver.runs.run import Run
from tfos_lab.errors import ConfigError, NoRun
from tfos_lab.texts import nearest

# A record with 2,000 reports has some hundred kilobytes.
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class Unreadable:
    """A folder, or its address, whose ``run.json`` cannot be read, and why."""

    path: Path | str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class RunFolder:
    """A folder below ``runs/``: one run, or the independent runs of one call of `tfos_lab.parallel` or `search`.

    ``runs`` are all that have a record in it. ``whole`` is the one that tells of all independent runs; kernels of
    earlier versions have left none.
    """

    path: Path
    runs: tuple[Run, ...]
    unreadable: tuple[Unreadable, ...] = ()

    @property
    def whole(self) -> Run | None:
        """The run that tells of all independent runs in the folder, or the only one."""
        return next((run for run in self.runs if run.run_dir == self.path), None)


@dataclass(frozen=True)
class Runs:
    """What was found: runs, newest first, and what cannot be read; ``places`` are the folders that were searched."""

    runs: tuple[Run, ...]
    unreadable: tuple[Unreadable, ...]
    places: tuple[Path | str, ...]


def read_runs(folder: str | os.PathLike[str] | None = None) -> Runs:
    """Read all runs; the independent runs of one call are one run, if a record tells of all of them.

    They are in ``folder``, which may be the address of a ``run_store``; by default where this process would make new
    ones. Raises ConfigError if there is no such folder, or the address cannot be read.
    """
    if folder is not None and not is_local(os.fspath(folder)):
        return _read_store(os.fspath(folder).rstrip("/"))
    places = places_of(folder)
    found = [one for place in places for one in read_folders(place, with_parts=False)]
    runs = [run for one in found for run in one.runs]
    return Runs(_newest_first(runs), tuple(bad for one in found for bad in one.unreadable), tuple(places))


def _newest_first(runs: list[Run]) -> tuple[Run, ...]:
    return tuple(sorted(runs, key=lambda run: run.started_s, reverse=True))


def _read_store(address: str) -> Runs:
    """Read the runs that are kept at an address; of each there is nothing here but its record."""
    from tfos_lab.data.session_stores import stores_of
    from tfos_lab.driver.run_store import fetch_records
    from tfos_lab.launchers.spark.session import active_session

    stores_of(active_session())  # it may know the host that an address leaves out, and has keys
    place, written = fetch_records(address)
    found = [read_run(place / name) for name in written]
    runs = [
        replace(run, address=f"{address}/{run.run_dir.name}", written_s=written[run.run_dir.name])
        for run in found
        if isinstance(run, Run)
    ]
    bad = [Unreadable(f"{address}/{Path(one.path).name}", one.reason) for one in found if isinstance(one, Unreadable)]
    return Runs(_newest_first(runs), tuple(bad), (address,))


def name_place(names: Sequence[str], folder: str | None) -> tuple[list[str], str | None]:
    """Return names of runs without the address that may stand among them, and that instead of no folder."""
    addresses = [name for name in names if not is_local(name)]
    return [name for name in names if is_local(name)], folder or (addresses[0] if addresses else None)


def places_of(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the folders that hold runs; raises `ConfigError` if the one that is named is not there."""
    if folder is None:
        return list(dict.fromkeys(base for base in run_bases() if base.is_dir()))
    path = Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise ConfigError([f"{folder}: there is no such folder; name the one that holds the folders of runs"])
    return [path]


def read_folders(place: Path, *, with_parts: bool = True) -> Iterator[RunFolder]:
    """Yield each folder of ``place`` that holds a run, or several.

    Without ``with_parts``, independent runs that have a record of all of them are not read themselves.
    """
    try:
        children = sorted(child for child in place.iterdir() if not child.name.startswith("."))
    except OSError as error:
        yield RunFolder(place, (), (Unreadable(place, error.strerror or str(error)),))
        return
    for child in children:
        whole = read_run(child) if RunDir(child).may_hold_run else None
        found = [] if whole is None else [whole]
        if with_parts or not isinstance(whole, Run) or not whole.record.view.of_runs:
            found += [read_run(path) for path in parts_of(child) if RunDir(path).may_hold_run]
        if found:
            runs = tuple(one for one in found if isinstance(one, Run))
            yield RunFolder(child, runs, tuple(one for one in found if isinstance(one, Unreadable)))


def read_part(whole: Run, name: str) -> Run | Unreadable | None:
    """Return one of the independent runs in the folder of all, such as ``"run-3"``; None if it is not there."""
    folder = whole.here(f"{name}/{RunDir(whole.run_dir).record.name}").parent
    part = read_run(folder) if RunDir(folder).may_hold_run else None
    if not isinstance(part, Run) or not whole.address:
        return part
    return replace(part, address=f"{whole.address}/{name}", written_s=whole.written_s)


def read_run(path: Path) -> Run | Unreadable:
    """Return the run in a folder, or why it cannot be read."""
    files = RunDir(path)
    try:
        size = files.record.stat().st_size
        if size > _MAX_BYTES:
            return Unreadable(path, f"run.json has {size >> 20} MB, which no run of tfos_lab writes")
        return Run(decode(files.record.read_bytes(), RunHeader), path)
    except OSError as error:
        return Unreadable(path, f"run.json: {error.strerror or error}")
    except msgspec.ValidationError as error:
        return Unreadable(path, f"run.json is not that of a run of tfos_lab ({error})")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Unreadable(path, f"run.json is damaged ({error})")
    except (ValueError, RecursionError) as error:
        return Unreadable(path, str(error))


# ---- those that people name ------------------------------------------------------------------------------------------


_NAMED = 6
# A part of an identifier has at least so many characters, as its last group has; a mistyped name is not taken for one.
_SHORTEST_PART = 4
# When a run began, in the name of its folder.
_STAMP = re.compile(r"-\d{8}-\d{6}$")
# So many folders are looked at for the previous run of a name.
_LOOKED_AT = 5
# Two cells are the same one, edited, if they have more than this share of their lines in common.
_ALIKE = 0.5


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
        path = Path(name).expanduser().absolute()
        if not RunDir(path).may_hold_run:
            raise NoRun([f"{path}: there is no run.json, so this is no run's folder"])
        run = read_run(path)
        if isinstance(run, Unreadable):
            raise NoRun([str(run)])
        return run
    raise NoRun([_no_such(name, found)])


def may_mean(name: str, found: Runs) -> bool:
    """Whether a name means one of these runs, or several."""
    return bool(_meant(name, found))


def _meant(name: str, found: Runs) -> list[Run]:
    """Return the run of that identifier, or the newest of that label, or those whose identifiers begin or end so.

    ``7e8f.3`` means an independent run, which is not listed, but stands in the folder of the whole.
    """
    if listed := _listed_ones(name, found):
        return listed
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
    """Return the run of this label that had ended before the one in ``folder`` began; None if there is none.

    Runs that nobody has named share one label: only those whose code is much the same count there.
    """
    label, _, _ = folder.name.rpartition("-")
    start = _STAMP.sub("", label)
    if start == label:  # no folder of a run that has begun by itself
        return None
    others = sorted(path for path in folder.parent.glob(f"{glob.escape(start)}-*-*") if path.name < folder.name)
    own = read_run(folder) if name == ClusterConfig().name and others else None
    code = own.code.splitlines() if isinstance(own, Run) else []
    for path in reversed(others[-_LOOKED_AT:]):
        run = read_run(path) if RunDir(path).may_hold_run else None
        if not isinstance(run, Run) or run.name != name or not run.state.ended or not run.last_metrics:
            continue
        if own is None or (code and difflib.SequenceMatcher(None, code, run.code.splitlines()).ratio() > _ALIKE):
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
