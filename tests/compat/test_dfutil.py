"""DataFrames as TFRecord files under TensorFlowOnSpark's names."""

import gc

import pytest
from pyspark.sql.types import ArrayType, BinaryType, DoubleType, LongType, StringType, StructField, StructType

from tfos_lab.compat import dfutil
from tfos_lab.errors import ConfigError

SCHEMA = "a string, b int, c array<int>, d float, e array<double>, f binary, g boolean, h array<bigint>"
ROW = ("text 中", 1, [2, 3, 4, 5], -1.1, [-2.2, -3.3, -4.4], bytearray(b"\xff\xfe"), True, [7])


@pytest.fixture
def frame(spark):
    return spark.createDataFrame([ROW] * 3, SCHEMA).coalesce(1)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "records")


def test_nulls_and_unequal_lengths_come_back_as_they_were(spark, folder):
    rows = [(None, [1]), (2, [1, 2]), (3, [])]
    dfutil.saveAsTFRecords(spark.createDataFrame(rows, "a int, b array<int>").coalesce(1), folder)
    loaded = dfutil.loadTFRecords(spark.sparkContext, folder)
    assert loaded.dtypes == [("a", "bigint"), ("b", "array<bigint>")]
    assert [(row["a"], row["b"]) for row in loaded.collect()] == rows


def test_rows_come_back_with_the_types_that_tensorflow_has(spark, frame, folder):
    dfutil.saveAsTFRecords(frame, folder)
    loaded = dfutil.loadTFRecords(spark.sparkContext, folder, binary_features=["f"])
    kinds = {"a": "string", "c": "array<bigint>", "d": "double", "e": "array<double>", "f": "binary"}
    assert loaded.dtypes == [(name, kinds.get(name, "bigint")) for name in "abcdefgh"]
    row = loaded.collect()[0]
    assert (row["a"], row["b"], row["c"], row["g"], row["h"]) == ("text 中", 1, [2, 3, 4, 5], 1, 7)
    assert [row["d"], *row["e"]] == pytest.approx([-1.1, -2.2, -3.3, -4.4], abs=1e-6)
    assert bytes(row["f"]) == b"\xff\xfe"


@pytest.mark.tensorflow
def test_examples_of_rows_are_what_tensorflow_would_make_and_a_null_is_no_feature(frame):
    import tensorflow as tf

    made_of = {"bytes_list": tf.train.BytesList, "float_list": tf.train.FloatList, "int64_list": tf.train.Int64List}
    values = {
        "a": ("bytes_list", ["text 中".encode()]), "b": ("int64_list", [1]), "c": ("int64_list", [2, 3, 4, 5]),
        "d": ("float_list", [-1.1]), "e": ("float_list", [-2.2, -3.3, -4.4]), "f": ("bytes_list", [b"\xff\xfe"]),
        "g": ("int64_list", [1]), "h": ("int64_list", [7]),
    }  # fmt: skip
    features = {name: tf.train.Feature(**{kind: made_of[kind](value=some)}) for name, (kind, some) in values.items()}
    rows = [*frame.collect(), dict.fromkeys("abcdefgh")]
    pairs = dfutil.toTFExample(frame.dtypes)(iter(rows))
    made = [tf.train.Example.FromString(bytes(record)) for record, _ in pairs]
    whole = tf.train.Example(features=tf.train.Features(feature=features))
    assert made == [whole, whole, whole, tf.train.Example(features=tf.train.Features())]


def test_several_folders_are_loaded_as_one(spark, frame, tmp_path):
    for name in ("one", "two"):
        dfutil.saveAsTFRecords(frame, f"file://{tmp_path}/{name}")
    assert dfutil.loadTFRecords(spark.sparkContext, f"{tmp_path}/one,file://{tmp_path}/two", ["f"]).count() == 6
    assert dfutil.loadTFRecords(spark.sparkContext, f"{tmp_path}/t*/part-*", ["f"]).count() == 3


def test_a_loaded_dataframe_is_known_until_it_is_gone(spark, frame, folder):
    dfutil.saveAsTFRecords(frame, folder)
    loaded = dfutil.loadTFRecords(spark.sparkContext, folder, ["f"])
    same = loaded
    assert dfutil.isLoadedDF(same)
    assert dfutil.loadedDF[loaded] == folder
    assert not dfutil.isLoadedDF(frame)
    assert not dfutil.isLoadedDF(loaded.filter("b > 0"))
    known = len(dfutil.loadedDF)
    del loaded, same
    gc.collect()
    assert len(dfutil.loadedDF) < known


def test_a_folder_that_exists_is_left_as_it_is_and_one_that_does_not_cannot_be_loaded(spark, frame, folder):
    with pytest.raises(ConfigError, match="records': there is no such file or folder"):
        dfutil.loadTFRecords(spark.sparkContext, folder)
    dfutil.saveAsTFRecords(frame, folder)
    with pytest.raises(ConfigError, match=r"output_dir='.*/records' exists already: name another folder, or remove it"):
        dfutil.saveAsTFRecords(frame, folder)
    assert dfutil.loadTFRecords(spark.sparkContext, folder, ["f"]).count() == 3


def test_a_type_that_no_example_holds_is_refused_before_a_row_is_made(spark, folder):
    frame = spark.range(1).selectExpr("map(1, 2) as m")
    with pytest.raises(ConfigError, match="map<int,int>"):
        dfutil.saveAsTFRecords(frame, folder)
    with pytest.raises(ConfigError, match="Unsupported dtype: map<int,int>"):
        dfutil.toTFExample(frame.dtypes)


@pytest.mark.tensorflow
def test_the_schema_of_an_example_is_inferred_by_its_first_values():
    import tensorflow as tf

    def feature(**lists):
        kinds = {"int64_list": tf.train.Int64List, "float_list": tf.train.FloatList, "bytes_list": tf.train.BytesList}
        return tf.train.Feature(**{name: kinds[name](value=values) for name, values in lists.items()})

    features = {
        "f": feature(float_list=[0.5]),
        "ints": feature(int64_list=[1, 2]),
        "i": feature(int64_list=[0]),
        "text": feature(bytes_list=[b"x"]),
        "texts": feature(bytes_list=[b"x", b"y"]),
        "raw": feature(bytes_list=[b"\xff"]),
        "nothing": feature(),
        "empty": feature(int64_list=[]),
    }
    example = tf.train.Example(features=tf.train.Features(feature=features))
    expected = {
        "empty": StringType(),
        "f": DoubleType(),
        "i": LongType(),
        "ints": ArrayType(LongType()),
        "nothing": StringType(),
        "raw": BinaryType(),
        "text": StringType(),
        "texts": ArrayType(StringType()),
    }
    schema = StructType([StructField(name, kind) for name, kind in expected.items()])
    assert dfutil.infer_schema(example, ["raw"]) == schema
    (row,) = dfutil.fromTFExample([(example.SerializeToString(), None)], ["raw"])
    assert row.asDict() == {
        "empty": None,
        "f": 0.5,
        "i": 0,
        "ints": [1, 2],
        "nothing": None,
        "raw": bytearray(b"\xff"),
        "text": "x",
        "texts": ["x", "y"],
    }
