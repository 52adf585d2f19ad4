"""Notes about why a node gives no more results, for Spark tasks that come after the node has ended.

Spark computes an inference when its results are used, and retries a failed task. The last try, whose error is the one
that users see, finds no node any more: it reads the note, a file on the node's host. It stays for a day: for as long as
Spark may still compute answers that a failed cluster was to give.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from tfos_lab.core.runtime_files import kept_for_a_day

_NOTES = "failed"


def leave(scratch: Path, reason: str) -> None:
    """Write a note, one sentence, on the node with this folder; the first one counts."""
    with contextlib.suppress(OSError):
        path = kept_for_a_day(scratch.parent, _NOTES) / scratch.name
        with path.open("x", encoding="utf-8") as file:
            file.write(reason)


def recall(scratch: Path) -> str | None:
    """Return the note that the node with this folder has left, if any."""
    with contextlib.suppress(OSError):
        return (scratch.parent / _NOTES / scratch.name).read_text(encoding="utf-8")
    return None


def sentence(reason: str) -> str:
    """Return the sentence for tasks that wait for results of a cluster that has failed."""
    return f"the cluster has failed: {reason} (cluster.wait() raises it with its traceback)"
