"""Source text of notebook cells, for processes that have no notebook.

The code of a cell has a made-up file name, and only the kernel's `linecache` has its text. Tracebacks show that text,
and AutoGraph needs it to convert a function. So it is sent with the function: `collect` on the driver, `register` on
the node. People see a label such as ``Cell In[5]`` instead of the made-up name.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

_PLAIN_IPYTHON = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")


class Source(NamedTuple):
    """One cell: its file name in code objects, its label (or ""), and its text."""

    filename: str
    label: str
    text: str


_labels: dict[str, str] = {}
_labellers: list[Callable[[str], str | None]] = []


def add_labeller(labeller: Callable[[str], str | None]) -> None:
    """Add a function that returns the label of a file name, or None if it knows none."""
    if labeller not in _labellers:
        _labellers.append(labeller)


def label(filename: str) -> str | None:
    """Return the label of a file, such as ``"Cell In[5]"``, or None if it has none."""
    for labeller in _labellers:
        known = labeller(filename)
        if known:
            return known
    if filename in _labels:
        return _labels[filename]
    match = _PLAIN_IPYTHON.fullmatch(filename)
    return f"Cell In[{match[1]}]" if match else None


def labels() -> dict[str, str]:
    """Return the labels of all registered files, by file name."""
    return dict(_labels)


def collect(filenames: Iterable[str]) -> list[Source]:
    """Return the sources of those files whose text this process has, sorted by file name."""
    found = []
    for filename in sorted(set(filenames)):
        text = "".join(linecache.getlines(filename))
        if text:
            found.append(Source(filename, label(filename) or "", text))
    return found


def register(sources: Iterable[Source]) -> None:
    """Add the sources to `linecache`, where tracebacks, `inspect` and AutoGraph find them."""
    for source in sources:
        if source.label:
            _labels[source.filename] = source.label
        if Path(source.filename).exists():
            continue  # this host has the real file
        lines = source.text.splitlines(keepends=True)
        # Without a modification time, linecache never looks at the disk and keeps the entry.
        linecache.cache[source.filename] = (len(source.text), None, lines, source.filename)
