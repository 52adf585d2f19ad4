"""A node's rows as files (``ctx.rows_as_files``): every row once, in every format, with its types."""

import datetime as dt
import decimal
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.node.feeding import FedNode, in_thread
from tests.support.eventually import PATIENCE_S
from tfos_lab.core import messages as m
from tfos_lab.errors import ConfigError, FeedError

READ = {
    "parquet": parquet.read_table,
    "arrow": lambda path: pa.ipc.open_file(path).read_all(),
    "json": lambda path: pa.Table.from_pylist([json.loads(line) for line in Path(path).read_text().splitlines()]),
}


FORMATS = pytest.mark.parametrize("file_format", list(READ))


@pytest.fixture
def node(tmp_path):
    return FedNode(tmp_path)


def numbers_in(paths, file_format):
    return [number for path in paths for number in READ[file_format](path).to_pydict().get("x", [])]


@FORMATS
def test_files_have_this_nodes_rows_and_its_part_of_the_leftovers(node, tmp_path, file_format):
    node.open_feed(epochs=3).segment([1, 2], [3], shared=[100, 101], own=1)
    node.segment([4, 5], shared=[102], own=0).complete(7)
    paths = node.ctx.rows_as_files(file_format)
    assert paths == [f"{tmp_path}/data/{file_format}/feed-0/part-00000.{file_format}"]
    assert sorted(numbers_in(paths, file_format)) == [1, 2, 3, 4, 5, 101, 102]
    assert node.sent_of(m.RowsWanted)[-1].objects is False
    assert node.sent_of(m.RowsTaken)[-1].feeds == {0: (3, 21)}
    assert [message.path for message in node.sent_of(m.SegmentRead)] == [str(tmp_path / f"{i}.arrow") for i in (0, 1)]


def test_each_call_is_for_the_next_feed_and_then_for_the_last_one_again(node):
    node.open_feed().segment([1]).complete(1)
    node.open_feed(1).segment([2, 3], feed=1).complete(2, feed=1).end()
    first, second, again = (node.ctx.rows_as_files("arrow") for _ in range(3))
    assert (numbers_in(first, "arrow"), numbers_in(second, "arrow")) == ([1], [2, 3])
    assert again == second


@FORMATS
def test_a_node_without_rows_has_one_file_without_rows(node, file_format):
    (path,) = node.open_feed().complete(0).ctx.rows_as_files(file_format)
    if file_format == "json":
        assert Path(path).read_bytes() == b""
    else:
        assert READ[file_format](path).schema == pa.schema({"x": pa.int64()})
        assert READ[file_format](path).num_rows == 0


def test_a_failed_feed_a_stream_and_no_feed_at_all_are_told(node, tmp_path):
    with pytest.raises(FeedError, match="this cluster is fed no rows"):
        FedNode(tmp_path).end().ctx.rows_as_files()
    with pytest.raises(FeedError, match="rows of a stream or of an inference have no end"):
        FedNode(tmp_path).open_feed(stream=True).ctx.rows_as_files()
    node.open_feed()
    thread, results = in_thread(node.ctx.rows_as_files)
    node.reader.handle(m.FeedAborted(feed=0, reason="Spark has failed"))
    node.end()
    thread.join(PATIENCE_S)
    assert str(results[0]) == "Spark has failed"


def test_rows_that_had_to_make_room_are_told(node, tmp_path):
    node.open_feed().segment([1, 2]).segment([3]).complete(3).end()
    (tmp_path / "1.arrow").unlink()
    with pytest.raises(FeedError, match="the rows cannot be read again, as the node's spool needed the room"):
        node.ctx.rows_as_files()


def test_a_disk_without_room_is_told(node, tmp_path):
    (tmp_path / "data").write_text("")
    node.open_feed().segment([1]).complete(1)
    with pytest.raises(FeedError, match=r"the rows cannot be written to files in .*data.*: \[Errno"):
        node.ctx.rows_as_files("json")


@pytest.mark.parametrize("file_format", ["csv", "PARQUET", None, 3, ["json"]])
def test_other_formats_are_refused(node, file_format):
    with pytest.raises(ConfigError, match=r"format=.*: use 'parquet', 'json' or 'arrow'"):
        node.ctx.rows_as_files(file_format)


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
        "span": pa.array([dt.timedelta(days=1, hours=2), None], pa.duration("us")),
        "vector": pa.array([[1.0, float("inf")], []], pa.list_(pa.float64())),
        "matrix": pa.array([[[1], [2, 3]], None], pa.list_(pa.list_(pa.int64()))),
    }
)


def typed_files(node, file_format):
    """Feed the table, and return its one file."""
    (batch,) = TYPED.to_batches()
    (path,) = node.feed_table(batch, shapes={}).complete(2).ctx.rows_as_files(file_format)
    return path


@pytest.mark.parametrize("file_format", ["parquet", "arrow"])
def test_types_and_nulls_are_kept(node, file_format):
    back = READ[file_format](typed_files(node, file_format))
    assert back.schema.types == TYPED.schema.types
    assert back.drop(["float"]).equals(TYPED.drop(["float"]))
    assert np.isnan(back["float"][1].as_py())


def test_json_is_as_spark_writes_it(node):
    path = typed_files(node, "json")
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
        "span": "P1DT7200S",
        "vector": ["1.0", "Infinity"],
        "matrix": [[1], [2, 3]],
    }
    nulls = dict.fromkeys(TYPED.column_names) | {"float": "NaN", "vector": []}
    assert json.loads(second) == nulls
    assert len(pd.read_json(path, lines=True)) == 2


def test_many_rows_are_cut_into_row_groups_and_files(node):
    count = 192  # of a megabyte each
    rows = pa.RecordBatch.from_pydict({"x": [bytes([number]) * (1 << 20) for number in range(count)]})
    node.feed_table(rows, shapes={}).complete(count)
    paths = node.ctx.rows_as_files()
    files = [parquet.ParquetFile(path) for path in paths]
    assert [file.num_row_groups > 1 for file in files] == [True, True]
    assert sum(file.metadata.num_rows for file in files) == count
