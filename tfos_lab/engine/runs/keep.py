"""Removes old runs when one has ended: ``keep_runs`` and ``keep_days``, or the environment, say which ones stay."""

from __future__ import annotations

import logging
import os

from tfos_lab.core.config import ClusterConfig
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.errors import ConfigError

logger = logging.getLogger(__name__)

KEEP_RUNS = "TFOS_LAB_KEEP_RUNS"
KEEP_DAYS = "TFOS_LAB_KEEP_DAYS"


def keep_newest(run_dir: RunDir, config: ClusterConfig) -> None:
    """Remove the runs beside this one that nothing keeps; none where there is no limit, or for a part of a search.

    Nobody waits for the answer: what cannot be removed is a line of the log.
    """
    keep = config.keep_runs or _from_environ(KEEP_RUNS)
    days = config.keep_days or _from_environ(KEEP_DAYS)
    if run_dir.is_part or (keep is None and days is None):
        return
    from tfos_lab.engine.runs.prune import prune_runs

    try:
        done = prune_runs(keep=keep, days=days, folder=run_dir.path.parent)
    except (OSError, ConfigError) as error:
        logger.warning("old runs in %s cannot be removed: %s", run_dir.path.parent, error)
        return
    for one in done:
        if one.failed:
            logger.warning("%s is too old to stay, but %s", one.folder.path, one.kept)


def _from_environ(name: str) -> int | None:
    """Return a limit; a wrong one removes nothing."""
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    if text.isdecimal() and int(text):
        return int(text)
    logger.warning("%s=%s: a whole number, 1 or more, is needed; no run is removed because of it", name, text)
    return None
