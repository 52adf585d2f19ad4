"""`tfos_lab.predict` with small models on a real Spark: Keras objects, files, and SavedModels."""

import numpy as np
import pytest

import tfos_lab
from tests.support.tensorflow_process import in_tensorflow
from tfos_lab.errors import ConfigError

pytestmark = pytest.mark.tensorflow
ROWS = 40
MODELS = """
import keras
x = keras.Input((4,), name="image")
one = keras.Model(x, keras.layers.Dense(1, kernel_initializer="ones", name="sum")(x))
one.save(arguments[0] + "/one.keras")
one.export(arguments[0] + "/saved", verbose=False)
square, scale = keras.Input((2, 2), name="square"), keras.Input((1,), name="scale")
total = keras.layers.Dense(1, kernel_initializer="ones", name="total")(keras.layers.Flatten()(square))
both = keras.layers.Concatenate(name="both")([total, scale])
keras.Model([square, scale], [total, both]).save(arguments[0] + "/two.keras")
keras.Model([square, scale], {"whole": total, "and_scale": both}).save(arguments[0] + "/named.keras")
import tf_keras
old = tf_keras.Sequential([tf_keras.Input((4,), name="image"), tf_keras.layers.Dense(1, kernel_initializer="ones")])
old.save(arguments[0] + "/keras2.keras")
answer = None
"""


