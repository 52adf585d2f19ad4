"""`TFModel` scores by its params, on a real Spark."""

from __future__ import annotations

import pytest

from tfos_lab.errors import ConfigError
from tfos_lab.ml import TFModel

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def pairs(spark):
    return spark.createDataFrame([(1.0, [2.0, 3.0]), (4.0, [5.0, 6.0])], ["a", "b"]).coalesce(1)


def column(scored, name):
    return [row[name] for row in scored.collect()]


@pytest.mark.parametrize("kind", ["three", "exported"])
def test_a_model_adds_its_prediction_to_all_columns(models, rows, kind):
    model = TFModel(modelPath=getattr(models, kind))
    scored = model.transform(rows)
    assert scored.columns == ["features", "label", "number", "prediction"]
    assert dict(scored.dtypes)["prediction"] == "double"
    assert column(scored, "prediction") == column(rows, "label")
    assert column(model.transform(rows, {model.predictionCol: "p", model.batchSize: 4}), "p") == column(rows, "label")


def test_several_columns_are_the_values_of_an_only_input(models, rows):
    scored = TFModel(modelPath=models.three, inputCols=["number", "label"], predictionCol="y").transform(rows)
    assert column(scored, "y") == [3.0 * (row.number + row.label) for row in rows.collect()]


def test_several_inputs_and_outputs_have_names(models, pairs):
    model = TFModel(modelPath=models.two)
    assert model.transform(pairs).columns == ["a", "b", "sum", "first"]
    renamed = pairs.toDF("x", "y")
    model.setInputMapping({"y": "b", "x": "a"}).setOutputMapping({"sum": "s"})
    scored = model.transform(renamed)
    assert scored.dtypes[2:] == [("s", "array<double>")]
    assert column(scored, "s") == [[3.0, 4.0], [9.0, 10.0]]
    in_order = TFModel(modelPath=models.two, inputCols=["x", "y"], outputCols=["p", "q"]).transform(renamed)
    assert (column(in_order, "p"), column(in_order, "q")) == ([[3.0, 4.0], [9.0, 10.0]], [1.0, 4.0])


def test_a_classifier_gives_a_vector_and_a_class(models, spark):
    df = spark.createDataFrame([([0.0, 5.0],), ([5.0, 0.0],)], ["features"]).coalesce(1)
    scored = TFModel(modelPath=models.classes, probabilityCol="probability").transform(df)
    assert scored.dtypes[1:] == [("probability", "vector"), ("prediction", "double")]
    assert column(scored, "prediction") == [1.0, 0.0]
    assert column(scored, "probability")[0].toArray().sum() == pytest.approx(1.0)
    sure = TFModel(modelPath=models.one, probabilityCol="p").transform(spark.createDataFrame([([0.25, 0.0],)], ["x"]))
    assert (sure.first().p.toArray().tolist(), sure.first().prediction) == ([0.75, 0.25], 0.0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"modelPath": "exported"},
            r"^which columns are the model's inputs.* the model takes x, the data has a, b$",
        ),
        ({"outputMapping": {"total": "s"}}, "^outputMapping: the model has no output 'total'; it has sum, first$"),
        ({"inputMapping": {"a": "z", "b": "b"}}, "^inputMapping: the model has no input 'z'; it has a, b$"),
        ({"inputMapping": {"a": "b", "b": "b"}}, "two columns are for the input 'b'"),
        ({"inputCols": ["a", "c"]}, "^inputCols: there is no column 'c'; the data has a, b$"),
        ({"inputCols": ["a"]}, r"^inputCols: the model takes 2 inputs \(a, b\), not 1$"),
        ({"outputCols": ["p"]}, "^outputCols=.'p'.: names for 1 outputs, but the model has 2: "),
        ({"predictionCol": "p"}, "^predictionCol='p': the model has 2 outputs, .*; say which one with outputMapping="),
        ({"probabilityCol": "p"}, "^probabilityCol='p': the model has 2 outputs"),
        ({"outputMapping": {"sum": "a"}}, "^column 'a' is there already: choose another name with predictionCol"),
        ({"signatureDefKey": "other", "modelPath": "exported"}, "^signatureDefKey='other': .* has serv"),
        (
            {"modelPath": "/no/such/model.keras"},
            "^modelPath='/no/such/model.keras': there is no such file or folder on",
        ),
        ({"modelPath": None}, "^modelPath is not set, so there is no model to score with: call setModelPath"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_row_is_scored(models, pairs, params, message):
    params = {"modelPath": models.two, **params}
    if params["modelPath"] == "exported":
        params["modelPath"] = models.exported
    with pytest.raises(ConfigError, match=message):
        TFModel(**params).transform(pairs)


def test_what_is_no_dataframe_is_refused():
    with pytest.raises(ConfigError, match=r"^transform\(list\): a Spark DataFrame is needed"):
        TFModel(modelPath="x").transform([1])
