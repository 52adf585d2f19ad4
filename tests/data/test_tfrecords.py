"""TFRecord files, as the tasks of Spark write and read them: TensorFlow's own, whole or not at all.

Tests play Spark: its driver, which begins, commits and aborts jobs, and its tasks, in several attempts.
"""

import datetime as dt
import gzip
import os
import re
import tempfile
from decimal import Decimal
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import example, given
from hypothesis import strategies as st

from tests.laws.random_data import damaged, fuzzed, little_memory
from tests.support import records
from tfos_lab.data.tfrecords.paths import list_files
from tfos_lab.errors import ConfigError, RecordError

pytestmark = pytest.mark.tensorflow("here")


@pytest.fixture(scope="module", autouse=True)
def tf():
    """TensorFlow, imported before memory is measured: records of an unusual encoding are left to it."""
    return pytest.importorskip("tensorflow")


def write_frames(tf, path, *contents):
    """Have TensorFlow write records, of whatever bytes; returns what the file has."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for content in contents:
            writer.write(content)
    return Path(path).read_bytes()


# ---- what is in a file ----------------------------------------------------------------------------------------------

LEAVES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.binary(): st.binary(max_size=200),
    pa.string(): st.text(max_size=40),
}


@st.composite
def tables(draw):
    """Draw a batch of a few columns, scalars and arrays, with nulls."""
    rows = draw(st.integers(1, 8))
    columns = {}
    for name in draw(st.lists(st.text("abé", min_size=1, max_size=3), max_size=4, unique=True)):
        leaf = draw(st.sampled_from(list(LEAVES)))
        values = LEAVES[leaf]
        is_list = draw(st.booleans())
        values = st.none() | (st.lists(values, max_size=5) if is_list else values)
        column = draw(st.lists(values, min_size=rows, max_size=rows))
        columns[name] = pa.array(column, pa.list_(leaf) if is_list else leaf)
    columns.setdefault("always", pa.array(range(rows), pa.int64()))
    return pa.RecordBatch.from_pydict(columns)


def as_example(tf, row, schema):
    """Build the Example value by value, as TensorFlowOnSpark does."""
    lists = {"int64": ("int64_list", tf.train.Int64List), "float": ("float_list", tf.train.FloatList)}
    made = tf.train.Example()
    for field in schema:
        value = row[field.name]
        if value is None:
            continue
        values = value if isinstance(value, list) else [value]
        leaf = field.type.value_type if pa.types.is_list(field.type) else field.type
        where, make = lists.get(str(leaf), ("bytes_list", tf.train.BytesList))
        encoded = [item.encode() if isinstance(item, str) else item for item in values]
        made.features.feature[field.name].CopyFrom(tf.train.Feature(**{where: make(value=encoded)}))
    return made


@fuzzed(60)
@given(tables())
def test_what_we_write_is_what_tensorflow_would_and_reads_back(tf, batch):
    examples = [as_example(tf, row, batch.schema) for row in batch.to_pylist()]
    with tempfile.TemporaryDirectory() as folder:
        (ours,) = records.write(f"{folder}/ours", batch)
        found = [record.numpy() for record in tf.data.TFRecordDataset(str(ours))]
        assert [tf.train.Example.FromString(record) for record in found] == examples
        write_frames(tf, f"{folder}/theirs", *(one.SerializeToString() for one in examples))
        for path in (ours, f"{folder}/theirs"):
            assert records.read(path, batch.schema) == pa.Table.from_batches([batch])


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_many_numbers_of_all_sizes_survive_the_round_trip(tmp_path, kind):
    # More than are decoded at once, and some rows without any.
    random = np.random.default_rng(0)
    bits = random.integers(0, kind.bit_width, 150_000)
    numbers = random.integers(-(2**62), 2**62, len(bits)) * 2 >> (63 - bits)
    borders = [0, *np.sort(random.integers(0, len(numbers), 1000)), len(numbers)]
    lists = pa.ListArray.from_arrays(pa.array(borders, pa.int32()), pa.array(numbers).cast(kind))
    batch = pa.RecordBatch.from_pydict({"x": lists, "first": pa.array(numbers[: len(lists)]).cast(kind)})
    (path,) = records.write(tmp_path, batch)
    assert records.read(path, batch.schema) == pa.Table.from_batches([batch])


def test_records_of_a_large_file_are_whole_wherever_it_is_cut_for_reading(tmp_path):
    random = np.random.default_rng(0)
    batch = pa.RecordBatch.from_pydict({"x": [random.bytes(random.integers(0, 200_000)) for _ in range(300)]})
    (path,) = records.write(tmp_path, batch)
    assert path.stat().st_size > 24 << 20, "it is read in several blocks"
    assert records.read(path, batch.schema).to_pydict() == batch.to_pydict()


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


def test_each_type_is_read_as_the_schema_says_and_slices_as_they_are(tmp_path):
    whole = pa.RecordBatch.from_pydict(EVERY_TYPE)
    numbered = pa.RecordBatch.from_pydict({"x": [[1, 2], None, [3], []], "s": ["a", "bc", None, "d"]})
    for name, batch in {"whole": whole, "part": numbered.slice(1, 2)}.items():
        records.write(tmp_path / name, batch)
        assert records.read(tmp_path / name, batch.schema).to_pydict() == batch.to_pydict()


def test_records_that_nobody_writes_so_are_read_too(tf, tmp_path):
    unpacked = b"\x0d" + np.float32(1.5).tobytes() + b"\x0d" + np.float32(2.5).tobytes()
    feature = b"\x12" + bytes([len(unpacked)]) + unpacked
    entry = b"\x0a\x01x\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    odd = b"\x0a" + bytes([len(features)]) + features
    plain = tf.train.Example()
    plain.features.feature["x"].float_list.value.append(7)
    write_frames(tf, tmp_path / "odd", plain.SerializeToString(), odd, b"")
    schema = pa.schema({"x": pa.list_(pa.float32())})
    assert records.read(tmp_path / "odd", schema).to_pydict() == {"x": [[7.0], [1.5, 2.5], None]}


def test_columns_that_are_not_asked_for_are_not_read(tmp_path):
    records.write(tmp_path, pa.RecordBatch.from_pydict({"x": [1, 2], "broken": pa.array([b"\xff", b"\xfe"])}))
    assert records.read(tmp_path, pa.schema({"x": pa.int64()})).to_pydict() == {"x": [1, 2]}
    with pytest.raises(RecordError, match=r"'broken' does not become string: .*binary_features=\['broken'\]"):
        records.read(tmp_path, pa.schema({"broken": pa.string()}))


@pytest.mark.parametrize(
    ("values", "asked", "message"),
    [
        ([1.5], pa.int64(), r"'x' holds floats, which do not become int64 \(give a schema in which it is float"),
        ([300], pa.int8(), "'x' does not become int8: .*wider type"),
        ([[1, 2]], pa.int64(), "'x' has 2 values where one was expected .*array<int64>"),
    ],
)
def test_a_schema_that_does_not_fit_is_an_error(tmp_path, values, asked, message):
    records.write(tmp_path, pa.RecordBatch.from_pydict({"x": values}))
    with pytest.raises(RecordError, match=message):
        records.read(tmp_path, pa.schema({"x": asked}))
    with pytest.raises(RecordError, match="column 'x' has 1 null inside its arrays"):
        records.write(tmp_path, pa.RecordBatch.from_pydict({"x": [[1, None]]}))


# ---- damage ---------------------------------------------------------------------------------------------------------

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
with tempfile.TemporaryDirectory() as _folder:
    WHOLE = records.write(_folder, BATCH)[0].read_bytes()
# Frames of 1 TB and of 16 EB, whose headers have the checksums that they should have.
TERABYTE = b"\x00\x00\x00\x00\x00\x01\x00\x00"
EXABYTES = b"\xff" * 8


def read_or_refused(data):
    """See that the records of a file are read, or refused with their position; return the refusal."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "part-0")
        path.write_bytes(data)
        with little_memory(32 << 20):  # files are read by 8 MiB, of which readers of compressed ones have several
            try:
                records.read(path, SCHEMA)
                return ""
            except RecordError as error:
                refusal = str(error)
    assert re.search(rf"{path}: the record at byte \d+ ", refusal)
    return refusal


