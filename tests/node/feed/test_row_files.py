"""A node's rows as files: every row once, in every format, with the types that they were fed with."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.node.feed.test_reader import Node, in_thread
from tfos_lab import messages as m
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.feed import row_files
from tfos_lab.node.feed.row_files import check_format, write_files

READ = {
    "parquet": parquet.read_table,
    "arrow": lambda path: pa.ipc.open_file(path).read_all(),
    "json": lambda path: pa.Table.from_pylist([json.loads(line) for line in Path(path).read_text().splitlines()]),
}
FORMATS = pytest.mark.parametrize("file_format", list(READ))


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def numbers_in(paths, file_format):
    return [number for path in paths for number in READ[file_format](path).to_pydict().get("x", [])]


@FORMATS
def test_files_have_this_nodes_rows_and_its_part_of_the_leftovers(node, tmp_path, file_format):
    node.open_feed(epochs=3).segment([1, 2, 3], batches=2, shared=[100, 101], partition=0)
    node.segment([4, 5], shared=[102], partition=1).complete(7, leftovers=(1, 3))
    paths = node.reader.files(tmp_path / "files", file_format)
    assert paths == [f"{tmp_path}/files/feed-0/part-00000.{file_format}"]
    assert sorted(numbers_in(paths, file_format)) == [1, 2, 3, 4, 5, 101, 102]
    assert node.sent_of(m.RowsWanted)[-1].objects is False
    assert node.sent_of(m.RowsTaken)[-1].feeds == {0: (3, 21)}
    assert [message.path for message in node.sent_of(m.SegmentRead)] == [str(tmp_path / f"{i}.arrow") for i in (0, 1)]


def test_each_call_is_for_the_next_feed_and_then_for_the_last_one_again(node, tmp_path):
    node.open_feed().segment([1]).complete(1)
    node.open_feed(1).segment([2, 3], feed=1).complete(2, feed=1).end()
    first, second, again = (node.reader.files(tmp_path / "files", "arrow") for _ in range(3))
    assert (numbers_in(first, "arrow"), numbers_in(second, "arrow")) == ([1], [2, 3])
    assert again == second


@FORMATS
def test_a_node_without_rows_has_one_file_without_rows(node, tmp_path, file_format):
    (path,) = node.open_feed().complete(0).reader.files(tmp_path / "files", file_format)
    if file_format == "json":
        assert Path(path).read_bytes() == b""
    else:
        assert READ[file_format](path).schema == pa.schema({"x": pa.int64()})
        assert READ[file_format](path).num_rows == 0


def test_files_wait_for_all_rows(node, tmp_path):
    node.open_feed().segment([1, 2])
    thread, results = in_thread(lambda: node.reader.files(tmp_path / "files", "parquet"))
    node.segment([3], partition=1).complete(3)
    thread.join(20)
    assert numbers_in(results[0], "parquet") == [1, 2, 3]


def test_a_failed_feed_a_stream_and_no_feed_at_all_are_told(node, tmp_path):
    with pytest.raises(FeedError, match="this cluster is fed no rows"):
        Node(tmp_path).end().reader.files(tmp_path, "json")
    with pytest.raises(FeedError, match="rows of a stream or of an inference have no end"):
        Node(tmp_path).open_feed(stream=True).reader.files(tmp_path, "json")
    node.open_feed()
    thread, results = in_thread(lambda: node.reader.files(tmp_path, "json"))
    node.reader.handle(m.FeedAborted(feed=0, reason="Spark has failed"))
    node.end()
    thread.join(20)
    assert str(results[0]) == "Spark has failed"


def test_rows_that_had_to_make_room_are_told(node, tmp_path):
    node.open_feed().segment([1, 2]).segment([3]).complete(3).end()
    (tmp_path / "1.arrow").unlink()
    with pytest.raises(FeedError, match="the rows cannot be read again, as the node's spool needed the room"):
        node.reader.files(tmp_path / "files", "json")


def test_a_disk_without_room_is_told(node, tmp_path):
    (tmp_path / "files").write_text("")
    node.open_feed().segment([1]).complete(1)
    with pytest.raises(FeedError, match=r"the rows cannot be written to files in .*files: \[Errno"):
        node.reader.files(tmp_path / "files", "json")


@pytest.mark.parametrize("file_format", ["csv", "PARQUET", None, 3, ["json"]])
def test_other_formats_are_refused(file_format):
    with pytest.raises(ConfigError, match=r"format=.*: use 'parquet', 'json' or 'arrow'"):
        check_format(file_format)


NOON = dt.datetime(2026, 11, 22, 12, 0, 0, 5)  # noqa: DTZ001 - one column has no zone
TYPED = pa.table(
    {
        "flag": pa.array([True, None]),
        "byte": pa.array([1, None], pa.int8()),
        "float": pa.array([0.5, float("nan")], pa.float32()),
        "money": pa.array([decimal.Decimal("12345678901234567.89"), None], pa.decimal128(20, 2)),
        "text": ["ä", None],
        "bytes": pa.array([b"\x00\xff", None]),
        "day": pa.array([NOON.date(), None]),
        "zoned": pa.array([NOON, None], pa.timestamp("us", "UTC")),
        "wall": pa.array([NOON, None], pa.timestamp("us")),
        "time": pa.array([dt.time(13, 30), None], pa.time64("us")),
        "span": pa.array([dt.timedelta(days=1, hours=2), None], pa.duration("us")),
        "vector": pa.array([[1.0, float("inf")], []], pa.list_(pa.float64())),
        "matrix": pa.array([[[1], [2, 3]], None], pa.list_(pa.list_(pa.int64()))),
    }
)


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_types_and_nulls_are_kept(tmp_path, file_format):
    (path,) = write_files(TYPED.schema, TYPED.to_batches(), tmp_path, file_format)
    back = READ[file_format](path)
    assert back.schema.types == TYPED.schema.types
    assert back.drop(["float"]).equals(TYPED.drop(["float"]))
    assert np.isnan(back["float"][1].as_py())


def test_json_is_as_spark_writes_it(tmp_path):
    (path,) = write_files(TYPED.schema, TYPED.to_batches(), tmp_path, "json")
    first, second = Path(path).read_text().splitlines()
    assert json.loads(first, parse_float=str) == {
        "flag": True,
        "byte": 1,
        "float": "0.5",
        "money": "12345678901234567.89",
        "text": "ä",
        "bytes": "AP8=",
        "day": "2026-11-22",
        "zoned": "2026-11-22T12:00:00.000005Z",
        "wall": "2026-11-22T12:00:00.000005",
        "time": "13:30:00",
        "span": "P1DT7200S",
        "vector": ["1.0", "Infinity"],
        "matrix": [[1], [2, 3]],
    }
    nulls = dict.fromkeys(TYPED.column_names) | {"float": "NaN", "vector": []}
    assert json.loads(second) == nulls
    assert len(pd.read_json(path, lines=True)) == 2


def test_small_batches_are_joined_and_large_ones_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(row_files, "_GROUP_BYTES", 800)
    monkeypatch.setattr(row_files, "_FILE_BYTES", 2400)
    many = [pa.RecordBatch.from_pydict({"x": list(range(i, i + 10))}) for i in range(0, 400, 10)]
    large = pa.RecordBatch.from_pydict({"x": list(range(400, 1000))})
    paths = write_files(large.schema, [*many, large], tmp_path, "parquet")
    files = [parquet.ParquetFile(path) for path in paths]
    groups = [file.metadata.row_group(i).num_rows for file in files for i in range(file.num_row_groups)]
    assert groups == [100] * 10
    assert [file.num_row_groups for file in files] == [3, 3, 3, 1]
    assert numbers_in(paths, "parquet") == list(range(1000))
