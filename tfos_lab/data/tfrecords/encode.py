"""Arrow record batches as records: the bytes of one `tf.train.Example` for each row.

A row's record is a sequence of pieces: for each column a header with the feature's name, kind and length, and then the
values as they are in memory (integers as varints). A header depends only on the length of the values, so one is made
for each distinct length; Arrow joins the pieces of all rows. Nothing is done value by value, or row by row.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute, types

from tfos_lab.data.batches import to_numpy
from tfos_lab.data.rows import Array
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.data.tfrecords.byte_columns import by_length, byte_column, encode_varints, offsets_of, varint
from tfos_lab.data.tfrecords.codecs import FeatureKind, find_codec, kind_of
from tfos_lab.data.type_table import is_array, is_vector
from tfos_lab.errors import RecordError
from tfos_lab.texts import format_count

# Field 1 of any of the messages, with a length: Example.features, Features.feature, a map's key, a list's values.
_FIRST = b"\x0a"
_SECOND = b"\x12"
# Made of a Python value, it would bring pandas into each process of Spark's that plans a read or a write.
_EMPTY = byte_column(b"", np.zeros(2, np.int64))[0]


def encode(batch: pa.RecordBatch) -> pa.LargeBinaryArray:
    """Make a record of each row, of types that `codecs` knows; a RecordError names one with nulls in its arrays."""
    sizes = np.zeros(batch.num_rows, np.int64)
    pieces: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        header, header_sizes, content = _feature(name, column)
        present = np.ones(len(column), np.bool_) if content.null_count == 0 else ~_nulls(content)
        sizes += np.where(present, header_sizes + np.diff(offsets_of(content)), 0)
        # Where a row has no value, the header is left out as well.
        pieces += [header if content.null_count == 0 else compute.if_else(pa.array(present), header, _EMPTY), content]
    heads, _ = by_length(sizes, lambda size: _FIRST + varint(size))
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
    head = _FIRST + varint(size) if tagged and (size or kind is FeatureKind.BYTES) else b""
    size += len(head)
    feature = bytes([kind << 3 | 2]) + varint(size)
    size += len(feature)
    entry = _FIRST + varint(len(key)) + key + _SECOND + varint(size) + feature + head
    size += len(entry) - len(feature) - len(head)
    return _FIRST + varint(size) + entry


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
                heads, _ = by_length(np.diff(offsets_of(values)), lambda size: _FIRST + varint(size))
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
