"""Arrow record batches as records, the bytes of one `tf.train.Example` for each row, and back.

=========================  ==============  ===========================================================================
Spark SQL                  feature         remarks
=========================  ==============  ===========================================================================
boolean                    int64 list      0 and 1
tinyint ... bigint         int64 list
date                       int64 list      days since 1970-01-01
timestamp, timestamp_ntz   int64 list      microseconds since 1970-01-01 00:00, UTC or of the same wall clock
float                      float list
double, decimal            float list      rounded to float: an Example has nothing finer
string, binary             bytes list      strings in UTF-8
array<any of these>        the same list   of any length in each row
vector (spark.ml)          float list      dense; all of the same length
a null                     no feature      and the other way round
a null inside an array     refused
anything else              refused         with what to do instead
=========================  ==============  ===========================================================================

To support another type, add a `Codec` to `CODECS`. `encode` and `decode` handle what surrounds the values (arrays,
vectors, nulls, bytes on disk) for all types alike, without Python value by value, or row by row.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from tfos_lab.data.batches import to_numpy
from tfos_lab.data.rows import Array
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.data.spark_types import arrow_columns
from tfos_lab.data.tfrecords.byte_columns import (
    by_length,
    byte_column,
    cut,
    decode_varints,
    encode_varints,
    offsets_of,
    read_varints,
    varint,
)
from tfos_lab.data.tfrecords.framing import PADDING, Frames
from tfos_lab.data.type_table import is_array, is_bytes, is_text, is_vector
from tfos_lab.errors import ConfigError, RecordError
from tfos_lab.texts import format_count

# Tags of fields with a length, number << 3 | 2: the first field of any of the messages (Example.features,
# Features.feature, a map's key, a list's values), and a map's value.
_FIRST, _SECOND = 0x0A, 0x12


class FeatureKind(IntEnum):
    """The three lists that a feature can be, by their numbers in its message; ``NONE`` is a feature without any."""

    NONE = 0
    BYTES = 1
    FLOAT = 2
    INT64 = 3


KIND_NAMES = {
    FeatureKind.NONE: "nothing",
    FeatureKind.BYTES: "bytes",
    FeatureKind.FLOAT: "floats",
    FeatureKind.INT64: "integers",
}
# What a feature is read as where no schema is given.
INFERRED_TYPES = {FeatureKind.BYTES: "string", FeatureKind.FLOAT: "float", FeatureKind.INT64: "long"}


@dataclass(frozen=True)
class Codec:
    """How flat values of some Arrow types become those of a feature, and back.

    ``to_feature`` maps the values to integers, float32 or large_binary, as ``kind`` holds them; ``from_feature`` maps
    int64, float32 or large_binary values to those of the given type.
    """

    matches: Callable[[pa.DataType], bool]
    kind: FeatureKind
    to_feature: Callable[[pa.Array], pa.Array]
    from_feature: Callable[[pa.Array, pa.DataType], pa.Array]


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    return values.cast(wanted)


CODECS = (
    Codec(types.is_boolean, FeatureKind.INT64, lambda values: values.cast(pa.int8()), _cast),
    Codec(types.is_signed_integer, FeatureKind.INT64, lambda values: values, _cast),
    Codec(
        types.is_date32,
        FeatureKind.INT64,
        lambda values: values.view(pa.int32()),
        lambda values, wanted: values.cast(pa.int32()).view(wanted),
    ),
    Codec(
        types.is_timestamp,
        FeatureKind.INT64,
        lambda values: values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64()),
        lambda values, wanted: values.view(pa.timestamp("us", wanted.tz)).cast(wanted),
    ),
    Codec(types.is_floating, FeatureKind.FLOAT, lambda values: values.cast(pa.float32()), _cast),
    Codec(types.is_decimal, FeatureKind.FLOAT, lambda values: values.cast(pa.float32()), _cast),
    Codec(
        is_text,
        FeatureKind.BYTES,
        lambda values: values.cast(pa.large_binary()),
        # Arrow checks that the bytes are UTF-8.
        lambda values, wanted: values.cast(pa.large_string()).cast(wanted),
    ),
    Codec(is_bytes, FeatureKind.BYTES, lambda values: values.cast(pa.large_binary()), _cast),
)


def find_codec(leaf: pa.DataType) -> Codec | None:
    """Return the codec for values of a type, which are in no array any more; None for a type that no list holds."""
    return next((codec for codec in CODECS if codec.matches(leaf)), None)


def kind_of(column_type: pa.DataType) -> FeatureKind | None:
    """Return which list a column's values go into; None for a type that no list holds."""
    if is_vector(column_type):
        return FeatureKind.FLOAT
    codec = find_codec(column_type.value_type if is_array(column_type) else column_type)
    return None if codec is None else codec.kind


