"""Scoring by explicit names of inputs and outputs, as `tfos_lab.compat.pipeline.TFModel` does it, on a real Spark."""

import shutil

import pytest

from tests.support.tensorflow_process import in_tensorflow
from tfos_lab.compat import pipeline
from tfos_lab.errors import ConfigError

ROWS = 10
MODELS = """
class Module(tf.Module):
    def __init__(self, factor):
        self.factor = tf.Variable(float(factor))

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x"),
                                  tf.TensorSpec([None, 1], tf.int64, name="n")])
    def several(self, x, n):
        total = tf.reduce_sum(x, axis=1)
        return {"total": total * self.factor, "scaled": x * self.factor, "count": n[:, 0], "big": total > 5,
                "text": tf.strings.as_string(n), "grid": x[:, :, None] * tf.ones((1, 1, 3))}

    @tf.function(input_signature=[tf.TensorSpec([None, 2, 2], tf.float32, name="square")])
    def square(self, square):
        return {"trace": tf.linalg.trace(square), "mean": tf.reduce_mean(square)}

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32, name="any")])
    def anything(self, any):
        return {"same": any, "rows": tf.shape(any)[:1] + tf.zeros_like(any, tf.int32)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="word")])
    def words(self, word):
        return {"length": tf.strings.length(word)}

folder = arguments[0]
for factor, name in ((1, "module"), (10, "again")):
    module = Module(factor)
    signatures = {name: getattr(module, name) for name in ("several", "square", "anything", "words")}
    tf.saved_model.save(module, folder + "/" + name, {"serving_default": module.several, **signatures})
tf.saved_model.save(module, folder + "/only", {"only": module.square})
tf.saved_model.save(tf.Module(), folder + "/unsigned")
tf.train.Checkpoint(module).write(folder + "/checkpoints/ckpt")
import keras
x = keras.Input((2,), name="x")
keras.Model(x, keras.layers.Dense(1, kernel_initializer="ones", name="y")(x)).save(folder + "/model.keras")
layers = [keras.Input((2,), name="x"), keras.layers.Dense(1, kernel_initializer="ones", name="y")]
import os
os.makedirs(folder + "/keras")
keras.Sequential(layers).save(folder + "/keras/sequential.keras")
from tfos_lab.compat.compat import export_saved_model
old = keras.Sequential([keras.layers.Dense(1, input_shape=(2,), kernel_initializer="ones", name="line")])
export_saved_model(old, folder + "/old", True)
answer = None
"""

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    in_tensorflow(MODELS, str(folder))
    return folder


@pytest.fixture
def frame(spark):
    # One task at a time: each of Spark's workers imports TensorFlow, and none survives an error.
    return spark.range(0, ROWS, 1, 1).selectExpr(
        "id",
        "array(cast(id as double), 1.0D) as pair",
        "transform(sequence(1, 4), i -> cast(id as float)) as four",
        "concat('word', id) as word",
        "map(1, 2) as map",
    )


def score(df, path, inputs, outputs, *, batch_size=3, signature=None, tags=None):
    model = pipeline.TFModel({}).setExportDir(str(path)).setInputMapping(inputs).setOutputMapping(outputs)
    if signature is not None:
        model.setSignatureDefKey(signature)
    if tags is not None:
        model.setTagSet(tags)
    return model.setBatchSize(batch_size).transform(df)


SEVERAL = {"pair": "x", "id": "n"}


def test_outputs_become_columns_by_their_names_and_types(frame, models):
    outputs = {"total": "z", "scaled": "b", "count": "c", "big": "d", "text": "e", "grid": "f"}
    scored = score(frame, models / "module", SEVERAL, outputs)
    assert scored.dtypes == [
        ("d", "boolean"),
        ("c", "bigint"),
        ("f", "array<array<double>>"),
        ("b", "array<double>"),
        ("e", "array<binary>"),
        ("z", "double"),
    ]
    rows = scored.collect()
    assert [row["z"] for row in rows] == [i + 1.0 for i in range(ROWS)]
    last = rows[-1]
    assert (last["d"], last["c"], last["f"], last["b"]) == (True, 9, [[9.0] * 3, [1.0] * 3], [9.0, 1.0])
    assert bytes(last["e"][0]) == b"9"


def test_a_signature_is_called_by_its_name_or_because_it_is_the_only_one(spark, frame, models):
    flat, lengths = {"four": "square"}, {"word": "word"}
    named = score(frame, models / "module", flat, {"trace": "t"}, signature="square", tags="serve")
    assert [row["t"] for row in named.collect()] == [2.0 * i for i in range(ROWS)]
    only = score(frame, models / "only", flat, {"trace": "t"})
    assert [row["t"] for row in only.collect()] == [2.0 * i for i in range(ROWS)]
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "4")  # a model's batches are across Spark's
    try:
        assert [row["t"] for row in only.collect()] == [2.0 * i for i in range(ROWS)]
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert score(frame.limit(0), models / "only", flat, {"trace": "t"}).collect() == []
    words = score(frame, models / "module", lengths, {"length": "n"}, signature="words")
    assert {row["n"] for row in words.collect()} == {5}


