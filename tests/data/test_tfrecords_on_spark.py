"""TFRecord files through a real Spark, classic and Connect, and with TensorFlow as the other reader and writer."""

import functools
import getpass
import gzip
import shutil
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.bare_python import make_bare_python
from tfos_lab.data import read_tfrecords, register_tfrecords, write_tfrecords
from tfos_lab.errors import ConfigError

pytestmark = [pytest.mark.spark, pytest.mark.full]
everywhere = pytest.mark.parametrize("spark_mode", ["local", "connect"])


def files_of(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def rows_of(df):
    return sorted(df.collect(), key=lambda row: row["id"])


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "records"


@pytest.fixture
def frame(spark):
    return spark.range(0, 100, 1, 2).selectExpr(
        "id",
        "cast(id as int) as label",
        "cast(id / 4 as float) as x",
        "transform(sequence(0, id % 3), i -> cast(i as double)) as ragged",
        "if(id % 10 = 0, null, concat('né ', id)) as name",
        "encode(cast(id as string), 'utf-8') as raw",
        "id % 2 = 0 as even",
    )


@everywhere
def test_a_dataframe_is_read_with_its_types_or_with_those_of_tensorflow(spark, frame, folder):
    write_tfrecords(frame, str(folder))
    again = read_tfrecords(spark, str(folder), frame.schema)
    assert [(field.name, field.dataType) for field in again.schema] == [(f.name, f.dataType) for f in frame.schema]
    assert rows_of(again) == rows_of(frame)
    assert "_SUCCESS" in files_of(folder)
    assert len(files_of(folder)) == 3
    inferred = read_tfrecords(spark, str(folder), binary_features=["raw"])
    assert dict(inferred.dtypes) == {
        "even": "bigint",
        "id": "bigint",
        "label": "bigint",
        "name": "string",
        "ragged": "array<float>",
        "raw": "binary",
        "x": "float",
    }
    assert rows_of(inferred.select("id", "name", "raw")) == rows_of(frame.select("id", "name", "raw"))


def test_several_paths_and_patterns_are_read_as_one_without_hidden_files(spark, frame, tmp_path):
    paths = [str(tmp_path / name) for name in ("a", "b")]
    for path in paths:
        write_tfrecords(frame.where("id < 3").coalesce(1), path)
    (tmp_path / "a" / "_temporary-1").mkdir()
    (tmp_path / "a" / "_temporary-1" / "part-9").write_bytes(b"of a job that runs")
    (tmp_path / "a" / ".part-0.crc").write_bytes(b"Hadoop's")
    assert read_tfrecords(spark, paths, "id long").count() == 6
    assert read_tfrecords(spark, f"file:{tmp_path}/*/part-*", "id long").count() == 6


def test_append_adds_and_overwrite_replaces(spark, frame, folder):
    few = frame.where("id < 10")
    write_tfrecords(few, str(folder))
    few.write.format("tfrecord").mode("append").save(str(folder))
    assert read_tfrecords(spark, str(folder), "id long").count() == 20
    with pytest.raises(ConfigError, match=r"is there already: use mode='overwrite' or mode='append'"):
        write_tfrecords(few, str(folder))
    write_tfrecords(few, str(folder), mode="overwrite")
    assert rows_of(read_tfrecords(spark, str(folder), "id long")) == rows_of(few.select("id"))


def test_partitions_become_folders_and_columns_again(spark, frame, folder):
    df = frame.selectExpr("id", "x", "if(id % 7 = 0, null, concat('a/', id % 2)) as part", "id % 3 as third")
    write_tfrecords(df, str(folder), partition_by=["part", "third"], compression="gzip")
    assert any(name.startswith("part=a%2F1/third=2/part-0") for name in files_of(folder))
    again = read_tfrecords(spark, str(folder))
    assert again.dtypes == [("id", "bigint"), ("x", "float"), ("part", "string"), ("third", "bigint")]
    assert rows_of(again) == rows_of(df)


def test_filters_on_folders_leave_out_whole_files(spark, frame, folder):
    write_tfrecords(frame.selectExpr("id", "id % 3 as third"), str(folder), partition_by="third")
    for path in folder.glob("third=[12]/part-*"):
        path.write_bytes(b"damaged")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", True)
    try:
        df = read_tfrecords(spark, str(folder), "id long, third int")
        for condition in ("third = 0 and id < 9", "third < 1 and id < 9", "third in (0, 7) and not id >= 9"):
            assert [row["id"] for row in rows_of(df.where(condition))] == [0, 3, 6]
        with pytest.raises(Exception, match=r"third=1/part-.* the record at byte 0"):
            df.where("third != 2").collect()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@everywhere
def test_a_job_that_fails_leaves_nothing(spark, frame, folder):
    broken = frame.selectExpr("id", "if(id = 99, raise_error('on purpose'), id) as x")
    with pytest.raises(Exception, match="on purpose"):
        write_tfrecords(broken, str(folder))
    assert not folder.exists()
    write_tfrecords(frame.where("id < 10"), str(folder))
    before = files_of(folder)
    with pytest.raises(Exception, match="on purpose"):
        write_tfrecords(broken, str(folder), mode="overwrite")
    assert files_of(folder) == before


def test_types_options_and_partitionings_that_cannot_be_are_refused(spark, frame, folder):
    df = spark.range(1).selectExpr("id", "map('k', 1) as m", "array(array(1)) as deep")
    with pytest.raises(ConfigError, match=r"column 'm' of type map<string,int> .*column 'deep' .* flatten"):
        write_tfrecords(df, str(folder))
    register_tfrecords(spark)
    writer = spark.range(1).write.format("tfrecord").option("compresion", "gzip").mode("append")
    with pytest.raises(Exception, match=r"no option 'compresion'; did you mean 'compression'"):
        writer.save(str(folder))
    with pytest.raises(Exception, match=r"(?i)partitioning"):
        frame.write.format("tfrecord").partitionBy("label").mode("append").save(str(folder))
    assert not folder.exists()


def test_paths_are_texts_or_paths_and_what_is_none_is_refused(spark, frame, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an empty path would be this folder
    write_tfrecords(spark.range(3), Path(folder))
    assert read_tfrecords(spark, Path(folder)).count() == 3
    for path in ("", None, 3):
        with pytest.raises(ConfigError, match=f"path={path!r}: the path of a folder or a file is needed"):
            write_tfrecords(spark.range(3), path, mode="overwrite")
    for paths in ([], [None], None):
        with pytest.raises(ConfigError, match=r"path.* is needed"):
            read_tfrecords(spark, paths)
    with pytest.raises(ConfigError, match=r"write_tfrecords\(DataFrame\): a Spark DataFrame is needed"):
        write_tfrecords(spark.range(3).toPandas(), folder)


def test_vectors_become_lists_of_floats(spark, folder):
    from pyspark.ml.linalg import Vectors

    rows = [(0, Vectors.dense([1.0, 2.0, 0.0])), (1, Vectors.sparse(3, {1: 0.5})), (2, None)]
    df = spark.createDataFrame(rows, ["id", "v"])
    write_tfrecords(df, str(folder))
    again = rows_of(read_tfrecords(spark, str(folder)))
    assert [row["v"] for row in again] == [[1.0, 2.0, 0.0], [0.0, 0.5, 0.0], None]
    vectors = rows_of(read_tfrecords(spark, str(folder), df.schema))
    assert vectors[1]["v"].toArray().tolist() == [0.0, 0.5, 0.0]
    assert vectors[2]["v"] is None


@pytest.mark.tensorflow
@pytest.mark.parametrize("compression", ["", "GZIP"])
def test_we_read_what_tensorflow_writes(spark, folder, compression):
    import tensorflow as tf

    folder.mkdir()
    for part in range(2):
        with tf.io.TFRecordWriter(str(folder / f"data-{part}"), compression) as writer:
            for i in range(5):
                example = tf.train.Example()
                example.features.feature["id"].int64_list.value.append(10 * part + i)
                example.features.feature["words"].bytes_list.value.extend([b"w"] * i)
                writer.write(example.SerializeToString())
    # A length of 0x8b1f begins as gzip does, and is no gzip.
    blob = tf.train.Example()
    value = blob.features.feature["blob"].bytes_list.value
    value.append(b"x" * 0x8B1F)
    value[0] = b"x" * (2 * 0x8B1F - blob.ByteSize())
    with tf.io.TFRecordWriter(str(folder / "looks-like-gzip"), "") as writer:
        writer.write(blob.SerializeToString())
    assert (folder / "looks-like-gzip").read_bytes().startswith(b"\x1f\x8b")
    df = read_tfrecords(spark, str(folder / "data-*"))
    assert df.dtypes == [("id", "bigint"), ("words", "array<string>")]
    assert [(row["id"], len(row["words"])) for row in rows_of(df)] == [
        (10 * p + i, i) for p in (0, 1) for i in range(5)
    ]
    assert read_tfrecords(spark, str(folder / "looks-like-gzip"), "id long").count() == 1


def test_where_there_is_nothing_to_read_the_error_says_so(spark, tmp_path):
    with pytest.raises(ConfigError, match="no such file or folder"):
        read_tfrecords(spark, str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match="no such file or folder"):
        read_tfrecords(spark, str(tmp_path / "nothing"), "id long")
    with pytest.raises(ConfigError, match="neither pyarrow nor fsspec can open nosuch://"):
        read_tfrecords(spark, "nosuch://there/x", "id long")
    with pytest.raises(ConfigError, match="no file has such a name"):
        read_tfrecords(spark, str(tmp_path / "x-*"))
    with pytest.raises(ConfigError, match="no records to infer a schema from"):
        read_tfrecords(spark, str(tmp_path))
    write_tfrecords(spark.range(3).selectExpr("cast(null as long) as a").coalesce(1), str(tmp_path / "nulls"))
    with pytest.raises(ConfigError, match="their records hold no values to infer a schema from; give one"):
        read_tfrecords(spark, str(tmp_path / "nulls"))


def test_small_files_share_a_task_and_large_ones_have_one_each(spark, tmp_path):
    for name, megabytes in {"a": 1, "b": 2, "c": 9, "d": 5, "e": 3}.items():
        with (tmp_path / name).open("wb") as file:
            file.truncate(megabytes << 20)
    assert read_tfrecords(spark, str(tmp_path), "id long").rdd.getNumPartitions() == 4


def test_executors_need_neither_tfos_lab_nor_the_crc_library(spark, tmp_path, monkeypatch):
    def missing(_):
        from importlib.util import find_spec

        return [name for name in ("tfos_lab", "pyarrow") if find_spec(name) is None]

    python = make_bare_python(tmp_path / "bare", hidden={"google_crc32c", "tensorflow"}, elsewhere=True)
    monkeypatch.setenv("PYSPARK_PYTHON", str(python))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(python))
    assert spark.sparkContext.parallelize([0], 1).mapPartitions(missing).collect() == ["tfos_lab"]
    df = spark.range(50).selectExpr("id", "transform(sequence(0, 30), i -> cast(i as float)) as x")
    write_tfrecords(df, str(tmp_path / "records"), compression="gzip")
    assert rows_of(read_tfrecords(spark, str(tmp_path / "records"))) == rows_of(df)


def test_the_format_is_known_to_a_session_once_registered(spark, frame, folder):
    register_tfrecords(spark)
    frame.write.format("tfrecord").option("compression", "gzip").mode("overwrite").save(str(folder))
    (first, *_) = sorted(folder.glob("part-*.tfrecord.gz"))
    assert gzip.decompress(first.read_bytes())
    assert spark.read.format("tfrecord").schema("id long").load(str(folder)).count() == 100
    # An option does for the format what Spark's own partitionBy cannot.
    writer = frame.select("id", "label", "even").write.format("tfrecord").option("partitionBy", "even, label")
    writer.mode("overwrite").save(str(folder))
    assert "even=true/label=0" in {name.rpartition("/")[0] for name in files_of(folder)}
    assert rows_of(spark.read.format("tfrecord").load(str(folder)).select("id", "label")) == rows_of(
        frame.selectExpr("id", "cast(label as bigint) as label")
    )


def test_spark_s_own_search_finds_the_format():
    from importlib import import_module
    from pkgutil import iter_modules

    found = [module.name for module in iter_modules() if module.name.startswith("pyspark_tf")]
    assert [import_module(name).DefaultSource.name() for name in found] == ["tfrecord"]


@pytest.fixture
def on_hdfs(spark):
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    before = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", "hdfs://nn:8020")
    yield spark
    configuration.set("fs.defaultFS", before)


def test_paths_are_on_the_session_s_file_system_in_the_user_s_home(on_hdfs):
    register_tfrecords(on_hdfs)
    writer = on_hdfs.range(1).write.format("tfrecord").mode("append")
    with pytest.raises(Exception, match=r"path='hdfs://nn:8020/data/x': .* cannot open it: "):
        writer.save("/data/x")
    with pytest.raises(Exception, match=rf"path='hdfs://nn:8020/user/{getpass.getuser()}/[xy]': "):
        on_hdfs.read.format("tfrecord").load(["x", "y"])


@pytest.fixture
def unshared(tmp_path):
    """A path that is another folder for each process, as on hosts with disks of their own; and the driver's folder."""
    name = f"tfos-{tmp_path.name}"
    yield f"/proc/self/cwd/{name}", Path.cwd() / name
    shutil.rmtree(Path.cwd() / name, ignore_errors=True)


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_a_folder_that_executors_do_not_share_is_an_error_and_nothing_is_lost(spark, unshared):
    path, of_the_driver = unshared
    df = spark.range(0, 10, 1, 1)  # Spark tries each task that fails four times
    with pytest.raises(Exception, match=r"made for this job cannot be seen on .*share, or name the file system"):
        write_tfrecords(df, path)
    assert not of_the_driver.exists()
    write_tfrecords(df, str(of_the_driver))
    with pytest.raises(Exception, match=r"part-.*: the driver sees this file, .* does not: put it where"):
        read_tfrecords(spark, path, "id long").collect()


def test_executors_read_where_fsspec_alone_knows_the_way(spark, frame, folder):
    write_tfrecords(frame.coalesce(1), str(folder), compression="gzip")
    (file,) = folder.glob("part-*")
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/{file.name}"
            assert read_tfrecords(spark, address, "id long").count() == 100
        finally:
            server.shutdown()
