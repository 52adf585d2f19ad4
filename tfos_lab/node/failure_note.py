"""Notes about why a node gives no more results, for Spark tasks that come after the node has ended.

Spark computes an inference when its results are used, and retries a failed task. The last try, whose error is the one
that users see, finds no node any more: it reads the note, a file on the node's host beside the folder that the node
had. Old notes are removed by `forkserver.leftovers`.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

SUFFIX = ".failed"


def leave(scratch: Path, reason: str) -> None:
    """Write a note, one sentence, beside the node's folder; the first one counts."""
    with contextlib.suppress(OSError), _note_path(scratch).open("x", encoding="utf-8") as file:
        file.write(reason)


def recall(scratch: Path) -> str | None:
    """Return the note that the node with this folder has left, if any."""
    with contextlib.suppress(OSError):
        return _note_path(scratch).read_text(encoding="utf-8")
    return None


def sentence(reason: str) -> str:
    """Return the sentence for tasks that wait for results of a cluster that has failed."""
    return f"the cluster has failed: {reason} (cluster.wait() raises it with its traceback)"


def _note_path(scratch: Path) -> Path:
    return scratch.with_name(scratch.name + SUFFIX)
