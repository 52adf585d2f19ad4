"""The spool's files: rows survive the round trip, and numbers are aligned so that TensorFlow does not copy them."""

from __future__ import annotations

import gc
import resource
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfos_lab.data.schema import column_specs
from tfos_lab.node.feed.segment_writer import SegmentWriter
from tfos_lab.node.feed.segments import Segment, read_in_order, read_shuffled


def images(rows, first=0):
    pixels = pa.array(np.arange(first, first + rows * 12, dtype=np.int32))
    return pa.FixedSizeListArray.from_arrays(pixels, 12).cast(pa.list_(pa.int32()))


def write(path, batches):
    with SegmentWriter(path) as segment:
        for batch in batches:
            segment.write(batch)


def read(path):
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_file(file).read_all()


@pytest.mark.parametrize("pixels", [images, lambda rows: images(rows).cast(pa.large_list(pa.int32()))])
def test_all_columns_of_numbers_begin_where_tensorflow_wants_them(tmp_path, pixels):
    batches = [
        pa.RecordBatch.from_pydict(
            {"label": np.arange(rows, dtype=np.int8), "x": pixels(rows), "weight": np.ones(rows, np.float64)}
        )
        for rows in (1000, 129, 64)
    ]
    write(tmp_path / "rows.arrow", batches)
    specs = column_specs(read(tmp_path / "rows.arrow").schema)
    parts = list(read_in_order(str(tmp_path / "rows.arrow"), specs))
    assert [len(part["x"]) for part in parts] == [960, 40, 128, 1, 64]
    assert {array.ctypes.data % 64 for part in parts if len(part["x"]) % 64 == 0 for array in part.values()} == {0}
    assert np.concatenate([part["x"] for part in parts]).shape == (1193, 12)


COLUMNS = {
    "flag": st.booleans(),
    "text": st.text(max_size=3),
    "number": st.floats(allow_nan=False),
    "two by three": st.just([[1, 2, 3], [4, 5, 6]]),
    "nothing": st.just([]),
    "words": st.just(["a", "bc"]),
}


@settings(deadline=None)
@given(
    st.lists(st.lists(st.fixed_dictionaries(COLUMNS), max_size=150), min_size=1, max_size=3),
    st.integers(0, 3),
)
def test_rows_are_read_as_they_were_written(tmp_path_factory, batches, skipped):
    path = tmp_path_factory.mktemp("segment") / "rows.arrow"
    schema = pa.RecordBatch.from_pylist(
        [{"flag": True, "text": "", "number": 0.5, "two by three": [[1]], "nothing": [1], "words": [""]}]
    ).schema
    parts = [pa.RecordBatch.from_pylist(rows, schema=schema).slice(skipped) for rows in batches]
    write(path, [part for part in parts if part.num_rows])
    if any(part.num_rows for part in parts):
        assert read(path).to_pylist() == pa.Table.from_batches(parts).to_pylist()


@pytest.mark.tensorflow
def test_an_op_that_writes_to_its_input_harms_neither_the_process_nor_the_file(tmp_path):
    import tensorflow as tf

    from tfos_lab.node.feed.generator_dataset import generator_dataset

    path = tmp_path / "rows.arrow"
    write(path, [pa.RecordBatch.from_pydict({"x": images(64)})])
    (part,) = read_in_order(str(path), column_specs(read(path).schema))
    (tensor,) = generator_dataset(lambda: iter([part["x"]]), tf.TensorSpec((None, 12), tf.int32))
    tf.raw_ops.InplaceUpdate(x=tensor, i=[0], v=tf.fill((1, 12), -1))
    assert tensor[0].numpy().tolist() == part["x"][0].tolist() == [-1] * 12  # they are the same memory
    assert read(path)["x"][0].as_py() == list(range(12))


def test_a_large_row_is_not_held_in_memory_many_times_over(tmp_path):
    size = 16 << 20
    rows = pa.RecordBatch.from_pydict({"x": [b"x" * size]})
    default = pa.default_memory_pool()
    counted = pa.proxy_memory_pool(default)
    pa.set_memory_pool(counted)
    try:
        write(tmp_path / "rows.arrow", [rows, rows])
    finally:
        pa.set_memory_pool(default)
    assert counted.max_memory() < 3 * size
    assert read(tmp_path / "rows.arrow").num_rows == 2


def numbers(*limits):
    return pa.RecordBatch.from_pydict({"x": pa.array(range(*limits), pa.int64())})


def test_ten_thousand_partitions_are_shuffled_with_few_descriptors(tmp_path):
    """A process may have 1,024 files open, as a rule."""
    count, specs = 300, column_specs(numbers(0).schema)
    segments = []
    for number in range(count):
        path = tmp_path / f"{number}.arrow"
        write(path, [numbers(2 * number, 2 * number + 2)])
        segments.append(Segment(str(path), 2))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors + 50, hard))
    try:
        batches = list(read_shuffled(segments, (0, 0), specs, 100, np.random.default_rng(0)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert sorted(row for batch in batches for row in batch["x"].tolist()) == list(range(2 * count))


def test_memory_is_given_back_with_the_last_row_that_is_mapped(tmp_path):
    path = tmp_path / "rows.arrow"
    write(path, [numbers(0, 3)])
    (batch,) = read_in_order(str(path), column_specs(read(path).schema))
    rows = batch["x"]
    assert str(path) in Path("/proc/self/maps").read_text()
    del batch
    assert rows.tolist() == [0, 1, 2]
    del rows
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text()