@pytest.mark.parametrize("name", ["model.keras", "keras"])
def test_a_keras_file_is_scored_by_the_names_of_its_layers(frame, models, name):
    scored = score(frame, models / name, {"pair": "x"}, {"y": "sum"}, batch_size=100)
    assert scored.dtypes == [("sum", "array<double>")]
    assert [row["sum"] for row in scored.collect()] == [[i + 1.0] for i in range(ROWS)]
    assert score(frame, models / name, {"pair": "x"}, {"output_0": "sum"}).count() == ROWS


def test_what_keras_3_exports_is_known_by_keras_2_s_names_too(frame, models):
    scored = score(frame, models / "old", {"pair": "line_input"}, {"line": "sum"})
    assert [row["sum"] for row in scored.collect()] == [[i + 1.0] for i in range(ROWS)]
    assert score(frame, models / "old", {"pair": "input_1"}, {"output_0": "sum"}).count() == ROWS
    with pytest.raises(ConfigError, match="no input 'x'; it has keras_tensor"):
        score(frame, models / "old", {"pair": "x"}, {"line": "sum"})


@pytest.mark.parametrize(
    ("inputs", "outputs", "options", "message"),
    [
        ({"pear": "x", "id": "n"}, {"total": "t"}, {}, "column 'pear' is not in the data; did you mean 'pair'"),
        (
            {"pair": "y", "id": "n"},
            {"total": "t"},
            {},
            "no input 'y'; it has .*; .*the model's input 'x' has no column",
        ),
        ({"pair": "x"}, {"total": "t"}, {}, "input_mapping: the model's input 'n' has no column"),
        ({"pair": "x", "id": "n", "four": "x"}, {"total": "t"}, {}, "two columns are for the input 'x'"),
        (SEVERAL, {"sum": "t"}, {}, "output_mapping: the model has no output 'sum'; it has .*total"),
        (SEVERAL, {"total": "t"}, {"signature": "nope"}, "signature_def_key='nope': .*/module has .*serving_default"),
        (SEVERAL, {"total": "t"}, {"tags": "train"}, "tag_set='train': .*tags"),
        ({"pair": "x", "word": "n"}, {"total": "t"}, {}, "column 'word' is string, but the model's input 'n' is int64"),
        (
            {"id": "x", "pair": "n"},
            {"total": "t"},
            {},
            r"'id' has one value per row, but .* takes rows of shape \(2,\)",
        ),
        ({"pair": "x", "map": "n"}, {"total": "t"}, {}, "column 'map' of type map<int,int> cannot become a tensor"),
        (
            {"pair": "any"},
            {"same": "s"},
            {"signature": "anything"},
            "output 'same' has an unknown number of dimensions",
        ),
    ],
)
def test_names_and_types_that_do_not_fit_are_refused_before_a_row_is_scored(
    frame, models, *, inputs, outputs, options, message
):
    with pytest.raises(ConfigError, match=message):
        score(frame, models / "module", inputs, outputs, **options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", r"export_dir='.*/nothing': there is no such file or folder on .*executors find it$"),
        ("unsigned", r"signature_def_key='serving_default': .*/unsigned has none"),
        ("checkpoints", r"export_dir='.*/checkpoints' holds no model: .* here is ckpt\..*export the model"),
    ],
)
def test_a_folder_without_a_model_is_refused(frame, models, name, message):
    with pytest.raises(ConfigError, match=message):
        score(frame, models / name, SEVERAL, {"total": "t"})


def test_rows_that_do_not_fit_fail_with_their_column(frame, models):
    three = frame.selectExpr("id", "array(1.0D, 2, 3) as pair")
    with pytest.raises(
        Exception, match=r"column 'pair' has rows of shape \(3,\), but the model's input 'x' takes \(2,\)"
    ):
        score(three, models / "module", SEVERAL, {"total": "t"}).collect()
    nulls = frame.selectExpr("id", "if(id = 7, null, pair) as pair")
    with pytest.raises(Exception, match="column 'pair' has 1 null in a batch"):
        score(nulls, models / "module", SEVERAL, {"total": "t"}).collect()
    with pytest.raises(Exception, match="output 'mean' has no rows for 3 rows of input"):
        score(frame, models / "module", {"four": "square"}, {"mean": "m"}, signature="square").collect()


def test_a_model_that_was_written_anew_is_loaded_anew(frame, models, tmp_path):
    folder = tmp_path / "model"
    totals = []
    for name in ("module", "again"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(models / name, folder)
        totals.append(score(frame, folder, SEVERAL, {"total": "t"}).agg({"t": "sum"}).first()[0])
    assert totals == [55.0, 550.0]