def header(length):
    """Return the header of a frame: TensorFlow's of an empty record, with another length and its checksum."""
    import google_crc32c

    crc = int.from_bytes(google_crc32c.Checksum(length).digest(), "big")
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return length + masked.to_bytes(4, "little")


@fuzzed(150)
@given(damaged(st.just(WHOLE)) | damaged(st.just(gzip.compress(WHOLE))))
@example(WHOLE[:-1])
@example(header(TERABYTE) + b"short")
@example(header(EXABYTES) + b"short")
def test_a_damaged_file_gives_its_records_or_names_the_position(data):
    read_or_refused(data)


@fuzzed(100)
@given(st.lists(damaged(st.just(WHOLE[12:-4])) | st.binary(max_size=30), max_size=3))
def test_records_that_are_no_examples_are_refused_by_their_position(tf, contents):
    with tempfile.TemporaryDirectory() as folder:
        data = write_frames(tf, f"{folder}/x", *contents)
    read_or_refused(data)


SECOND, THIRD = 16, 16 + 18


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], rf"at byte {THIRD} .* ends {515} bytes into it: it was cut off"),
        (lambda data: data[: THIRD + 5], rf"at byte {THIRD} .* ends 5 bytes into it"),
        (
            lambda data: data[:SECOND] + b"\x04" + data[SECOND + 1 :],
            rf"at byte {SECOND} .* length does not fit the length's CRC",
        ),
        (lambda data: data[: SECOND + 13] + b"B" + data[SECOND + 14 :], rf"at byte {SECOND} .* bytes do not fit their"),
        (lambda data: data[:-1] + b"!", rf"at byte {THIRD} .* do not fit their CRC"),
        (lambda data: gzip.compress(data)[:-30], "the record at byte .* cut off"),
        (lambda data: data, rf"at byte {THIRD} .* not a tf.train.Example"),
    ],
    ids=["cut", "cut in a header", "length", "data", "footer", "gzip", "no example"],
)
def test_damage_is_named_with_its_byte(tf, tmp_path, damage, message):
    data = write_frames(tf, tmp_path / "x", b"", b"\x0a\x00", b"\x00" * 500)
    assert re.search(message, read_or_refused(damage(data)))


