"""Why a node's cluster has failed, for Spark tasks that come when the node has gone: a line in a file on its host.

An inference is computed when its results are used, and Spark tries a failed task again: the last try, whose error is
the one that users see, finds nobody. The file lies beside the folder that the node had; the next node of the same user
removes it after a while (`scratch.sweep`).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

SUFFIX = ".failed"


def leave(scratch: Path, words: str) -> None:
    """Leave a line beside the node's folder; the first one counts."""
    with contextlib.suppress(OSError), _place(scratch).open("x", encoding="utf-8") as file:
        file.write(words)


def recall(scratch: Path) -> str | None:
    """Return the line that the node of this folder has left, if it did."""
    with contextlib.suppress(OSError):
        return _place(scratch).read_text(encoding="utf-8")
    return None


def sentence(words: str) -> str:
    """Say it to whoever waits for answers."""
    return f"the cluster has failed: {words} (cluster.wait() raises it with its traceback)"


def _place(scratch: Path) -> Path:
    return scratch.with_name(scratch.name + SUFFIX)
