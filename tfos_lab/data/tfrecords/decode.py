"""Records as Arrow record batches: the wanted features become columns of the wanted types."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tfos_lab.data.rows import Array
from tfos_lab.data.tfrecords.byte_columns import byte_column, cut, decode_varints, read_varints
from tfos_lab.data.tfrecords.codecs import INFERRED_TYPES, KIND_NAMES, FeatureKind, find_codec, kind_of
from tfos_lab.data.tfrecords.framing import PADDING, Frames
from tfos_lab.data.type_table import is_array, is_vector
from tfos_lab.errors import RecordError

_TAG = 0x0A
_DENSE = 1


def decode(frames: Frames, schema: pa.Schema) -> pa.RecordBatch:
    """Read records as rows of a schema, of types that `codecs` knows. A record that lacks a column has a null there.

    A RecordError, if a record does not fit the schema, names the feature, the file and the position in it.
    """
    frames, regions = find_features(frames, set(schema.names))
    columns = [_column(frames, field, regions[field.name]) for field in schema]
    # A batch without columns still has rows.
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(frames), pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(frames: Frames, field: pa.Field, region: Regions) -> pa.Array:
    kind = kind_of(field.type)
    assert kind is not None
    wrong = np.flatnonzero((region.kinds != kind) & (region.kinds != FeatureKind.NONE))
    if len(wrong):
        row = int(wrong[0])
        held = FeatureKind(int(region.kinds[row]))
        advice = f"give a schema in which it is {INFERRED_TYPES[held]}, or an array of it"
        raise frames.refuse(
            row, f"its feature '{field.name}' holds {KIND_NAMES[held]}, which do not become {field.type} ({advice})"
        )
    present = region.kinds != FeatureKind.NONE
    data = np.frombuffer(frames.data, np.uint8)
    values, counts = _values(data, region, kind)
    try:
        if is_vector(field.type):
            return _vectors(values, counts, present, field.type)
        if is_array(field.type):
            leaves = _typed(values, field.type.value_type)
            return _lists(leaves, counts, present, field.type)
        return _scalars(frames, field, _typed(values, field.type), counts)
    except pa.ArrowInvalid as error:
        advice = (
            f"read it as bytes: binary_features=['{field.name}']"
            if kind is FeatureKind.BYTES
            else "read it as a wider type"
        )
        reason = f"{frames.path}: feature '{field.name}' does not become {field.type}: {error}; {advice}"
        raise RecordError(reason=reason) from error


def count_values(frames: Frames, region: Regions, kind: FeatureKind) -> Array:
    """Count the values that a feature has in each record; int64 ``(n,)``."""
    return _values(np.frombuffer(frames.data, np.uint8), region, kind)[1]


def _values(data: Array, region: Regions, kind: FeatureKind) -> tuple[pa.Array, Array]:
    """Return all values of a feature, and how many each record has."""
    if kind is FeatureKind.BYTES:
        return _strings(data, region)
    # Records without the feature count as empty ranges.
    ends = np.maximum.accumulate(region.ends)
    starts = np.where(region.kinds == kind, region.starts, ends)
    content, offsets = cut(data, starts, ends)
    if kind is FeatureKind.FLOAT:
        return pa.array(content.view("<f4")), np.diff(offsets) // 4
    values, value_ends = decode_varints(content)
    return pa.array(values), np.diff(np.searchsorted(value_ends, offsets, side="right"))


def _strings(data: Array, region: Regions) -> tuple[pa.Array, Array]:
    """Read byte strings: the first of every record, then the second of those that have one, and so on."""
    at, limits = region.starts.copy(), region.ends
    active = np.flatnonzero((region.kinds == FeatureKind.BYTES) & (at < limits))
    rows, starts, ends = [], [], []
    while len(active):
        sizes, begin = read_varints(data, at[active] + 1)
        end = begin + sizes
        if (data[at[active]] != _TAG).any() or (sizes < 0).any() or (end > limits[active]).any():
            raise RecordError(reason="a list of bytes is not written as one")
        rows.append(active)
        starts.append(begin)
        ends.append(end)
        at[active] = end
        active = active[end < limits[active]]
    if not rows:
        return pa.array([], pa.large_binary()), np.zeros(len(at), np.int64)
    row_of = np.concatenate(rows)
    order = np.argsort(row_of, kind="stable") if len(rows) > 1 else np.arange(len(row_of))
    content, offsets = cut(data, np.concatenate(starts)[order], np.concatenate(ends)[order])
    return byte_column(content, offsets), np.bincount(row_of, minlength=len(at))


def _typed(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    codec = find_codec(wanted)
    assert codec is not None
    return codec.from_feature(values, wanted)


def _scalars(frames: Frames, field: pa.Field, values: pa.Array, counts: Array) -> pa.Array:
    many = np.flatnonzero(counts > 1)
    if len(many):
        row = int(many[0])
        raise frames.refuse(
            row,
            f"its feature '{field.name}' has {counts[row]} values where one was expected (give a schema in which it is "
            f"array<{field.type}>)",
        )
    if len(values) == len(counts):
        return values
    positions = np.cumsum(counts) - 1
    return values.take(pa.array(positions, mask=counts == 0))


def _lists(leaves: pa.Array, counts: Array, present: Array, wanted: pa.DataType) -> pa.Array:
    # ``mask`` marks the lists that are null.
    width = pa.int64() if types.is_large_list(wanted) else pa.int32()
    offsets = np.concatenate([[0], np.cumsum(counts)])
    mask = None if present.all() else pa.array(~present)
    kind = pa.LargeListArray if types.is_large_list(wanted) else pa.ListArray
    return kind.from_arrays(pa.array(offsets, width), leaves, type=wanted, mask=mask)


def _vectors(values: pa.Array, counts: Array, present: Array, wanted: pa.DataType) -> pa.Array:
    rows = len(counts)
    doubles = _lists(values.cast(pa.float64()), counts, np.ones(rows, np.bool_), wanted.field("values").type)
    columns = {
        "type": pa.array(np.full(rows, _DENSE, np.int8)),
        "size": pa.nulls(rows, pa.int32()),
        "indices": pa.nulls(rows, wanted.field("indices").type),
        "values": doubles,
    }
    fields = [wanted.field(i) for i in range(wanted.num_fields)]
    mask = None if present.all() else pa.array(~present)
    return pa.StructArray.from_arrays(
        [columns[field.name].cast(field.type) for field in fields], fields=fields, mask=mask
    )


# ---- finding features ------------------------------------------------------------------------------------------------

# All records are walked through in step: each step reads one entry of every record's map of features, by whole arrays.
# Features that are not wanted are skipped, so they cost next to nothing.

# The first bytes of fields: number << 3 | 2, for fields with a length.
_FIRST, _SECOND = 0x0A, 0x12


@dataclass
class Regions:
    """Where the values of one feature are in each record: the packed numbers, or the strings with tags and lengths.

    ``kinds`` is the `FeatureKind` of each record's list; `FeatureKind.NONE` if it has no such feature.
    """

    kinds: Array
    starts: Array
    ends: Array


def find_features(frames: Frames, wanted: Collection[str] | None = None) -> tuple[Frames, dict[str, Regions]]:
    """Find the features of all records, or those that are wanted, which are always present in the result.

    Returns the frames to which the regions refer: the same, or a copy with records rewritten if some used an encoding
    that is valid but unusual; and the regions by name. A RecordError names the position of a record that is no
    tf.train.Example.
    """
    regions, odd = _walk(frames, wanted)
    if len(odd):
        frames = _rewrite(frames, odd)
        regions, odd = _walk(frames, wanted)
        if len(odd):  # pragma: no cover - what TensorFlow has just written is never odd
            raise frames.refuse(int(odd[0]), "it is not a tf.train.Example")
    return frames, regions


def _walk(frames: Frames, wanted: Collection[str] | None) -> tuple[dict[str, Regions], Array]:
    """Return all regions, and the rows with an unusual encoding."""
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
    """Return an index of the chosen rows; usually all are, and a slice saves the copy."""
    return slice(None) if chosen.all() else np.flatnonzero(chosen)


def _nothing(rows: int) -> Regions:
    return Regions(np.zeros(rows, np.int8), np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def _entry(data: Array, at: Array, limits: Array) -> tuple[Array, Array, tuple[Array, Array], Array]:
    """Read one entry of the map: whether its encoding is usual, its end, its key's ends, its feature's beginning."""
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
    """Group entries by their keys; usually all entries of a step have the same key."""
    sizes = ends - starts
    left = np.arange(len(starts))
    while len(left):
        size = int(sizes[left[0]])
        positions = starts[left]
        key = data[positions[0] : positions[0] + size]
        same = sizes[left] == size
        for i in range(size):
            # For keys of other lengths this may read beyond the key, but never beyond the padded data.
            same &= data[np.minimum(positions + i, len(data) - 1)] == key[i]
        members = _rows(same) if len(left) == len(starts) else left[same]
        yield key.tobytes().decode("utf-8", "replace"), members
        left = left[~same]


def _list(data: Array, starts: Array, ends: Array) -> tuple[Array, Array, Array, Array]:
    """Read a feature: its kind, the ends of its values, and whether its encoding is usual."""
    kinds = np.where(starts < ends, data[starts] >> 3, FeatureKind.NONE).astype(np.int8)
    sizes, begin = read_varints(data, np.minimum(starts + 1, ends))
    sane = (kinds == FeatureKind.NONE) | (
        (kinds <= FeatureKind.INT64) & (data[starts] & 7 == 2) & (sizes >= 0) & (begin + sizes == ends)
    )
    begin = np.where(sane & (kinds != FeatureKind.NONE), begin, ends)
    # Numbers are packed: one field has them all.
    numbers = _rows((kinds >= FeatureKind.FLOAT) & (begin < ends))
    sizes, inner = read_varints(data, begin[numbers] + 1)
    sane[numbers] &= (data[begin[numbers]] == _FIRST) & (sizes >= 0) & (inner + sizes == ends[numbers])
    begin[numbers] = np.minimum(inner, ends[numbers])
    return kinds, begin, ends, sane


def _rewrite(frames: Frames, rows: Array) -> Frames:
    """Have TensorFlow decode the odd records, and encode them again."""
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
    """Rewritten frames; their errors name positions in the original file."""

    original: Frames

    def refuse(self, row: int, reason: str) -> Any:
        return self.original.refuse(row, reason)
