"""`TFModel` scores by its params on a real Spark; stages are saved and loaded as Spark ML's own are."""

import json
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

import tfos_lab
from tests.ml import functions
from tfos_lab.errors import ConfigError, NoSession, PayloadError
from tfos_lab.ml import TFEstimator, TFModel

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
    (row,) = sure.collect()  # Spark ends the worker that `first` leaves rows with, and TensorFlow is imported again
    assert (row.p.toArray().tolist(), row.prediction) == ([0.75, 0.25], 0.0)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"inputMapping": None}, "Set featuresCol, inputCols or inputMapping; the model takes x, the data has a, b$"),
        ({"outputMapping": {"total": "s"}}, "^outputMapping: the model has no output 'total'; it has sum, first$"),
        ({"inputMapping": {"a": "z", "b": "b"}}, "^inputMapping: the model has no input 'z'; it has a, b$"),
        ({"inputMapping": {"a": "b", "b": "b"}}, "two columns are for the input 'b'"),
        ({"inputCols": ["a", "c"]}, "^inputCols: there is no column 'c'; the data has a, b$"),
        ({"inputCols": ["a"]}, r"^inputCols: the model takes 2 inputs \(a, b\), not 1$"),
        ({"outputCols": ["p"]}, "^outputCols=.'p'.: names for 1 outputs, but the model has 2: "),
        ({"predictionCol": "p"}, "^predictionCol='p': the model has 2 outputs, .*; say which one with outputMapping="),
        ({"outputMapping": {"sum": "a"}}, "^column 'a' is there already: choose another name with predictionCol"),
        ({"modelPath": "/no/such.keras"}, "^modelPath='/no/such.keras': there is no such file or folder on"),
        ({"modelPath": None}, "^modelPath is not set, so there is no model to score with: call setModelPath"),
    ],
)
def test_what_does_not_fit_is_refused_before_any_row_is_scored(models, pairs, params, message):
    kept = models.exported if "inputMapping" in params and params["inputMapping"] is None else models.two
    with pytest.raises(ConfigError, match=message):
        TFModel(**{"modelPath": kept, **params}).transform(pairs)
    with pytest.raises(ConfigError, match=r"^transform\(list\): a Spark DataFrame is needed"):
        TFModel(modelPath="x").transform([1])


def test_a_stopped_session_is_told_before_anything_is_asked_of_it(tmp_path):
    session = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    df = SimpleNamespace(sparkSession=session, mapInArrow=None)
    for call, name in (
        (lambda: TFModel(modelPath="x").transform(df), "transform"),
        (lambda: TFEstimator(functions.fail).fit(df), "fit"),
        (lambda: tfos_lab.predict(df, "x.keras"), "predict"),
        (lambda: tfos_lab.data.write_tfrecords(df, tmp_path / "rows"), "write_tfrecords"),
    ):
        with pytest.raises(
            NoSession, match=rf"^{name}\(df\): the SparkSession of the DataFrame was stopped\. Make another"
        ):
            call()
    with pytest.raises(NoSession, match=r"^the SparkSession was stopped\. Make one with"):
        tfos_lab.data.read_tfrecords(session, tmp_path)


def test_paths_mean_this_machine_s_files_and_else_the_session_s_file_system_as_for_predict(models, rows):
    configuration = rows.sparkSession.sparkContext._jsc.hadoopConfiguration()
    before = configuration.get("fs.defaultFS")
    configuration.set("fs.defaultFS", "hdfs://nowhere.invalid:8020")
    try:
        here, there = models.three, "/models/none.keras"
        for score in (
            lambda path: TFModel(modelPath=path).transform(rows),
            lambda path: tfos_lab.predict(rows, path, "features", output="prediction"),
        ):
            assert column(score(here), "prediction") == column(rows, "label")
            with pytest.raises(ConfigError, match=r"'hdfs://nowhere.invalid:8020/models/none.keras': "):
                score(there)
    finally:
        configuration.set("fs.defaultFS", before)


# ---- saving and loading ----------------------------------------------------------------------------------------------


def test_a_saved_model_has_its_files_and_params(spark, models, tmp_path):
    original = shutil.copy(models.three, tmp_path / "original.keras")
    model = TFModel(modelPath=original, predictionCol="p", inputMapping={"a": "x"})
    model.setCustomObjects({"swish": functions.fail})
    model.history, model.run_dir = {"loss": [1.0, 0.5]}, tmp_path
    model.save(str(tmp_path / "saved"))
    Path(original).unlink()
    loaded = TFModel.load(str(tmp_path / "saved"))
    assert loaded.getModelPath() == str(tmp_path / "saved" / "model.keras")
    assert Path(loaded.getModelPath()).read_bytes() == Path(models.three).read_bytes()
    assert (loaded.uid, loaded.getPredictionCol(), loaded.getInputMapping()) == (model.uid, "p", {"a": "x"})
    assert (loaded.history, loaded.run_dir) == ({"loss": [1.0, 0.5]}, tmp_path)
    assert loaded.getCustomObjects() == {"swish": functions.fail}
    assert not loaded.isSet("outputCols")
    metadata = json.loads(spark.read.text(str(tmp_path / "saved" / "metadata")).first()[0])
    assert metadata["class"] == "tfos_lab.ml.model.TFModel"