def check_columns(schema: str | Mapping[str, Any]) -> None:
    """Raise a ConfigError with every column of a Spark schema (as JSON) that has no feature, and what to do."""
    columns = arrow_columns(schema)
    problems = [
        f"column '{name}' of type {label} has no place in a tf.train.Example: {_advice(name, kind)}"
        for name, kind, label in columns
        if kind_of(kind) is None
    ]
    names = [name for name, _, _ in columns]
    problems += [
        f"column '{name}' is there twice: rename one" for name in sorted({n for n in names if names.count(n) > 1})
    ]
    if problems:
        raise ConfigError(problems)


def check_folders(schema: str | Mapping[str, Any]) -> None:
    """Raise a ConfigError with every column of a Spark schema whose values cannot be names of folders."""
    problems = [
        f"partition_by: column '{name}' of type {label} cannot name folders: make it a string, a number or a date"
        for name, kind, label in arrow_columns(schema)
        if not (
            is_text(kind)
            or (kind_of(kind) in (FeatureKind.INT64, FeatureKind.FLOAT) and not is_array(kind) and not is_vector(kind))
        )
    ]
    if problems:
        raise ConfigError(problems)


def _advice(name: str, kind: pa.DataType) -> str:
    if is_array(kind) and is_array(kind.value_type):
        return f"flatten it (F.flatten('{name}')), and reshape where you read it"
    if is_array(kind):
        return f"take one field of each element: F.transform('{name}', lambda element: element['field'])"
    if types.is_map(kind):
        return f"take the keys you need into columns: df.withColumn('key', df['{name}']['key'])"
    if types.is_struct(kind):
        return f"make its fields columns of their own: df.select('*', '{name}.*').drop('{name}')"
    return f"cast it to a number or a string: df.withColumn('{name}', df['{name}'].cast('string'))"


# ---- records ---------------------------------------------------------------------------------------------------------

# A row's record is a sequence of pieces: for each column a header with the feature's name, kind and length, and then
# the values as they are in memory (integers as varints). A header depends only on the length of the values, so one is
# made for each distinct length; Arrow joins the pieces of all rows.

# Making it of a Python value would import pandas into each Spark process that plans a read or a write.
_EMPTY = byte_column(b"", np.zeros(2, np.int64))[0]


def _with_tag(size: int) -> bytes:
    """Write what precedes a first field of this size."""
    return bytes([_FIRST]) + varint(size)


def encode(batch: pa.RecordBatch) -> pa.LargeBinaryArray:
    """Make a record of each row, of types that the table has; a RecordError names one with nulls in its arrays."""
    sizes = np.zeros(batch.num_rows, np.int64)
    pieces: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        header, header_sizes, content = _feature(name, column)
        present = np.ones(len(column), np.bool_) if content.null_count == 0 else ~_nulls(content)
        sizes += np.where(present, header_sizes + np.diff(offsets_of(content)), 0)
        # Where a row has no value, the header is left out as well.
        pieces += [header if content.null_count == 0 else compute.if_else(pa.array(present), header, _EMPTY), content]
    heads, _ = by_length(sizes, _with_tag)
    if not batch.num_columns or isinstance(heads, pa.Scalar):
        heads = pa.array([heads.as_py()] * batch.num_rows, pa.large_binary())
    return compute.binary_join_element_wise(heads, *pieces, _EMPTY, null_handling="replace", null_replacement="")


