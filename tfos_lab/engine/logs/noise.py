"""Misleading lines of TensorFlow and Keras: left out of the view, kept in the files.

Only lines that are known to be wrong, or to mean nothing, on our nodes; each with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# A substring of each line, which is quick to look for, and the line.
_NOISE = (
    # The dataset of `ctx.dataset(shuffle=True)` is shuffled in each epoch; it is `fit` whose default is ignored.
    ("`shuffle=True` was passed", re.compile(r"UserWarning: `shuffle=True` was passed, but will be ignored since")),
    # There is no driver (303) or no GPU (100), and the user asked for none. Other CUDA errors are shown.
    ("cuInit", re.compile(r"failed call to cuInit: .*(\(303\)|CUDA_ERROR_NO_DEVICE|no CUDA-capable device)")),
    ("cuda drivers", re.compile(r"Could not find cuda drivers on your machine, GPU will not be used")),
    # Nodes are stopped by SIGTERM, which TensorFlow takes for the end of a rented machine.
    ("SIGTERM caught", re.compile(r"preemption_notifier\.cc:\d+\] SIGTERM caught at")),
    # This is the generator that reads the node's spool; there is nothing to optimize in it.
    ("GeneratorDatasetOp", re.compile(r"Input of GeneratorDatasetOp::Dataset will not be optimized because")),
)
_WORDS = tuple(word for word, _ in _NOISE)
# Python's warnings are followed by the line of source that caused them.
_SHOWS_SOURCE = "UserWarning"


class NoiseFilter:
    """Removes misleading lines from one stream of one node, which arrives in pieces; only whole lines are removed."""

    def __init__(self) -> None:
        self._within_line = False
        self._source_follows = False

    def take(self, text: str) -> str:
        """Return the text without misleading lines."""
        if not text:
            return text
        quiet = not self._source_follows and not _may_have_noise(text)
        shown = text if quiet else "".join(self._worth_showing(text.splitlines(keepends=True)))
        self._within_line = not text.endswith("\n")
        return shown

    def _worth_showing(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            is_source, self._source_follows = self._source_follows and line.startswith("  "), False
            whole = not self._within_line and line.endswith("\n")
            self._within_line = not line.endswith("\n")
            if whole and (is_source or _is_noise(line)):
                self._source_follows = not is_source and _SHOWS_SOURCE in line
            else:
                yield line


def without_noise(text: str) -> str:
    """Return whole text without misleading lines."""
    return NoiseFilter().take(text)


def _may_have_noise(text: str) -> bool:
    for word in _WORDS:  # noqa: SIM110 - quicker than `any`, for thousands of nodes that print
        if word in text:
            return True
    return False


def _is_noise(line: str) -> bool:
    return any(word in line and pattern.search(line) for word, pattern in _NOISE)