def test_a_saved_model_can_be_saved_again_even_over_itself(spark, models, tmp_path):
    folder = str(tmp_path / "saved")
    TFModel(modelPath=models.exported).save(folder)
    with pytest.raises(ConfigError, match=r"is there already: .* write\(\).overwrite\(\).save\(path\)$"):
        TFModel.load(folder).save(folder)
    loaded = TFModel.load(folder).setPredictionCol("p")
    loaded.write().overwrite().save(folder)
    again = TFModel.load(folder)
    assert again.getPredictionCol() == "p"
    assert (Path(again.getModelPath()) / "saved_model.pb").is_file()


def test_an_estimator_is_saved_with_its_function_and_arguments(spark, tmp_path):
    factor = 3

    def train(args, ctx):
        return factor * args.lr

    estimator = TFEstimator(train, {"lr": 2}, epochs=5, masterNode=None, env={"A": "b"})
    estimator.save(str(tmp_path / "saved"))
    loaded = TFEstimator.load(str(tmp_path / "saved"))
    assert (loaded.uid, loaded.getEpochs(), loaded.getMasterNode(), loaded.getEnv()) == (
        estimator.uid,
        5,
        None,
        {"A": "b"},
    )
    assert loaded.getArgs() == {"lr": 2}
    assert loaded.train_fn(type("Args", (), {"lr": 2}), None) == 6


def test_pipelines_and_validators_are_saved_with_our_stages(spark, models, tmp_path):
    from pyspark.ml import Pipeline, PipelineModel
    from pyspark.ml.evaluation import RegressionEvaluator
    from pyspark.ml.feature import VectorAssembler
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    estimator = TFEstimator(functions.keep_model, {"model": models.one})
    pipeline = Pipeline(stages=[VectorAssembler(inputCols=["a"], outputCol="features"), estimator])
    grid = ParamGridBuilder().addGrid(estimator.batchSize, [8, 16]).build()
    validator = CrossValidator(estimator=pipeline, estimatorParamMaps=grid, evaluator=RegressionEvaluator())
    validator.save(str(tmp_path / "validator"))
    loaded = CrossValidator.load(str(tmp_path / "validator"))
    assert loaded.getEstimator().getStages()[1].train_fn is functions.keep_model
    assert [list(each.values()) for each in loaded.getEstimatorParamMaps()] == [[8], [16]]
    assert {param.parent for each in loaded.getEstimatorParamMaps() for param in each} == {estimator.uid}
    PipelineModel([TFModel(modelPath=models.one)]).save(str(tmp_path / "model"))
    (model,) = PipelineModel.load(str(tmp_path / "model")).stages
    assert isinstance(model, TFModel)
    assert model.getModelPath().startswith(str(tmp_path / "model" / "stages"))


def test_what_cannot_be_saved_leaves_nothing(spark, tmp_path):
    with pytest.raises(ConfigError, match=r"^modelPath='/no/such': there is no model that this machine finds"):
        TFModel(modelPath="/no/such").save(str(tmp_path / "saved"))
    with pytest.raises(ConfigError, match=r"^modelPath is not set"):
        TFModel().save(str(tmp_path / "saved"))
    with pytest.raises(PayloadError, match=r"lock"):
        TFEstimator(functions.fail, {"lock": threading.Lock()}).save(str(tmp_path / "saved"))
    assert not (tmp_path / "saved").exists()


def test_what_was_not_saved_here_cannot_be_loaded(spark, models, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an empty path would be this folder
    with pytest.raises(ConfigError, match=r"^path='/no/such': there is no saved TFModel"):
        TFModel.load("/no/such")
    with pytest.raises(
        ConfigError, match=rf"no saved TFModel, .*; a model itself .* TFModel\(modelPath='{models.one}'\)$"
    ):
        TFModel.load(str(models.one))
    for call in (TFModel.load, TFModel(modelPath=models.one).write().overwrite().save):
        for path in ("", None):
            with pytest.raises(ConfigError, match=f"^path={path!r}: the path of a folder or a file is needed$"):
                call(path)
    TFModel(modelPath=models.one).save(tmp_path / "saved")
    with pytest.raises(ConfigError, match=r"a TFModel was saved there; load it with TFModel.load\(path\)$"):
        TFEstimator.load(str(tmp_path / "saved"))


def test_a_model_is_loaded_into_this_process_and_trained_further(rows, models, tmp_path):
    TFModel(modelPath=models.three).save(str(tmp_path / "saved"))
    model = TFModel.load(str(tmp_path / "saved")).model()
    assert model.get_weights()[0].tolist() == [[3.0], [3.0]]
    with pytest.raises(ConfigError, match=r"^modelPath='/no/such': there is no model"):
        TFModel(modelPath="/no/such").model()
    (tmp_path / "not.keras").write_text("text")
    with pytest.raises(ConfigError, match=r"^modelPath='/.*/not.keras' is no file that Keras has written"):
        TFModel(modelPath=str(tmp_path / "not.keras")).model()
    with pytest.raises(ConfigError, match=r"^model= is not compiled; call model.compile\("):
        TFEstimator(model=model).fit(rows)
    # A model is trained from the weights that it has, and is saved with its estimator.
    model.compile("sgd", "mse")
    TFEstimator(model=model, show=False).save(str(tmp_path / "estimator"))
    trained = TFEstimator.load(str(tmp_path / "estimator")).fit(rows)
    assert trained.history["loss"] == [pytest.approx(0, abs=1e-6)]
    assert trained.model().get_weights()[0].tolist() == [[3.0], [3.0]]
