"""TFRecord files that are damaged: their records are read, or refused with the file and the position in it."""

from __future__ import annotations

import gzip
import io
import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.laws.random_data import damaged, fuzzed, little_memory
from tfos_lab.data.tfrecords.crc32c import masked_crcs
from tfos_lab.data.tfrecords.decode import decode
from tfos_lab.data.tfrecords.encode import encode
from tfos_lab.data.tfrecords.framing import frame, frame_header, read_frames
from tfos_lab.errors import RecordError

PATH = "/data/part-0.tfrecord"
SCHEMA = pa.schema(
    {"id": pa.int64(), "weight": pa.float32(), "name": pa.string(), "many": pa.list_(pa.int64()), "raw": pa.binary()}
)
BATCH = pa.RecordBatch.from_pydict(
    {
        "id": [1, -2, 1 << 60, None],
        "weight": [0.5, None, -1.0, 2.0],
        "name": ["a", "ß", None, ""],
        "many": [[1, 2, 300], [], None, [-1]],
        "raw": [b"\x00\xff", b"", None, b"x" * 300],
    },
    schema=SCHEMA,
)
RECORDS = encode(BATCH)
WHOLE = bytes(frame(RECORDS))


def framed(*records):
    """Return a file of these records, whose frames are as they should be."""
    crcs = [int(masked_crcs(record, np.array([0]), np.array([len(record)]))[0]) for record in records]
    parts = zip(records, crcs, strict=True)
    return b"".join(frame_header(len(record)) + record + crc.to_bytes(4, "little") for record, crc in parts)


@fuzzed(150)
@given(damaged(st.just(WHOLE)))
@example(WHOLE[:-1])
@example(frame_header(1 << 40) + b"short")
@example(frame_header((1 << 64) - 1) + b"short")
def test_a_damaged_file_gives_its_records_or_names_the_position(data):
    assert_read_or_refused(io.BytesIO(data))


@fuzzed(60)
@given(damaged(st.just(gzip.compress(WHOLE))))
def test_a_damaged_compressed_file_gives_its_records_or_names_the_position(data):
    assert_read_or_refused(gzip.GzipFile(fileobj=io.BytesIO(data)))


@pytest.fixture(scope="module")
def tensorflow():
    """TensorFlow, imported before memory is measured: records of an unusual encoding are left to it."""
    return pytest.importorskip("tensorflow")


@pytest.mark.tensorflow
@fuzzed(150)
@given(st.lists(damaged(st.sampled_from(RECORDS.to_pylist())) | st.binary(max_size=30), max_size=3))
def test_records_that_are_no_examples_are_refused_by_their_position(tensorflow, records):
    assert_read_or_refused(io.BytesIO(framed(*records)))


def assert_read_or_refused(stream):
    with little_memory(32 << 20):  # files are read by 8 MiB, of which readers of compressed ones have several
        refusal = refusal_of(stream)
    assert refusal == "" or re.search(rf"{PATH}: the record at byte \d+ ", refusal)


def refusal_of(stream):
    try:
        for frames in read_frames(stream, PATH):
            assert decode(frames, SCHEMA).num_rows == len(frames)
    except RecordError as error:
        return str(error)
    return ""
