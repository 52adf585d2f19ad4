"""Reading pieces of files: the rows asked for, in the columns asked for, and one sentence where that fails."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from tests.support.data_files import rows, write_parquet, write_records
from tfos_lab.engine.feed.files.shares import FoundFile, deal_rows
from tfos_lab.engine.feed.files.spark_schema import spark_fields
from tfos_lab.errors import FeedError, RecordError
from tfos_lab.messages import DataFile, FilesAsked
from tfos_lab.node.feed.files.count import count_records
from tfos_lab.node.feed.files.opened import open_stream
from tfos_lab.node.feed.files.read import find_shapes, read_piece
from tfos_lab.node.feed.files.search import FileSearch

SCHEMA = json.dumps({"type": "struct", "fields": spark_fields(rows(0, 1).schema)})


def data_file(path):
    return DataFile("/", str(path), Path(path).stat().st_size)


def searched(file, *, count=True):
    """Return what an agent finds out about a file."""
    told, is_done = [], threading.Event()

    def tell(message):
        told.append(message)
        if message.done:
            is_done.set()

    FileSearch(FilesAsked(0, [file if isinstance(file, DataFile) else data_file(file)], [0], count), 1, tell)
    assert is_done.wait(60)
    blocks = {number: blocks for message in told for number, blocks in message.blocks.items()}
    return msgspec.structs.replace(told[-1], blocks=blocks)


def found(path):
    if str(path).endswith(".parquet"):
        return FoundFile(data_file(path), [(0, 4), (1, 4), (2, 2)])
    return FoundFile(data_file(path), searched(path).blocks[0])


def ids(format_, part, batch_rows=3):
    pieces = [read_piece(format_, part, piece, SCHEMA, batch_rows) for piece in part.pieces]
    return [value for batches in pieces for batch in batches for value in batch.column("id").to_pylist()]


@pytest.fixture(params=["a.parquet", "a.tfrecord", "a.tfrecord.gz"])
def path(request, tmp_path):
    write = write_parquet if request.param.endswith("parquet") else write_records
    return Path(write(tmp_path / request.param, rows(0, 10)))


def format_of(path):
    return "parquet" if path.suffix == ".parquet" else "tfrecord"


@pytest.mark.parametrize("nodes", [1, 3, 12])
def test_nodes_read_all_rows_between_them(path, nodes):
    read = [[ids(format_of(path), part) for part in parts] for parts in deal_rows([found(path)], nodes)]
    assert [row for parts in read for part in parts for row in part] == list(range(10))


def test_reading_begins_within_a_file_of_records(tmp_path, monkeypatch):
    monkeypatch.setattr("tfos_lab.node.feed.files.count._BLOCK_BYTES", 200)
    monkeypatch.setattr("tfos_lab.node.feed.files.count._CHUNK_BYTES", 100)
    file = found(write_records(tmp_path / "a.tfrecord", rows(0, 20)))
    assert len(file.blocks) > 3
    assert sum(rows for _, rows in file.blocks) == 20
    read = [ids("tfrecord", part) for parts in deal_rows([file], 3) for part in parts]
    assert read == [list(range(7)), list(range(7, 14)), list(range(14, 20))]


def test_array_columns_have_the_shape_of_the_first_row(path):
    (parts,) = deal_rows([found(path)], 1)
    assert find_shapes(format_of(path), parts, SCHEMA)["x"] == [3]
    assert find_shapes(format_of(path), [], SCHEMA) == {}


def test_folders_and_fields_of_structs_are_columns(tmp_path):
    batch = pa.RecordBatch.from_pydict({"person": pa.array([{"age": 3, "name": "A"}, {"age": 4, "name": "B"}])})
    file = FoundFile(data_file(write_parquet(tmp_path / "a.parquet", batch)), [(0, 2)], {"year": "2024"})
    ((part,),) = deal_rows([file], 1)
    fields = [
        {"name": "person.age", "type": "long", "path": ["person", "age"]},
        {"name": "year", "type": "integer"},
    ]
    (read,) = read_piece("parquet", part, (0, 0, 2), json.dumps({"fields": fields}), 8)
    assert read.to_pydict() == {"person.age": [3, 4], "year": [2024, 2024]}
    (read,) = read_piece("parquet", part, (0, 0, 2), json.dumps({"fields": fields[1:]}), 8)
    assert read.to_pydict() == {"year": [2024, 2024]}


def test_a_file_that_has_vanished_is_told_with_the_host(path):
    ((part,),) = deal_rows([found(path)], 1)
    path.unlink()
    with pytest.raises(FeedError, match=rf"{path}: the driver saw this file, and {os.uname().nodename} does not find"):
        ids(format_of(path), part)
    told = searched(part.file, count=False)
    assert "does not find it" in told.problem
    assert told.host == os.uname().nodename


def test_a_file_that_has_been_cut_off_or_written_again_is_told(path):
    ((part,),) = deal_rows([found(path)], 1)
    os.truncate(path, path.stat().st_size - 7)
    with pytest.raises((FeedError, RecordError), match=str(path)):
        ids(format_of(path), part)
    assert "it was cut off or written again" in searched(part.file, count=False).problem


def test_records_that_are_damaged_or_cut_off_are_told_when_they_are_counted(tmp_path):
    path = Path(write_records(tmp_path / "a.tfrecord", rows(0, 5)))
    os.truncate(path, path.stat().st_size - 7)
    assert f"{path}: the record at byte" in searched(path).problem
    assert "it was cut off" in searched(path).problem
    path.write_bytes(b"\xff" * 30)
    assert "the file is damaged" in searched(path).problem
    packed = Path(write_records(tmp_path / "b.tfrecord.gz", rows(0, 5)))
    os.truncate(packed, packed.stat().st_size - 9)
    assert "it was cut off" in searched(packed).problem


def test_another_column_or_type_is_told(tmp_path):
    for column, reason in (({"id": ["no number"]}, "its column 'id' is string"), ({"y": [1]}, "'id'")):
        batch = pa.RecordBatch.from_pydict(column)
        path = write_parquet(tmp_path / "a.parquet", batch)
        ((part,),) = deal_rows([FoundFile(data_file(path), [(0, 1)])], 1)
        with pytest.raises(FeedError, match=f"{path}: .*{reason}"):
            list(read_piece("parquet", part, (0, 0, 1), '{"fields": [{"name": "id", "type": "long"}]}', 8))


def test_a_record_larger_than_what_is_read_at_once_is_counted(tmp_path, monkeypatch):
    monkeypatch.setattr("tfos_lab.node.feed.files.count._CHUNK_BYTES", 16)
    path = write_records(tmp_path / "a.tfrecord", rows(0, 5))
    with open_stream(data_file(path)) as stream:
        assert count_records(stream, path) == [(0, 5)]