# ---- jobs -----------------------------------------------------------------------------------------------------------


def batch(*ids):
    return pa.RecordBatch.from_pydict({"id": list(ids), "part": [f"p{i % 2}" for i in ids]})


ROWS = batch().schema.set(0, pa.field("id", pa.int64())).set(1, pa.field("part", pa.string()))


def tree(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def names(folder):
    """Return what is in a folder, without the parts of files' names that differ from job to job."""
    return [re.sub(r"-[0-9a-f]{12}", "", name) for name in tree(folder)]


def test_only_the_attempt_that_succeeded_is_moved(tmp_path):
    job = records.start_job(tmp_path / "out", ROWS)
    records.run_task(job, batch(1, 2), attempt=1)
    second = records.run_task(job, batch(1, 2), attempt=2)
    records.commit(job, [*second, *records.run_task(job, number=1, attempt=3)])
    assert names(tmp_path / "out") == ["_SUCCESS", "part-00000.tfrecord"]
    assert records.read(tmp_path / "out", ROWS).num_rows == 2


def test_a_job_that_fails_leaves_nothing_and_a_task_that_outlives_it_cannot_write(tmp_path):
    records.write(tmp_path / "deep" / "out", batch(1, 2), partitionBy="part")
    before = tree(tmp_path / "deep" / "out")
    again = records.start_job(tmp_path / "deep" / "out", ROWS, partitionBy="part")
    records.run_task(again, batch(3))
    records.abort(again, [])
    assert tree(tmp_path / "deep" / "out") == before
    never = records.start_job(tmp_path / "never", ROWS)
    records.abort(never, records.run_task(never, batch(1)))
    with pytest.raises(RecordError, match="the folder that the driver made for this job cannot be seen on"):
        records.run_task(never, batch(1))
    assert not (tmp_path / "never").exists()


def test_overwriting_keeps_the_old_files_until_the_new_ones_are_there(tmp_path):
    (old,) = records.write(tmp_path, batch(1))
    job, other = records.start_job(tmp_path, ROWS, overwrite=True), records.start_job(tmp_path, ROWS)
    written = records.run_task(job, batch(2))
    assert old.exists()
    records.commit(job, written)
    assert not old.exists()
    # What another job is writing right now is not this one's to remove.
    assert names(tmp_path) == ["_SUCCESS", "_temporary", "_temporary/_is_on", "part-00000.tfrecord"]
    records.abort(other, [])


def test_overwriting_removes_folders_that_have_no_new_files(tmp_path):
    records.write(tmp_path, batch(1, 2), partitionBy="part")
    for part in ("part=p0", "part=p1"):
        (tmp_path / part / "deep").mkdir()
    (tmp_path / "part=p0" / "deep" / "file").touch()
    records.write(tmp_path, batch(4), overwrite=True, partitionBy="part")
    assert names(tmp_path) == ["_SUCCESS", "part=p0", "part=p0/part-00000.tfrecord"]


def test_a_job_whose_files_cannot_be_put_in_place_leaves_all_as_it_was(tmp_path):
    records.write(tmp_path / "out", batch(1, 2), partitionBy="part")
    before = tree(tmp_path)
    job = records.start_job(tmp_path / "out", ROWS, overwrite=True, partitionBy="part")
    written = records.run_task(job, batch(3, 4))
    max((tmp_path / "out").glob("_temporary-*/0-*")).unlink()
    with pytest.raises(ConfigError, match=r"path='.*': .* cannot write to it: "):
        records.commit(job, written)
    records.abort(job, written)
    assert tree(tmp_path) == before
    job = records.start_job(tmp_path / "new", ROWS, partitionBy="part")
    written = records.run_task(job, pa.RecordBatch.from_pydict({"id": [1, 2], "part": ["short", "x" * 300]}))
    with pytest.raises(ConfigError, match="File name too long"):
        records.commit(job, written)
    records.abort(job, written)
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitionBy": "prat"}, "column 'prat' is not in the data; did you mean 'part'"),
        ({"partitionBy": "id,part"}, "leaves no column to write"),
        ({"partitionBy": "list"}, "column 'list' of type array<bigint> cannot name folders: make it a string"),
        (
            {"compression": "zip", "mode": "ignore"},
            "compression='zip': use one of none, gzip; mode='ignore': use one of",
        ),
        ({"path": ""}, "no path: give one to save"),
        ({"path": "oss://bucket/x"}, "neither pyarrow nor fsspec can open oss://"),
        ({"path": "{}/file/out"}, r"path='.*file/out': .* cannot write to it: .*Not a directory"),
    ],
)
def test_what_cannot_be_written_is_refused_before_a_folder_is_made(tmp_path, options, message):
    (tmp_path / "file").touch()
    given = {"path": str(tmp_path / "out"), **options}
    schema = ROWS.append(pa.field("list", pa.list_(pa.int64()))) if options.get("partitionBy") == "list" else ROWS
    with pytest.raises(ConfigError, match=message):
        records.start_job(given.pop("path").format(tmp_path), schema, **given)
    assert names(tmp_path) == ["file"]


