"""Where in the bytes of many `tf.train.Example`s each feature lies: all records are walked through in step.

Each step looks at one entry of every record's map of features, by whole arrays. Entries of features that nobody wants
are stepped over, so a column that is not asked for costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfos_lab.data.rows import Array
from tfos_lab.data.tfrecords.codecs import FeatureKind
from tfos_lab.data.tfrecords.framing import PADDING, Frames
from tfos_lab.data.tfrecords.varints import read_varints

# The first bytes of fields: number << 3 | 2, for what has a length.
_FIRST, _SECOND = 0x0A, 0x12


@dataclass
class Regions:
    """Where the values of one feature lie in each record.

    Parameters
    ----------
    kinds : numpy.ndarray
        `FeatureKind` of each record's list; `FeatureKind.NONE` where it has no such feature.
    starts, ends : numpy.ndarray
        Of the list: of the packed numbers themselves, or of the strings with their tags and lengths.
    """

    kinds: Array
    starts: Array
    ends: Array


def find_features(frames: Frames, wanted: Collection[str] | None = None) -> tuple[Frames, dict[str, Regions]]:
    """Find the features of all records.

    Parameters
    ----------
    frames : Frames
        The records.
    wanted : collection of str, optional
        Names of features; by default all that there are.

    Returns
    -------
    frames : Frames
        To which the regions refer: the same, or a copy whose records were written anew, where some were written in a
        way that is allowed but that nobody uses.
    regions : dict of str to Regions
        By name; those wanted are there in any case.

    Raises
    ------
    RecordError
        Where a record is not a tf.train.Example, with its place in the file.
    """
    regions, odd = _walk(frames, wanted)
    if len(odd):
        frames = _rewrite(frames, odd)
        regions, odd = _walk(frames, wanted)
        if len(odd):  # pragma: no cover - what TensorFlow has just written is never odd
            raise frames.refuse(int(odd[0]), "it is not a tf.train.Example")
    return frames, regions


def _walk(frames: Frames, wanted: Collection[str] | None) -> tuple[dict[str, Regions], Array]:
    """Return all regions, and the rows that are not written the usual way."""
    data = np.frombuffer(frames.data, np.uint8)
    rows = len(frames)
    found = {name: _nothing(rows) for name in wanted or ()}
    is_odd = np.zeros(rows, np.bool_)
    sizes, at = read_varints(data, np.minimum(frames.starts + 1, frames.ends))
    is_empty = frames.starts == frames.ends
    is_odd |= ~is_empty & ((data[frames.starts] != _FIRST) | (sizes < 0) | (at + sizes != frames.ends))
    active = np.flatnonzero(~is_odd & (at < frames.ends))
    while len(active):
        limits = frames.ends[active]
        is_sane, entry_ends, key, value = _entry(data, at[active], limits)
        is_odd[active[~is_sane]] = True
        sane = _rows(is_sane)
        kept, entry_ends, value = active[sane], entry_ends[sane], value[sane]
        for name, members in _by_key(data, key[0][sane], key[1][sane]):
            if wanted is not None and name not in found:
                continue
            kinds, starts, ends, is_sane = _list(data, value[members], entry_ends[members])
            region = found.setdefault(name, _nothing(rows))
            these = kept[members]
            region.kinds[these], region.starts[these], region.ends[these] = kinds, starts, ends
            is_odd[these[~is_sane]] = True
        at[kept] = entry_ends
        active = kept[_rows(entry_ends < limits[sane])]
    return found, np.flatnonzero(is_odd)


def _rows(chosen: Array) -> Array | slice:
    """Say which rows are chosen; most often all are, and then nothing needs to be picked out."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


def _nothing(rows: int) -> Regions:
    return Regions(np.zeros(rows, np.int8), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def _entry(data: Array, at: Array, limits: Array) -> tuple[Array, Array, tuple[Array, Array], Array]:
    """Read one entry of the map: whether it is as usual, its end, where its key lies, where its feature begins."""
    sizes, begin = read_varints(data, at + 1)
    sane = (data[at] == _FIRST) & (sizes >= 0) & (sizes <= limits - begin)
    ends = begin + np.where(sane, sizes, 0)
    begin = np.minimum(begin, limits)
    key_sizes, key_starts = read_varints(data, np.minimum(begin + 1, limits))
    sane &= (data[begin] == _FIRST) & (key_sizes >= 0) & (key_sizes < ends - key_starts)
    key_ends = np.where(sane, key_starts + key_sizes, begin)
    value_sizes, values = read_varints(data, np.minimum(key_ends + 1, limits))
    sane &= (data[key_ends] == _SECOND) & (values + value_sizes == ends)
    return sane, ends, (key_starts, key_ends), values


def _by_key(data: Array, starts: Array, ends: Array) -> Iterator[tuple[str, Array | slice]]:
    """Group entries by their keys; most often all of a step have the same."""
    sizes = ends - starts
    left = np.arange(len(starts))
    while len(left):
        size = int(sizes[left[0]])
        places = starts[left]
        key = data[places[0] : places[0] + size]
        same = sizes[left] == size
        for i in range(size):
            # Places of other lengths may lie further on, but never outside: the data are padded, and keys end in them.
            same &= data[np.minimum(places + i, len(data) - 1)] == key[i]
        members = _rows(same) if len(left) == len(starts) else left[same]
        yield key.tobytes().decode("utf-8", "replace"), members
        left = left[~same]


def _list(data: Array, starts: Array, ends: Array) -> tuple[Array, Array, Array, Array]:
    """Read a feature: its kind, where its values lie, and whether it is written as usual."""
    kinds = np.where(starts < ends, data[starts] >> 3, FeatureKind.NONE).astype(np.int8)
    sizes, begin = read_varints(data, np.minimum(starts + 1, ends))
    sane = (kinds == FeatureKind.NONE) | (
        (kinds <= FeatureKind.INT64) & (data[starts] & 7 == 2) & (sizes >= 0) & (begin + sizes == ends)
    )
    begin = np.where(sane & (kinds != FeatureKind.NONE), begin, ends)
    # Numbers are packed: one field that holds them all.
    numbers = _rows((kinds >= FeatureKind.FLOAT) & (begin < ends))
    sizes, inner = read_varints(data, begin[numbers] + 1)
    sane[numbers] &= (data[begin[numbers]] == _FIRST) & (sizes >= 0) & (inner + sizes == ends[numbers])
    begin[numbers] = np.minimum(inner, ends[numbers])
    return kinds, begin, ends, sane


def _rewrite(frames: Frames, rows: Array) -> Frames:
    """Let TensorFlow read the odd records, and write them the usual way."""
    import tensorflow as tf

    view = frames.data
    records = [view[start:end] for start, end in zip(frames.starts.tolist(), frames.ends.tolist(), strict=True)]
    for row in rows.tolist():
        try:
            example = tf.train.Example.FromString(records[row])
        except Exception as error:
            raise frames.refuse(row, "it is not a tf.train.Example") from error
        size = example.ByteSize()
        example.DiscardUnknownFields()
        if example.ByteSize() != size:
            raise frames.refuse(row, "it is not a tf.train.Example, but a SequenceExample perhaps")
        records[row] = example.SerializeToString()
    ends = np.cumsum([len(record) for record in records])
    starts = ends - [len(record) for record in records]
    return _Rewritten(frames.path, b"".join(records) + PADDING, starts, ends, frames.offset, frames)


@dataclass(frozen=True)
class _Rewritten(Frames):
    """Frames written anew, which name places in the file by the original's."""

    original: Frames

    def refuse(self, row: int, reason: str) -> Any:
        return self.original.refuse(row, reason)
