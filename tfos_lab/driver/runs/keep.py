"""Removes old runs when one has ended, with all their files: ``keep_runs`` or the environment says how many stay."""

from __future__ import annotations

import logging
import os
import shutil

from tfos_lab.core.config import ClusterConfig
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.driver.runs.read import RunFolder, read_folders
from tfos_lab.driver.runs.run import process_lives
from tfos_lab.errors import ConfigError

logger = logging.getLogger(__name__)

KEEP_RUNS = "TFOS_LAB_KEEP_RUNS"
# A folder that is being removed is no run any more, even if the removal is interrupted.
_REMOVED = ".removed-"


def keep_newest(run_dir: RunDir, config: ClusterConfig) -> None:
    """Remove the older runs beside this one; none where there is no limit, or for a part of a search.

    Tagged runs stay, those that have not ended, and folders of other things; they do not count. What lies elsewhere,
    such as in ``log_dir``, is never touched. Nobody waits for the answer: what cannot be removed is a line of the log.
    """
    keep = config.keep_runs or _from_environ()
    if run_dir.is_part or keep is None:
        return

    def last_s(folder: RunFolder) -> float:
        return max(run.ended_s or run.record.written_s for run in folder.runs)

    place = run_dir.path.parent
    try:
        removable = [folder for folder in read_folders(place) if folder.runs and not _stays(folder)]
    except (OSError, ConfigError) as error:
        logger.warning("old runs in %s cannot be removed: %s", place, error)
        return
    for rest in place.glob(f"{_REMOVED}*"):
        shutil.rmtree(rest, ignore_errors=True)
    for folder in sorted(removable, key=last_s, reverse=True)[keep:]:
        try:
            going = folder.path.with_name(f"{_REMOVED}{folder.path.name}")
            folder.path.rename(going)
            shutil.rmtree(going)
        except FileNotFoundError:
            continue  # another process removes it
        except OSError as error:
            logger.warning("%s is too old to stay, but it cannot be removed: %s", folder.path, error.strerror or error)


def _stays(folder: RunFolder) -> bool:
    """Whether a folder stays whatever the limit is."""
    if folder.unreadable or folder.path.is_symlink() or any(run.tags or run.live for run in folder.runs):
        return True
    # Where nothing records the end of all independent runs, some may still go on: their kernel has to be gone.
    parts = [run for run in folder.runs if run.run_dir != folder.path] if folder.whole is None else []
    return any(process_lives(run.record.process) for run in parts)


def _from_environ() -> int | None:
    """Return the limit; a wrong one removes nothing."""
    text = os.environ.get(KEEP_RUNS, "").strip()
    if not text:
        return None
    if text.isdecimal() and int(text):
        return int(text)
    logger.warning("%s=%s: a whole number, 1 or more, is needed; no run is removed because of it", KEEP_RUNS, text)
    return None
