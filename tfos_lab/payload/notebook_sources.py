"""Source text of notebook code, for places that have no notebook.

Code typed into a notebook has a made-up file name, and only the kernel's `linecache` knows its text. Tracebacks want
that text, and AutoGraph needs it to convert a function. So it travels with the function: `collect` on the driver,
`register` on the node. A label such as ``Cell In[5]`` is what people see instead of the made-up name.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

_PLAIN_IPYTHON = re.compile(r"<ipython-input-(\d+)-[0-9a-f]+>")


class Source(NamedTuple):
    """One made-up file: its name in code objects, what to call it, and its text."""

    filename: str
    label: str
    text: str


_labels: dict[str, str] = {}
_labellers: list[Callable[[str], str | None]] = []


def add_labeller(labeller: Callable[[str], str | None]) -> None:
    """Let ``labeller`` say what people call a made-up file name; None means that it does not know."""
    if labeller not in _labellers:
        _labellers.append(labeller)


def label(filename: str) -> str | None:
    """Return what people call the file, such as ``"Cell In[5]"``, or None for a file with no other name."""
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
    """Return the sources of those files that have a text here, in the order of their names."""
    found = []
    for filename in sorted(set(filenames)):
        text = "".join(linecache.getlines(filename))
        if text:
            found.append(Source(filename, label(filename) or "", text))
    return found


def register(sources: Iterable[Source]) -> None:
    """Make the sources known to this process: to tracebacks, `inspect` and AutoGraph."""
    for source in sources:
        if source.label:
            _labels[source.filename] = source.label
        if Path(source.filename).exists():
            continue  # the real file is here
        lines = source.text.splitlines(keepends=True)
        # No modification time: linecache then never asks the disk, and keeps the entry.
        linecache.cache[source.filename] = (len(source.text), None, lines, source.filename)
