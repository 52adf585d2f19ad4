"""TFRecord files: they are TensorFlow's, a round trip changes nothing, and damage is told with file and byte.

`tests/fuzz/test_tfrecords.py` has the law of damage: any damaged file gives its records, or names the position.
"""

from __future__ import annotations

import datetime as dt
import gzip
import io
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfos_lab.data.tfrecords.decode import decode
from tfos_lab.data.tfrecords.encode import encode
from tfos_lab.data.tfrecords.framing import frame, read_frames
from tfos_lab.errors import RecordError

LEAVES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.binary(): st.binary(max_size=200),
    pa.string(): st.text(max_size=40),
}


@st.composite
def tables(draw):
    """Draw batches of a few columns, scalars and arrays, with nulls."""
    rows = draw(st.integers(1, 8))
    columns = {}
    for name in draw(st.lists(st.text("abé", max_size=3), max_size=4, unique=True)):
        leaf = draw(st.sampled_from(list(LEAVES)))
        values = LEAVES[leaf]
        is_list = draw(st.booleans())
        values = st.none() | (st.lists(values, max_size=5) if is_list else values)
        column = draw(st.lists(values, min_size=rows, max_size=rows))
        columns[name] = pa.array(column, pa.list_(leaf) if is_list else leaf)
    columns.setdefault("always", pa.array(range(rows), pa.int64()))
    return pa.RecordBatch.from_pydict(columns)


def as_example(row, schema):
    """Build the Example value by value, as TensorFlowOnSpark does."""
    import tensorflow as tf

    lists = {"int64": ("int64_list", tf.train.Int64List), "float": ("float_list", tf.train.FloatList)}
    example = tf.train.Example()
    for field in schema:
        value = row[field.name]
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        leaf = field.type.value_type if pa.types.is_list(field.type) else field.type
        where, make = lists.get(str(leaf), ("bytes_list", tf.train.BytesList))
        encoded = [item.encode() if isinstance(item, str) else item for item in values]
        example.features.feature[field.name].CopyFrom(tf.train.Feature(**{where: make(value=encoded)}))
    return example


def framed(*records) -> bytes:
    return frame(pa.array(records, pa.large_binary())).to_pybytes()


def read(data, schema, **options):
    batches = [decode(frames, schema) for frames in read_frames(io.BytesIO(data), "a-file", **options)]
    return pa.Table.from_batches(batches, schema)


def written(batch) -> bytes:
    return frame(encode(batch)).to_pybytes()


# ---- laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.tensorflow
@settings(max_examples=150)
@given(tables(), st.integers(1, 200))
def test_what_we_write_is_what_tensorflow_would_and_reads_back_whatever_the_size_of_chunks(batch, chunk_bytes):
    records = encode(batch).to_pylist()
    examples = [as_example(row, batch.schema) for row in batch.to_pylist()]
    assert [type(example).FromString(record) for example, record in zip(examples, records, strict=True)] == examples
    theirs = framed(*(example.SerializeToString() for example in examples))
    for data in (framed(*records), theirs):
        assert read(data, batch.schema, chunk_bytes=chunk_bytes) == pa.Table.from_batches([batch])


@pytest.mark.tensorflow
@settings(max_examples=50)
@given(st.lists(st.binary(max_size=300), max_size=6))
def test_frames_are_those_of_tensorflow(tmp_path_factory, records):
    import tensorflow as tf

    path = tmp_path_factory.mktemp("frames") / "x"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in records:
            writer.write(record)
    assert framed(*records) == path.read_bytes()


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_many_numbers_of_all_sizes_survive_the_round_trip(kind):
    # More than are decoded at once, and some rows without any.
    random = np.random.default_rng(0)
    bits = random.integers(0, kind.bit_width, 150_000)
    numbers = random.integers(-(2**62), 2**62, len(bits)) * 2 >> (63 - bits)
    borders = [0, *np.sort(random.integers(0, len(numbers), 1000)), len(numbers)]
    lists = pa.ListArray.from_arrays(pa.array(borders, pa.int32()), pa.array(numbers).cast(kind))
    batch = pa.RecordBatch.from_pydict({"x": lists, "first": pa.array(numbers[: len(lists)]).cast(kind)})
    assert read(written(batch), batch.schema) == pa.Table.from_batches([batch])


# ---- what a schema asks for ------------------------------------------------------------------------------------------

EVERY_TYPE = {
    "bool": pa.array([True, None]),
    "tiny": pa.array([-1, 2], pa.int8()),
    "double": pa.array([0.5, -2.0], pa.float64()),
    "decimal": pa.array([Decimal("1.25"), Decimal("2.50")], pa.decimal128(10, 2)),
    "date": pa.array([dt.date(1969, 12, 31), None]),
    "at": pa.array([1_500_000, None], pa.timestamp("us", "UTC")),
    "flags": pa.array([[True, False], []], pa.list_(pa.bool_())),
    "dates": pa.array([[dt.date(2024, 2, 29)], None], pa.list_(pa.date32())),
    "texts": pa.array([["né", ""], None], pa.list_(pa.string())),
}