def _feature(name: str, column: pa.Array) -> tuple[pa.LargeBinaryArray | pa.Scalar, Array, pa.LargeBinaryArray]:
    """Return a column's headers, their sizes, and the values' bytes, null where the row has no feature."""
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    leaves, row_offsets, present = _flatten(name, column)
    kind = kind_of(column.type)
    assert kind is not None
    # A single string's tag and length are in the header; those of an array's strings are among the values.
    tagged = kind is not FeatureKind.BYTES or not is_array(column.type)
    data, offsets = _content(leaves, row_offsets, kind, tagged=tagged)
    content = byte_column(data, offsets, present)
    headers, sizes = by_length(np.diff(offsets), functools.partial(_header, name.encode(), kind, tagged=tagged))
    return headers, sizes, content


@functools.lru_cache(maxsize=4096)
def _header(key: bytes, kind: FeatureKind, size: int, *, tagged: bool) -> bytes:
    """Write what precedes a feature's values: the heads of map entry, key, feature and list."""
    head = _with_tag(size) if tagged and (size or kind is FeatureKind.BYTES) else b""
    size += len(head)
    feature = bytes([kind << 3 | 2]) + varint(size)
    size += len(feature)
    entry = _with_tag(len(key)) + key + bytes([_SECOND]) + varint(size) + feature + head
    size += len(entry) - len(feature) - len(head)
    return _with_tag(size) + entry


def _flatten(name: str, column: pa.Array) -> tuple[pa.Array, Array, Array]:
    """Return a column's flat values, where each row begins in them, and which rows are not null."""
    present = ~_nulls(column)
    if is_vector(column.type):
        batch = pa.RecordBatch.from_arrays([column.drop_null()], [name])
        dense = to_numpy(batch, [ColumnSpec(name, "vector", "float64", (None,))])[name]
        leaves, lengths = pa.array(dense.reshape(-1)), np.where(present, dense.shape[1], 0)
    elif is_array(column.type):
        leaves = column.flatten()
        lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        if leaves.null_count:
            raise RecordError(
                reason=f"column '{name}' has {format_count(leaves.null_count, 'null')} inside its arrays, which a "
                "tf.train.Example cannot hold: replace them, as in "
                f"F.transform('{name}', lambda x: F.coalesce(x, F.lit(0)))"
            )
    else:
        return column, np.arange(len(column) + 1), present
    return leaves, np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), present


def _content(leaves: pa.Array, row_offsets: Array, kind: FeatureKind, *, tagged: bool) -> tuple[Any, Array]:
    """Return the values' bytes, and where those of each row begin."""
    codec = find_codec(leaves.type)
    assert codec is not None
    values = codec.to_feature(leaves)
    match kind:
        case FeatureKind.FLOAT:
            return np.ascontiguousarray(_numbers(values), "<f4"), row_offsets * 4
        case FeatureKind.INT64:
            return encode_varints(np.ascontiguousarray(_numbers(values)), row_offsets)
        case _:
            if not tagged:
                heads, _ = by_length(np.diff(offsets_of(values)), _with_tag)
                values = compute.binary_join_element_wise(heads, values, _EMPTY)
            return values.buffers()[2] or b"", offsets_of(values)[row_offsets]


def _numbers(values: pa.Array) -> Array:
    if values.null_count:
        values = compute.fill_null(values, 0)
    numbers: Array = values.to_numpy(zero_copy_only=False)
    return numbers


def _nulls(column: pa.Array) -> Array:
    nulls: Array = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


# ---- and back --------------------------------------------------------------------------------------------------------


def decode(frames: Frames, schema: pa.Schema) -> pa.RecordBatch:
    """Read records as rows of a schema, of types that the table has. A record that lacks a column has a null there.

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
        if (data[at[active]] != _FIRST).any() or (sizes < 0).any() or (end > limits[active]).any():
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
        "type": pa.array(np.ones(rows, np.int8)),  # dense
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
    if is_odd.any():
        if isinstance(frames, _Rewritten):
            raise frames.refuse(int(np.argmax(is_odd)), "it is not a tf.train.Example")
        return find_features(_rewrite(frames, np.flatnonzero(is_odd)), wanted)
    return frames, found


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
    try:
        import tensorflow as tf
    except ImportError as error:
        reason = "it is not a tf.train.Example, or written in a way that only TensorFlow reads, which is not here"
        raise frames.refuse(int(rows[0]), reason) from error
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