def test_a_pattern_opens_no_folder_that_it_does_not_name(tmp_path):
    """Such a folder may be another user's, or hold millions of files; a look into it changes when it was last read."""
    for name in ("a/x.csv", "a/deep/x.csv", "b/x.csv", "b/y.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    os.utime(tmp_path / "a/deep", (0, 0))

    def found(pattern):
        return [name.removeprefix(f"{tmp_path}/") for name in list_files(f"{tmp_path}/{pattern}")]

    assert found("*/x.csv") == ["a/x.csv", "b/x.csv"]
    assert (tmp_path / "a/deep").stat().st_atime == 0
    assert found("[a]") == found("a/**") == ["a/deep/x.csv", "a/x.csv"]
    assert found("*/**/x.csv") == ["a/deep/x.csv", "a/x.csv", "b/x.csv"]


class ObjectStore(MemoryFileSystem):
    """As those of Azure and Google are by fsspec: no folders that have to be made, and lists of all that is below."""

    protocol = "objects"
    store = {}  # noqa: RUF012 - fsspec's way
    pseudo_dirs = [""]  # noqa: RUF012

    def find(self, path, maxdepth=None, withdirs=False, detail=False, **kwargs):
        return super().find(path, withdirs=withdirs, detail=detail, **kwargs)


@pytest.fixture
def store():
    """A function that returns the names in a store that only fsspec knows, below ``objects://box``."""
    fsspec.register_implementation("objects", ObjectStore, clobber=True)
    yield lambda: sorted(re.sub(r"-[0-9a-f]{12}", "", name.partition("box/")[2]) for name in ObjectStore.store)
    ObjectStore.store.clear()
    ObjectStore.pseudo_dirs[:] = [""]


def test_in_a_store_of_objects_files_are_appended_and_replaced_and_a_late_task_leaves_none(store):
    for part in (0, 1):
        records.write("objects://box/out", batch(part), partitionBy="part")
    records.write("objects://box/out", batch(3), partitionBy="part")
    files = ["out/part=p0/part-00000.tfrecord", *["out/part=p1/part-00000.tfrecord"] * 2]
    assert store() == ["out/_SUCCESS", *files]
    records.write("objects://box/out/", batch(2), overwrite=True, partitionBy="part")
    assert store() == ["out/_SUCCESS", files[0]]
    late = records.start_job("objects://box/late", ROWS)
    records.abort(late, records.run_task(late, batch(6)))
    with pytest.raises(RecordError, match="the folder that the driver made for this job cannot be seen on"):
        records.run_task(late, batch(1))
    assert store() == ["out/_SUCCESS", files[0]]


def test_a_pattern_finds_what_it_names_in_a_store_of_objects(store):
    for place in ("a", "a/deep", "b"):
        records.write(f"objects://box/{place}/out", batch(1))
    assert [name.partition("box/")[2][:10] for name in list_files("objects://box/*/out/*")] == [
        "a/out/part",
        "b/out/part",
    ]
