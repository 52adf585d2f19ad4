"""Deals the rows of files to nodes: in order, and equally down to single rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tfos_lab.core.messages import DataFile, FilePart

# Where reading can begin (the number of a row group, or a byte), and how many rows follow there.
Block = tuple[int, int]


@dataclass(frozen=True)
class FoundFile:
    """A file of rows: its blocks, or None while they have not been counted, and the values of its folders."""

    file: DataFile
    blocks: Sequence[Block] | None
    partition: Mapping[str, str | None] = field(default_factory=dict)


def deal_rows(files: Sequence[FoundFile], nodes: int) -> list[list[FilePart]]:
    """Return what each node reads: a run of rows that follow one another, all equally many but for one row at most.

    All files are counted.

    Examples
    --------
    >>> files = [FoundFile(DataFile("", name, 1), [(0, 2), (1, 3)]) for name in ("a", "b")]
    >>> for parts in deal_rows(files, 2):
    ...     print([(part.file.path, part.pieces) for part in parts])
    [('a', [(0, 0, 2), (1, 0, 3)])]
    [('b', [(0, 0, 2), (1, 0, 3)])]
    >>> [[part.pieces for part in parts] for parts in deal_rows(files[:1], 3)]
    [[[(0, 0, 2)]], [[(1, 0, 2)]], [[(1, 2, 1)]]]
    """
    total = sum(rows for file in files for _, rows in file.blocks or ())
    ends = [math.ceil(total * (index + 1) / nodes) for index in range(nodes)]
    dealt: list[list[FilePart]] = [[] for _ in range(nodes)]
    begin = 0
    for number, file in enumerate(files):
        taken: dict[int, list[tuple[int, int, int]]] = {}
        for start, rows in file.blocks or ():
            for node, skip, count in _cut(begin, rows, ends):
                taken.setdefault(node, []).append((start, skip, count))
            begin += rows
        for node, pieces in taken.items():
            dealt[node].append(FilePart(file.file, pieces, number, dict(file.partition)))
    return dealt


def _cut(begin: int, rows: int, ends: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield which nodes get rows of a block that begins with row ``begin`` of all: node, first row, number of rows."""
    at, stop = begin, begin + rows
    for node, end in enumerate(ends):
        if at < min(end, stop):
            yield node, at - begin, min(end, stop) - at
            at = min(end, stop)


def deal_files(sizes: Sequence[int], nodes: int) -> list[list[int]]:
    """Return the numbers of the files that each node counts: runs of files of about the same bytes.

    Examples
    --------
    >>> deal_files([10, 10, 20, 5], 2)
    [[0, 1], [2, 3]]
    """
    total = max(1, sum(sizes))
    dealt: list[list[int]] = [[] for _ in range(nodes)]
    before = 0
    for number, size in enumerate(sizes):
        dealt[min(nodes - 1, (2 * before + size) * nodes // (2 * total))].append(number)
        before += size
    return dealt
