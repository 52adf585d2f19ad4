"""Scoring DataFrames with small models on a real Spark: Keras objects, files, and SavedModels."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tfos_lab
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import Description, Tensor
from tfos_lab.scoring.input_columns import choose_inputs
from tfos_lab.scoring.output_types import choose_outputs

ROWS = 40
IMAGE = [Tensor("image", "float32", (4,))]


def outputs(tensors, output="prediction", returns=None):
    chosen = choose_outputs(tensors, output, returns)
    return [(out.name, out.column, f"array<{out.leaf}>" if out.is_array else out.leaf) for out in chosen]


def test_one_value_per_row_is_a_scalar_and_more_are_an_array():
    assert outputs([Tensor("y", "float32", (1,))]) == [("y", "prediction", "float")]
    assert outputs([Tensor("y", "bfloat16", (10,))]) == [("y", "prediction", "array<float>")]
    assert outputs([Tensor("a", "int64", ()), Tensor("b", "string", (None,))]) == [
        ("a", "a", "bigint"),
        ("b", "b", "array<string>"),
    ]
    assert outputs([Tensor("y", "float32", (1,))], returns="array<double>") == [("y", "prediction", "array<double>")]
    assert outputs([], returns="long") == [("prediction", "prediction", "bigint")]
    assert outputs([Tensor("a", "int64", ()), Tensor("b", "int64", ())], returns={"b": "int"}) == [("b", "b", "int")]


@pytest.mark.parametrize(
    ("tensors", "options", "message"),
    [
        (IMAGE, {"returns": "image"}, "returns='image': use one of boolean"),
        (IMAGE, {"returns": {"y": "float"}}, "the model has no output 'y'; it has image"),
        ([*IMAGE, Tensor("b", "int64", ())], {"returns": "float"}, r"use returns=\{'image': ..., 'b': ...\}"),
        ([], {}, "does not declare its outputs"),
        ([Tensor("y", "complex64", ())], {}, "output 'y' is complex64"),
    ],
)
def test_unusable_outputs_are_refused(tensors, options, message):
    with pytest.raises(ConfigError, match=message):
        outputs(tensors, **options)


def test_descriptions_survive_json():
    described = Description((Tensor("x", "float32", (None, 3)),), (Tensor("y", "string", ()),))
    assert Description.from_json(described.to_json()) == described


@pytest.mark.parametrize(
    ("features", "tensors", "message"),
    [
        ("imgae", IMAGE, "column 'imgae' is not in the data; did you mean 'image'"),
        ("id", IMAGE, r"column 'id' has one value per row, but the model's input 'image' takes rows of shape \(4,\)"),
        ("word", IMAGE, "column 'word' is string, but the model's input 'image' is float32"),
        ("map", IMAGE, "column 'map' of type map<int,int> cannot be scored"),
        (None, [Tensor("pixels", "float32", (4,))], "which columns .* the model takes pixels"),
        ({"pixels": "image"}, IMAGE, "no input 'pixels'; .* input 'image' has no column"),
        (["id", "x"], IMAGE, "2 columns, but the model's input 'image' takes 4 values"),
        (["id"], [*IMAGE, *IMAGE], r"takes 2 inputs \(image, image\), not 1"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_a_job_runs(frame, features, tensors, message):
    with pytest.raises(ConfigError, match=message):
        choose_inputs(frame, features, tensors)


@pytest.fixture
def frame(spark):
    return spark.range(0, ROWS, 1, 2).selectExpr(
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
    code = """