@pytest.fixture
def frame(spark):
    # One task at a time: each of Spark's workers imports TensorFlow, and none survives an error.
    return spark.range(0, ROWS, 1, 1).selectExpr(
        "id",
        "transform(sequence(1, 4), i -> cast(id * i as double)) as image",
        "cast(id as float) as x",
        "map(1, 2) as map",
        "concat('word ', id) as word",
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of models, made in another process: this one must not import TensorFlow."""
    folder = tmp_path_factory.mktemp("models")
    in_tensorflow(MODELS, str(folder))
    return folder


def rows_of(df):
    return sorted(df.collect(), key=lambda row: row["id"])


@pytest.mark.parametrize("spark_mode", ["local", "connect"])
def test_a_model_file_scores_rows_and_keeps_all_columns(spark, frame, models):
    scored = tfos_lab.predict(frame, models / "one.keras", output="total", batch_size=7)
    assert scored.dtypes == [*frame.dtypes, ("total", "float")]
    assert [row["total"] for row in rows_of(scored)] == [10.0 * i for i in range(ROWS)]
    assert [row["word"] for row in rows_of(scored)] == [f"word {i}" for i in range(ROWS)]


def test_a_file_of_keras_2_is_loaded_by_keras_2(frame, models):
    scored = tfos_lab.predict(frame, models / "keras2.keras", "image")
    assert [row["prediction"] for row in rows_of(scored)] == [10.0 * i for i in range(ROWS)]


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        ("imgae", {}, "column 'imgae' is not in the data; did you mean 'image'"),
        ("id", {}, r"column 'id' has one value per row, but the model's input 'image' takes rows of shape \(4,\)"),
        ("word", {}, "column 'word' is string, but the model's input 'image' is float32"),
        ("map", {}, "column 'map' of type map<int,int> cannot be scored"),
        ({"pixels": "image"}, {}, "no input 'pixels'; .* input 'image' has no column"),
        (["id", "x"], {}, "2 columns, but the model's input 'image' takes 4 values"),
        ("image", {"returns": "image"}, "returns='image': use one of boolean"),
        ("image", {"returns": {"y": "float"}}, "the model has no output 'y'; it has "),
        ("image", {"output": "id"}, "column 'id' is there already: choose another name with output="),
        ("image", {"output": "Image"}, "column 'Image' is there already"),
    ],
)
def test_columns_and_outputs_that_do_not_fit_are_refused_before_a_row_is_scored(
    frame, models, *, features, options, message
):
    with pytest.raises(ConfigError, match=message):
        tfos_lab.predict(frame, models / "one.keras", features, **options)


def test_what_is_no_dataframe_and_no_model_is_refused(frame, models, tmp_path):
    with pytest.raises(ConfigError, match=r"predict\(RDD\): a Spark DataFrame is needed"):
        tfos_lab.predict(frame.rdd, models / "one.keras", "image")
    with pytest.raises(ConfigError, match=r"nothing.keras': there is no such file or folder on .*executors"):
        tfos_lab.predict(frame, tmp_path / "nothing.keras")
    with pytest.raises(ConfigError, match="model=int: pass a Keras model"):
        tfos_lab.predict(frame, 3)
    with pytest.raises(ConfigError, match=r"takes 2 inputs \(square, scale\), not 1"):
        tfos_lab.predict(frame, models / "two.keras", ["id"])
    with pytest.raises(ConfigError, match=r"use returns=\{'total': ..., 'both': ...\}"):
        tfos_lab.predict(frame, models / "two.keras", {"square": "image", "scale": "x"}, returns="float")


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (3, {}, "features=3: names of columns are needed, or a dict of inputs to names"),
        (["id", None], {}, r"features=\['id', None\]: names of columns are needed"),
        (
            "image",
            {"output": ["a", "b"]},
            "output=.*: a name .*; those of a model with several outputs have the outputs' names",
        ),
        ("image", {"output": None, "batch_size": "10"}, "output=None: a name .*; batch_size='10': a whole number"),
        ("image", {"returns": float}, "returns=<class 'float'>: a type of Spark's is needed, such as 'float'"),
        ("image", {"custom_objects": [dict]}, r"custom_objects=\[.*\]: a dict of names to classes"),
    ],
)
def test_arguments_of_wrong_kinds_are_refused_before_a_model_is_looked_for(frame, *, features, options, message):
    with pytest.raises(ConfigError, match=message):
        tfos_lab.predict(frame, "nothing.keras", features, **options)


def test_a_file_that_is_no_model_is_refused_by_its_own_name(frame, tmp_path):
    for name, content, message in (
        ("not.keras", b"text", "not.keras' is no file that Keras has written"),
        ("empty.keras", b"", "empty.keras' is no file that Keras has written"),
        ("not.h5", b"text", "not.h5' cannot be loaded: OSError: "),
        ("saved_model.pb", b"text", "saved_model.pb' is a file, but none of Keras' own: .*the folder of"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ConfigError, match=f"^model='{tmp_path}/{message}"):
            tfos_lab.predict(frame, tmp_path / name, "image")


def test_a_saved_model_scores_by_its_signature(frame, models):
    scored = tfos_lab.predict(frame, str(models / "saved"), "image", returns="array<double>")
    assert scored.dtypes[-1] == ("prediction", "array<double>")
    assert rows_of(scored)[3]["prediction"] == [30.0]
    with pytest.raises(ConfigError, match=r"signature='nope': .* has serv"):
        tfos_lab.predict(frame, str(models / "saved"), "image", signature="nope")


def test_each_of_several_inputs_and_outputs_is_a_column(frame, models):
    scored = tfos_lab.predict(frame, models / "two.keras", {"square": "image", "scale": "x"})
    assert scored.dtypes[-2:] == [("total", "float"), ("both", "array<float>")]
    row = rows_of(scored)[5]
    assert (row["total"], row["both"]) == (50.0, [50.0, 5.0])
    chosen = tfos_lab.predict(
        frame, models / "two.keras", {"square": "image", "scale": "x"}, returns={"both": "array<double>"}
    )
    assert chosen.dtypes[len(frame.dtypes) :] == [("both", "array<double>")]
    # A model that returns a dict has its outputs by its keys.
    named = tfos_lab.predict(frame, models / "named.keras", {"square": "image", "scale": "x"})
    assert dict(named.dtypes[-2:]) == {"whole": "float", "and_scale": "array<float>"}


def test_rows_that_do_not_fit_fail_with_the_name_of_their_column(frame, models):
    def holed(values):
        return frame.where("id = 7").selectExpr(f"if(id = 7, array({values}), array_compact(array({values}))) as image")

    null_inside = "column 'image' has a null inside its arrays, which cannot be scored"
    wrong = [
        (holed("1.0D, null, 3, 4"), null_inside),
        (holed("null, true, true, true"), null_inside),
        (
            frame.selectExpr("if(id = 7, array(1.0D), image) as image"),
            "column 'image' has a row of 1 values, where 4 are expected",
        ),
        (frame.selectExpr("if(id = 7, null, image) as image"), "column 'image' has a null"),
    ]
    # All are made before one fails: the worker of Spark's that has loaded the model does not survive it.
    for scored, message in [(tfos_lab.predict(rows, models / "one.keras"), message) for rows, message in wrong]:
        with pytest.raises(Exception, match=message):
            scored.collect()


def test_a_keras_model_is_sent_with_classes_of_the_notebook(frame, tmp_path):
    import keras

    class Twice(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    @keras.saving.register_keras_serializable("mine")
    class Thrice(keras.layers.Layer):
        def call(self, x):
            return 3 * x

    x = keras.Input((4,), name="image")
    model = keras.Model(x, Thrice()(Twice(name="twice")(x)))
    scored = tfos_lab.predict(frame, model, custom_objects={"Twice": Twice, "Thrice": Thrice})
    assert rows_of(scored)[3]["prediction"] == [18.0, 36.0, 54.0, 72.0]
    model.save(tmp_path / "thrice.keras")
    with pytest.raises(
        ConfigError, match=r"thrice.keras' cannot be loaded; give its .* as in custom_objects=\{'Name': N"
    ):
        tfos_lab.predict(frame, tmp_path / "thrice.keras", custom_objects={"Twice": Twice})
    whole = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")])
    rows = rows_of(tfos_lab.predict(frame.withColumn("again", frame["x"]), whole, ["id", "x", "again"]))
    assert np.allclose([row["prediction"] for row in rows], [3 * i for i in range(ROWS)])
