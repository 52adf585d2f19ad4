"""What names of files stand for, and what of it is refused before anything is read."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support.data_files import rows, write_parquet, write_records
from tfos_lab.data.tfrecords.paths import find_files
from tfos_lab.engine.feed.files.names import names_files
from tfos_lab.engine.feed.files.source import find_rows
from tfos_lab.errors import ConfigError, NoSession


def found(data, columns=None):
    return find_rows(data, columns, None, lambda: None)


def types_of(source):
    return {field["name"]: field["type"] for field in json.loads(source.schema)["fields"]}


def refusal(data, columns=None):
    with pytest.raises(ConfigError) as refused:
        found(data, columns)
    return str(refused.value)


def test_names_of_files_are_told_from_arrays_and_dataframes():
    assert all(map(names_files, ("a", Path("a"), ["a", Path("b")], ("a",))))
    assert not any(map(names_files, ([], [1], (), {"a": 1}, None, ("a", 1))))


def test_parquet_files_have_their_rows_and_columns_in_their_footers(tmp_path):
    for number in range(2):
        write_parquet(tmp_path / f"{number}.parquet", rows(number * 6, number * 6 + 6))
    (tmp_path / "_SUCCESS").touch()
    for data in (str(tmp_path), str(tmp_path / "*.parquet"), [str(tmp_path / "0.parquet"), tmp_path / "1.parquet"]):
        source = found(data)
        assert (source.format, [file.blocks for file in source.files]) == ("parquet", [[(0, 4), (1, 2)]] * 2)
        assert types_of(source)["x"] == {"type": "array", "elementType": "float", "containsNull": True}
    assert list(types_of(found(str(tmp_path), ["name", "id"]))) == ["name", "id"]


def test_columns_have_the_types_that_spark_would_read(tmp_path):
    batch = pa.RecordBatch.from_pydict(
        {
            "u8": pa.array([1], pa.uint8()),
            "u64": pa.array([1], pa.uint64()),
            "time": pa.array([0], pa.timestamp("ns", "UTC")),
            "wall": pa.array([0], pa.timestamp("ms")),
            "text": pa.array(["a"]).dictionary_encode(),
            "price": pa.array([Decimal("1.00")], pa.decimal128(10, 2)),
            "person": pa.array([{"age": 3}]),
        }
    )
    path = write_parquet(tmp_path / "a.parquet", batch)
    assert types_of(found(path, [name for name in batch.schema.names if name != "person"])) == {
        "u8": "short",
        "u64": "decimal(20,0)",
        "time": "timestamp",
        "wall": "timestamp_ntz",
        "text": "string",
        "price": "decimal(10,2)",
    }
    assert types_of(found(path, ["person.age"])) == {"person.age": "long"}
    assert "columns=['person.age', ...]" in refusal(path, ["person"])


def test_folders_of_partitions_are_columns_of_the_types_that_spark_infers(tmp_path):
    for year, day, city, share in ((2023, "2023-01-02", "Rome", "0.5"), (2024, "2024-02-29", "7", "1")):
        folder = tmp_path / f"year={year}" / f"day={day}" / f"city={city}" / f"share={share}"
        write_parquet(folder / "a.parquet", rows(0, 2))
    types = types_of(found(str(tmp_path)))
    assert list(types)[-4:] == ["year", "day", "city", "share"]
    assert [types[name] for name in ("year", "day", "city", "share")] == ["integer", "date", "string", "double"]


def test_tfrecords_are_inferred_from_their_first_records_and_counted_later(tmp_path):
    write_records(tmp_path / "a.tfrecord", rows(0, 3))
    write_records(tmp_path / "b.tfrecord.gz", rows(3, 5))
    write_records(tmp_path / "part-0", rows(5, 6))
    write_records(tmp_path / "empty.tfrecord", rows(0, 0))
    source = found(str(tmp_path))
    assert (source.format, source.is_counted) == ("tfrecord", False)
    assert types_of(source) == {
        "id": "long",
        "name": "binary",
        "x": {"type": "array", "elementType": "float", "containsNull": True},
    }


def test_a_star_stands_for_no_slash(tmp_path):
    write_parquet(tmp_path / "a.parquet", rows(0, 1))
    write_parquet(tmp_path / "old" / "b.parquet", rows(0, 1))

    def names(pattern):
        return [Path(file.path).name for file in find_files(f"{tmp_path}/{pattern}")[1]]

    assert names("*.parquet") == ["a.parquet"]
    assert names("**/*.parquet") == ["a.parquet", "b.parquet"]
    assert names("ol?") == ["b.parquet"]


def test_what_is_not_there_is_refused(tmp_path):
    assert refusal(f"{tmp_path}/none") == f"data='{tmp_path}/none': there is no such file or folder"
    assert refusal(f"{tmp_path}/*.parquet") == f"data='{tmp_path}/*.parquet': no file has such a name"
    assert refusal(str(tmp_path)) == f"data='{tmp_path}': there are no files in this folder"
    with pytest.raises(NoSession, match=r"data='db\.none': there is no such file, and no SparkSession"):
        found("db.none")


def test_files_that_do_not_fit_together_are_refused(tmp_path):
    write_parquet(tmp_path / "a.parquet", rows(0, 2))
    write_parquet(tmp_path / "b.parquet", pa.RecordBatch.from_pydict({"id": ["0"], "x": [[1.0]], "name": [b""]}))
    assert f"column 'id' is int64 in {tmp_path}/a.parquet and string in {tmp_path}/b.parquet" in refusal(str(tmp_path))
    write_parquet(tmp_path / "b.parquet", pa.RecordBatch.from_pydict({"id": [0]}))
    assert f"column 'x' is in {tmp_path}/a.parquet and not in {tmp_path}/b.parquet" in refusal(str(tmp_path))
    write_records(tmp_path / "b.tfrecord", rows(0, 1))
    (tmp_path / "b.parquet").unlink()
    assert f"there are both Parquet ({tmp_path}/a.parquet) and TFRecords" in refusal(str(tmp_path))
    (tmp_path / "b.tfrecord").rename(tmp_path / "sub=1.parquet")


def test_other_formats_and_damaged_files_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("id\n1\n")
    assert f"{tmp_path}/a.csv is neither Parquet nor TFRecords" in refusal(str(tmp_path / "a.csv"))
    (tmp_path / "a.parquet").write_text("no Parquet file, only its name")
    assert f"{tmp_path}/a.parquet" in refusal(str(tmp_path / "a.parquet"))
    (tmp_path / "a.tfrecord").write_bytes(b"no records")
    assert "cannot be read" in refusal(str(tmp_path / "a.tfrecord"))
    write_records(tmp_path / "b.tfrecord", rows(0, 0))
    assert "the files hold no records with values" in refusal(str(tmp_path / "b.tfrecord"))
    write_parquet(tmp_path / "c.parquet", rows(0, 1))
    assert "did you mean 'name'" in refusal(str(tmp_path / "c.parquet"), ["nam"])
