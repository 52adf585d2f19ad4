"""Records as Arrow record batches: the wanted features become columns of the wanted types."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyarrow import types

from tfos_lab.data.rows import Array
from tfos_lab.data.tfrecords.byte_columns import byte_column, cut
from tfos_lab.data.tfrecords.codecs import INFERRED_TYPES, KIND_NAMES, FeatureKind, find_codec, kind_of
from tfos_lab.data.tfrecords.framing import Frames
from tfos_lab.data.tfrecords.parse import Regions, find_features
from tfos_lab.data.tfrecords.varints import decode_varints, read_varints
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