import sys, keras
x = keras.Input((4,), name="image")
one = keras.Model(x, keras.layers.Dense(1, kernel_initializer="ones", name="sum")(x))
one.save(sys.argv[1] + "/one.keras")
one.export(sys.argv[1] + "/saved", verbose=False)
square, scale = keras.Input((2, 2), name="square"), keras.Input((1,), name="scale")
total = keras.layers.Dense(1, kernel_initializer="ones", name="total")(keras.layers.Flatten()(square))
both = keras.layers.Concatenate(name="both")([total, scale])
keras.Model([square, scale], [total, both]).save(sys.argv[1] + "/two.keras")
keras.Model([square, scale], {"whole": total, "and_scale": both}).save(sys.argv[1] + "/named.keras")
"""
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    return folder


def rows_of(df):
    return sorted(df.collect(), key=lambda row: row["id"])


@pytest.mark.tensorflow
@pytest.mark.parametrize("spark_mode", ["local", "connect"])
def test_a_model_file_scores_rows_and_keeps_all_columns(spark, frame, models):
    scored = tfos_lab.predict(frame, models / "one.keras", output="total", batch_size=7)
    assert scored.dtypes == [*frame.dtypes, ("total", "float")]
    assert [row["total"] for row in rows_of(scored)] == [10.0 * i for i in range(ROWS)]
    assert [row["word"] for row in rows_of(scored)] == [f"word {i}" for i in range(ROWS)]


@pytest.mark.tensorflow
def test_an_existing_column_is_refused_by_the_session_s_rules_for_names(frame, models):
    for name in ("id", "Image"):
        with pytest.raises(ConfigError, match=f"column '{name}' is there already: choose another name with output="):
            tfos_lab.predict(frame, models / "one.keras", "image", output=name)
    with pytest.raises(ConfigError, match="df=RDD: a Spark DataFrame is needed"):
        tfos_lab.predict(frame.rdd, models / "one.keras", "image")


@pytest.mark.tensorflow
def test_a_saved_model_scores_by_its_signature(frame, models):
    scored = tfos_lab.predict(frame, str(models / "saved"), "image", returns="array<double>")
    assert scored.dtypes[-1] == ("prediction", "array<double>")
    assert rows_of(scored)[3]["prediction"] == [30.0]
    with pytest.raises(ConfigError, match=r"signature='nope': .* has serv"):
        tfos_lab.predict(frame, str(models / "saved"), "image", signature="nope")


@pytest.mark.tensorflow
def test_each_of_several_inputs_and_outputs_is_a_column(frame, models):
    scored = tfos_lab.predict(frame, models / "two.keras", {"square": "image", "scale": "x"})
    assert scored.dtypes[-2:] == [("total", "float"), ("both", "array<float>")]
    row = rows_of(scored)[5]
    assert (row["total"], row["both"]) == (50.0, [50.0, 5.0])


@pytest.mark.tensorflow
def test_outputs_of_a_model_that_returns_a_dict_are_named_by_its_keys(frame, models):
    scored = tfos_lab.predict(frame, models / "named.keras", {"square": "image", "scale": "x"})
    assert dict(scored.dtypes[-2:]) == {"whole": "float", "and_scale": "array<float>"}
    row = rows_of(scored)[5]
    assert (row["whole"], row["and_scale"]) == (50.0, [50.0, 5.0])


@pytest.mark.tensorflow
def test_rows_that_do_not_fit_fail_with_the_name_of_their_column(frame, models):
    ragged = frame.selectExpr("if(id = 7, array(1.0D), image) as image")
    for values in ("1.0D, null, 3, 4", "1, null, 3, 4", "null, true, true, true"):
        holed = frame.selectExpr(f"if(id = 7, array({values}), array_compact(array({values}))) as image").filter(
            "id = 7"
        )
        with pytest.raises(Exception, match="column 'image' has a null inside its arrays, which cannot be scored"):
            tfos_lab.predict(holed, str(models / "one.keras")).collect()
    with pytest.raises(Exception, match="column 'image' has a row of 1 values, where 4 are expected"):
        tfos_lab.predict(ragged, models / "one.keras").collect()
    nulls = frame.selectExpr("if(id = 7, null, image) as image")
    with pytest.raises(Exception, match="column 'image' has a null"):
        tfos_lab.predict(nulls, models / "one.keras").collect()


@pytest.mark.tensorflow
def test_a_missing_model_is_reported_with_the_host(frame, tmp_path):
    with pytest.raises(ConfigError, match=r"nothing.keras': there is no such file or folder on .*executors"):
        tfos_lab.predict(frame, tmp_path / "nothing.keras")
    with pytest.raises(ConfigError, match="model=int: pass a Keras model"):
        tfos_lab.predict(frame, 3)


@pytest.mark.tensorflow
def test_a_keras_model_is_sent_with_classes_of_the_notebook(frame):
    import keras

    class Twice(keras.layers.Layer):
        def call(self, x):
            return 2 * x

    x = keras.Input((4,), name="image")
    model = keras.Model(x, Twice(name="twice")(x))
    scored = tfos_lab.predict(frame, model, custom_objects={"Twice": Twice})
    assert rows_of(scored)[3]["prediction"] == [6.0, 12.0, 18.0, 24.0]
    whole = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, kernel_initializer="ones")])
    rows = rows_of(tfos_lab.predict(frame.withColumn("again", frame["x"]), whole, ["id", "x", "again"]))
    assert np.allclose([row["prediction"] for row in rows], [3 * i for i in range(ROWS)])
