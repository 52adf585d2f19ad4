"""Training and scoring as stages of Spark ML pipelines, on a real Spark."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tfos_lab
from tests.support.tensorflow_process import in_tensorflow
from tfos_lab.compat import pipeline
from tfos_lab.errors import ConfigError, NodeFailed

WEIGHTS = [3.14, 1.618]
MODEL = """
class Module(tf.Module):
    def __init__(self):
        self.weights = tf.Variable([[3.14], [1.618]])

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def __call__(self, x):
        return {"y": tf.matmul(x, self.weights)}

    @tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="x")])
    def negative(self, x):
        return {"y": -tf.matmul(x, self.weights), "first": x[:, 0]}

module = Module()
tf.saved_model.save(module, arguments[0], {"serving_default": module.__call__, "negative": module.negative})
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    a = v1.placeholder(tf.float32, [None, 2], name="a")
    sum = tf.reduce_sum(a, axis=1) * v1.get_variable("factor", initializer=2.0)
    session.run(v1.global_variables_initializer())
    builder = v1.saved_model.builder.SavedModelBuilder(arguments[1])
    signature = v1.saved_model.signature_def_utils.predict_signature_def({"ins": a}, {"sum": sum})
    builder.add_meta_graph_and_variables(session, ["serve"], {"doubled": signature})
    builder.add_meta_graph(["serve", "gpu"], {"doubled": signature})
    builder.save()
answer = None
"""


def write_rows(args, ctx):
    """Write the rows that a node gets, and its arguments, to the model's folder."""
    import json
    import sys
    from pathlib import Path

    from tfos_lab.compat import TFNode

    feed = TFNode.DataFeed(ctx.mgr, input_mapping=None if isinstance(args, list) else args.input_mapping)
    batches = []
    while not feed.should_stop():
        batches.append(feed.next_batch(3))
    known = {"argv": sys.argv} if isinstance(args, list) else {"lr": args.lr, "batch_size": args.batch_size}
    folder = Path(args[1] if isinstance(args, list) else args.model_dir)
    (folder / f"{ctx.job_name}-{ctx.task_index}.json").write_text(json.dumps({"batches": batches, "known": known}))


@pytest.fixture
def rows(spark):
    return spark.createDataFrame([(float(i), [i, i + 1], f"row {i}") for i in range(4)], ["b", "a", "unused"]).coalesce(
        1
    )


def written(folder, node="chief-0"):
    return json.loads((folder / f"{node}.json").read_text())


def test_columns_are_fed_in_the_order_of_their_names(rows, tmp_path):
    estimator = pipeline.TFEstimator(write_rows, {"lr": 0.1, "batch_size": 5})
    estimator.setInputMapping({"b": "first", "a": "second"}).setModelDir(str(tmp_path)).setEpochs(2).setGraceSecs(0)
    model = estimator.fit(rows, {estimator.batch_size: 7})
    found = written(tmp_path)
    assert found["known"] == {"lr": 0.1, "batch_size": 7}
    joined = {name: [value for batch in found["batches"] for value in batch[name]] for name in ("first", "second")}
    assert joined == {"first": [0.0, 1.0, 2.0, 3.0] * 2, "second": [[0, 1], [1, 2], [2, 3], [3, 4]] * 2}
    assert isinstance(model, pipeline.TFModel)
    assert (model.getModelDir(), model.getBatchSize(), model.args.lr) == (str(tmp_path), 7, 0.1)
    assert model.getInputMapping() == {"b": "first", "a": "second"}


def test_a_command_line_is_that_of_the_nodes(rows, tmp_path):
    estimator = pipeline.TFEstimator(write_rows, ["program", str(tmp_path)])
    estimator.setInputMapping({"b": "x"}).setMasterNode("master").fit(rows)
    found = written(tmp_path, "master-0")
    assert found["known"]["argv"] == ["program", str(tmp_path)]
    assert [row for batch in found["batches"] for row in batch] == [[0.0], [1.0], [2.0], [3.0]]


def fail(args, ctx):
    """Fail while rows are fed."""
    raise ValueError("no such weights")


def test_a_training_that_fails_leaves_no_cluster(rows, tmp_path):
    before = set(tfos_lab.clusters())
    with pytest.raises(NodeFailed, match="no such weights"):
        pipeline.TFEstimator(fail, {}).setInputMapping({"b": "x"}).fit(rows)
    assert all(cluster.ended for cluster in set(tfos_lab.clusters()) - before)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ({}, r"^input_mapping is not set, so nothing says which column is which tensor: call setInputMapping\("),
        ({"c": "x"}, "^column 'c' is not in the data"),
    ],
)
def test_a_training_without_its_columns_starts_no_cluster(rows, mapping, message):
    before = len(tfos_lab.clusters())
    with pytest.raises(ConfigError, match=message):
        pipeline.TFEstimator(fail, {}).setInputMapping(mapping).fit(rows)
    assert len(tfos_lab.clusters()) == before


# ---- scoring ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A SavedModel with two signatures, and one of TensorFlow 1 with two graphs."""
    folder = tmp_path_factory.mktemp("exported")
    paths = str(folder / "model"), str(folder / "graphs")
    in_tensorflow(MODEL, *paths)
    return paths


@pytest.fixture
def tests(spark):
    return spark.createDataFrame([([1.0, 1.0], "a"), ([2.0, 0.0], "b")], ["c1", "c.2"]).coalesce(1)


@pytest.fixture
def model(exported):
    made = pipeline.TFModel({"batch_size": 3}).setExportDir(exported[0]).setTagSet("serve")
    return made.setInputMapping({"c1": "x"}).setOutputMapping({"y": "cout"})


