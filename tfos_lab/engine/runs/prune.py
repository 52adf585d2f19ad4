"""Keeps runs, and removes old ones: pinned runs stay, and so do those that have not ended."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.runs.read import RunFolder, places_of, read_folders
from tfos_lab.engine.runs.run import Run, process_lives
from tfos_lab.errors import ConfigError

_DAY_S = 86_400.0
# A folder that is being removed is no run any more, even if the removal is interrupted.
_REMOVED = ".removed-"
_CANNOT = "it cannot be removed"


@dataclass(frozen=True)
class Pruned:
    """What became of one folder of runs: ``kept`` says why it stays; it is empty for one that was removed.

    Attributes
    ----------
    folder : RunFolder
        The folder, with its runs.
    kept : str
        Why it stays: ``newest``, ``recent``, ``pinned``, ``not ended``, ``kernel lives`` (of independent runs),
        ``unreadable``, or an error.
    size_bytes : int
        How much room a folder that goes takes, or took.
    """

    folder: RunFolder
    kept: str
    size_bytes: int = 0

    @property
    def failed(self) -> bool:
        """Whether the folder should have gone, and could not."""
        return self.kept.startswith(_CANNOT)


def prune_runs(
    *,
    keep: int | None = None,
    days: float | None = None,
    dry_run: bool = False,
    folder: str | os.PathLike[str] | None = None,
) -> list[Pruned]:
    """Remove old runs with all their files: logs, event files, output and models in the run's folder.

    Parameters
    ----------
    keep : int, optional
        This many of the newest runs stay.
    days : float, optional
        Runs that ended within so many days stay. A run goes if neither limit keeps it; without any limit all stay.
    dry_run : bool
        Whether only to say what would be removed.
    folder : path, optional
        Where the runs are; by default where this process makes new ones.

    Returns
    -------
    list of Pruned
        What became of each folder, newest first. What lies elsewhere, such as in ``log_dir``, is never touched.

    Raises
    ------
    ConfigError
        For limits that make no sense, and for a folder that is not there.
    """
    _check(keep, days)
    found = [one for place in places_of(folder) for one in read_folders(place)]
    planned = plan(found, keep=keep, days=days, now_s=time.time())
    if not dry_run and (keep, days) != (None, None):
        _finish_removals(found)
    return [one if one.kept else _remove(one, dry_run=dry_run) for one in planned]


def pin_run(run: Run, *, pinned: bool = True) -> Run:
    """Keep a run, or let it go again, and return it as it is then; raises OSError if its folder cannot be written."""
    mark = RunDir(run.run_dir).pin_mark
    if pinned:
        mark.touch()
    else:
        mark.unlink(missing_ok=True)
    return replace(run, pinned=pinned)


def plan(found: Sequence[RunFolder], *, keep: int | None, days: float | None, now_s: float) -> list[Pruned]:
    """Return what is to become of each folder, newest first; removes nothing."""
    newest = sorted(found, key=_last_s, reverse=True)
    counted = [one.path for one in newest if one.runs and not _protected(one)]
    kept = set(counted if keep is None and days is None else counted[: keep or 0])
    since_s = now_s - days * _DAY_S if days is not None else None
    return [Pruned(one, _protected(one) or _within_limits(one, kept, since_s), 0) for one in newest]


def _within_limits(folder: RunFolder, kept: set[Path], since_s: float | None) -> str:
    if folder.path in kept:
        return "newest"
    return "recent" if since_s is not None and _last_s(folder) >= since_s else ""


def _protected(folder: RunFolder) -> str:
    """Return why a folder stays whatever the limits are, or nothing."""
    if any(run.pinned for run in folder.runs) or RunDir(folder.path).is_pinned:
        return "pinned"
    if any(run.live for run in folder.runs):
        return "not ended"
    if _may_go_on(folder):
        return "kernel lives"
    return "unreadable" if folder.unreadable or folder.path.is_symlink() else ""


def _may_go_on(folder: RunFolder) -> bool:
    """Whether independent runs may still go on: where nothing records the end of all, their kernel has to be gone."""
    if folder.whole is not None:
        return False
    parts = [run for run in folder.runs if run.run_dir != folder.path]
    return any(process_lives(run.record.process) for run in parts)


def _last_s(folder: RunFolder) -> float:
    return max((run.ended_s or run.record.written_s for run in folder.runs), default=0.0)


def _check(keep: int | None, days: float | None) -> None:
    problems = []
    if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 0):
        problems.append(f"keep={keep!r}: how many runs stay is a whole number, 0 or more")
    if days is not None and (isinstance(days, bool) or not isinstance(days, int | float) or not days >= 0):
        problems.append(f"days={days!r}: a number of days, 0 or more, is needed")
    if problems:
        raise ConfigError(problems)


def _remove(one: Pruned, *, dry_run: bool) -> Pruned:
    path = one.folder.path
    size = _size_of(path)
    if dry_run:
        return replace(one, size_bytes=size)
    try:
        going = path.with_name(f"{_REMOVED}{path.name}")
        path.rename(going)
        shutil.rmtree(going)
    except FileNotFoundError:
        return replace(one, size_bytes=size)  # another process removes it
    except OSError as error:
        return replace(one, kept=f"{_CANNOT}: {error.strerror or error}")
    return replace(one, size_bytes=size)


def _finish_removals(found: Sequence[RunFolder]) -> None:
    """Remove what an interrupted removal has left."""
    for place in {one.path.parent for one in found}:
        for rest in place.glob(f"{_REMOVED}*"):
            shutil.rmtree(rest, ignore_errors=True)


def _size_of(folder: Path) -> int:
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                size += Path(parent, name).lstat().st_size
            except OSError:
                continue  # it has gone meanwhile
    return size