def test_each_type_is_read_as_the_schema_says_and_slices_as_they_are():
    batch = pa.RecordBatch.from_pydict(EVERY_TYPE)
    assert read(written(batch), batch.schema).to_pydict() == batch.to_pydict()
    batch = pa.RecordBatch.from_pydict({"x": [[1, 2], None, [3], []], "s": ["a", "bc", None, "d"]})
    part = batch.slice(1, 2)
    assert read(written(part), batch.schema).to_pydict() == part.to_pydict()


@pytest.mark.tensorflow
def test_records_that_nobody_writes_so_are_read_too():
    import tensorflow as tf

    unpacked = b"\x0d" + np.float32(1.5).tobytes() + b"\x0d" + np.float32(2.5).tobytes()
    feature = b"\x12" + bytes([len(unpacked)]) + unpacked
    entry = b"\x0a\x01x\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    odd = b"\x0a" + bytes([len(features)]) + features
    plain = tf.train.Example()
    plain.features.feature["x"].float_list.value.append(7)
    data = framed(plain.SerializeToString(), odd, b"")
    assert read(data, pa.schema({"x": pa.list_(pa.float32())})).to_pydict() == {"x": [[7.0], [1.5, 2.5], None]}


def test_columns_that_are_not_asked_for_are_not_read():
    data = written(pa.RecordBatch.from_pydict({"x": [1, 2], "broken": pa.array([b"\xff", b"\xfe"])}))
    assert read(data, pa.schema({"x": pa.int64()})).to_pydict() == {"x": [1, 2]}
    with pytest.raises(RecordError, match=r"'broken' does not become string: .*binary_features=\['broken'\]"):
        read(data, pa.schema({"broken": pa.string()}))


@pytest.mark.parametrize(
    ("values", "asked", "message"),
    [
        ([1.5], pa.int64(), "'x' holds floats, which do not become int64"),
        ([300], pa.int8(), "'x' does not become int8: .*wider type"),
        ([[1, 2]], pa.int64(), "'x' has 2 values where one was expected .*array<int64>"),
    ],
)
def test_a_schema_that_does_not_fit_is_an_error(values, asked, message):
    with pytest.raises(RecordError, match=message):
        read(written(pa.RecordBatch.from_pydict({"x": values})), pa.schema({"x": asked}))
    with pytest.raises(RecordError, match="column 'x' has 1 nulls inside its arrays"):
        encode(pa.RecordBatch.from_pydict({"x": [[1, None]]}))


# ---- damage ----------------------------------------------------------------------------------------------------------

DATA = framed(b"", b"abc", b"\x00" * 500)
SECOND, THIRD = 16, 16 + 19


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (DATA[:-1], rf"a-file: the record at byte {THIRD} .* ends {515} bytes into it: it was cut off"),
        (DATA[: THIRD + 5], rf"at byte {THIRD} .* ends 5 bytes into it"),
        (DATA[:SECOND] + b"\x04" + DATA[SECOND + 1 :], rf"at byte {SECOND} .* length does not fit the length's CRC"),
        (DATA[: SECOND + 13] + b"B" + DATA[SECOND + 14 :], rf"at byte {SECOND} .* bytes do not fit their CRC"),
        (DATA[:-1] + b"!", rf"at byte {THIRD} .* do not fit their CRC"),
    ],
    ids=["cut", "cut-in-header", "length", "data", "footer"],
)
@pytest.mark.parametrize("chunk_bytes", [7, 1 << 20])
def test_a_damaged_file_is_named_with_the_byte(damaged, message, chunk_bytes):
    with pytest.raises(RecordError, match=message):
        list(read_frames(io.BytesIO(damaged), "a-file", chunk_bytes))


def test_a_gzip_file_that_ends_early_is_named():
    stream = gzip.GzipFile(fileobj=io.BytesIO(gzip.compress(DATA)[:-30]))
    with pytest.raises(RecordError, match=r"a-file: the record at byte .* cut off"):
        list(read_frames(stream, "a-file"))


@pytest.mark.tensorflow
def test_a_record_that_is_no_example_is_named_with_the_byte():
    import tensorflow as tf

    sequence = tf.train.SequenceExample(feature_lists={"feature_list": {"x": {}}}).SerializeToString()
    for record in (b"abc", b"\x00" * 50, sequence):
        with pytest.raises(RecordError, match=rf"a-file: the record at byte {SECOND} .* not a tf.train.Example"):
            read(framed(b"", record), pa.schema({"x": pa.int64()}))