@pytest.mark.tensorflow
def test_a_signature_scores_by_the_mappings(model, tests):
    scored = model.setSignatureDefKey("serving_default").transform(tests)
    assert scored.dtypes == [("cout", "array<double>")]
    assert [row.cout[0] for row in scored.collect()] == pytest.approx([sum(WEIGHTS), 2 * WEIGHTS[0]], abs=1e-5)
    both = model.setOutputMapping({"y": "a", "first": "b"}).setSignatureDefKey("negative").transform(tests)
    assert both.dtypes == [("b", "double"), ("a", "array<double>")]
    assert both.first()["a"][0] == pytest.approx(-sum(WEIGHTS), abs=1e-5)


@pytest.mark.tensorflow
def test_parameters_can_be_given_to_one_call(model, tests):
    scored = model.transform(tests, {model.signature_def_key: "negative", model.output_mapping: {"first": "b"}})
    assert [row.b for row in scored.collect()] == [1.0, 2.0]
    assert model.getSignatureDefKey() is None


@pytest.mark.tensorflow
def test_a_model_without_a_folder_for_exports_is_looked_for_in_its_own(exported, tests):
    model = pipeline.TFModel({}).setModelDir(exported[0]).setInputMapping({"c1": "x"}).setOutputMapping({"y": "y"})
    assert model.transform(tests).count() == 2


@pytest.mark.tensorflow
def test_a_graph_of_tensorflow_1_is_chosen_by_its_tags(exported, tests):
    model = pipeline.TFModel({}).setExportDir(f"file://{exported[1]}")
    model.setInputMapping({"c1": "ins"}).setOutputMapping({"sum": "s"}).setTagSet("serve,gpu")
    assert [row.s for row in model.transform(tests).collect()] == [4.0, 4.0]
    with pytest.raises(ConfigError, match=r"tag_set='': .*2 MetaGraphs"):
        model.copy({model.tag_set: ""}).transform(tests)


@pytest.mark.tensorflow
def test_a_graph_can_be_read_by_its_tags(exported):
    graph = pipeline.get_meta_graph_def(exported[1], "gpu,serve")
    assert list(graph.signature_def) == ["doubled"]
    with pytest.raises(
        RuntimeError, match=r"tag_set='train': the SavedModel in .* has graphs with the tags serve; gpu,"
    ):
        pipeline.get_meta_graph_def(exported[1], "train")


def test_parameters_that_are_missing_are_named_at_once(spark, tests):
    with pytest.raises(ConfigError) as raised:
        pipeline.TFModel({}).setBatchSize(0).transform(tests)
    assert [problem.partition(":")[0] for problem in raised.value.problems] == [
        "neither export_dir nor model_dir is set",
        "input_mapping is not set, so nothing says which column is which tensor",
        "output_mapping is not set, so nothing says which output is which column",
        "batch_size=0",
    ]
    with pytest.raises(ConfigError, match="two outputs are for the column 'c'"):
        pipeline.TFModel({}).setExportDir("x").setInputMapping({"a": "x"}).setOutputMapping(
            {"y": "c", "z": "c"}
        ).transform(tests)


# ---- both ------------------------------------------------------------------------------------------------------------


def train_line(args, ctx):
    """Fit a line with Keras on all workers, and export it."""
    import keras
    import tensorflow as tf

    from tfos_lab.compat import TFNode, compat

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        inputs = keras.Input((2,), name="features")
        model = keras.Model(inputs, keras.layers.Dense(1, name="line")(inputs))
        model.compile(loss="mse", optimizer=keras.optimizers.Adam(learning_rate=0.2))
    feed = TFNode.DataFeed(ctx.mgr, input_mapping=args.input_mapping)

    def generate():
        while not feed.should_stop():
            batch = feed.next_batch(1)
            if len(batch["x"]) > 0:
                yield batch["x"][0], batch["y_"][0]

    spec = tf.TensorSpec([2], tf.float32), tf.TensorSpec([1], tf.float32)
    rows = tf.data.Dataset.from_generator(generate, output_signature=spec)
    options = tf.data.Options()
    compat.disable_auto_shard(options)
    rows = rows.with_options(options).batch(args.batch_size)
    model.fit(rows, epochs=1, steps_per_epoch=args.steps, verbose=0)
    compat.export_saved_model(model, args.export_dir, ctx.job_name == "chief")
    feed.terminate()


@pytest.mark.tensorflow
@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_a_pipeline_trains_and_scores(spark, tmp_path):
    from pyspark.ml import Pipeline

    features = np.random.default_rng(1).random((800, 2))
    examples = list(zip(features.tolist(), [[float(label)] for label in features @ WEIGHTS], strict=True))
    rows = spark.createDataFrame(examples, ["col1", "col2"]).repartition(4)
    estimator = pipeline.TFEstimator(train_line, {})
    estimator.setInputMapping({"col1": "x", "col2": "y_"}).setExportDir(str(tmp_path / "model"))
    estimator.setClusterSize(2).setMasterNode("chief").setBatchSize(2)
    # 180 steps end farther from the line than the tolerance for one beginning in seventy; 360 steps, for none.
    estimator.setEpochs(2).setSteps(360)
    (model,) = Pipeline(stages=[estimator]).fit(rows).stages
    model.setTagSet("serve").setSignatureDefKey("serving_default")
    model.setInputMapping({"c1": "features"}).setOutputMapping({"output_0": "cout"})
    tests = spark.createDataFrame([([1.0, 1.0],)], ["c1"])
    assert model.transform(tests).head().cout[0] == pytest.approx(sum(WEIGHTS), abs=0.05)
