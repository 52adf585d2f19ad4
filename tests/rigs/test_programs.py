"""Whole programs on a real YARN whose files are all on HDFS: from CSV to predictions, by tfos_lab and unchanged.

The unchanged one is in ``tests/compat/programs``. The others are made of what users write, step by step.
"""

import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tfos_lab
from tests.rigs.yarn import ONE_CONTAINER, jars, place_on
from tests.support.bare_python import make_bare_python
from tests.support.spark_home import spark_environment, spark_home
from tfos_lab import ml
from tfos_lab.compat import pipeline
from tfos_lab.data import read_tfrecords, write_tfrecords

pytestmark = [
    pytest.mark.tensorflow,
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword"),
]

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "compat" / "programs"
PATIENCE_S = 120.0
PROGRAM_S = 600

# ---- the Titanic way ------------------------------------------------------------------------------------------------

TITANIC = "hdfs:///titanic"
SCHEMA = "survived int, pclass int, sex string, age double, fare double, embarked string"
PASSENGERS = 300
RECORDS = "survived float, pclass bigint, sex string, age float, fare float, embarked string"


def make_rows():
    """Return rows of the shape that Kaggle's have."""
    chance = random.Random(7)
    rows = []
    for _ in range(PASSENGERS):
        sex, pclass = chance.choice(["female", "male"]), chance.choice([1, 2, 3])
        age = chance.choice([None, round(chance.uniform(1, 70), 1)])
        fare = round(chance.uniform(5, 200) / pclass, 2)
        rows.append((int(sex == "female" or pclass == 1), pclass, sex, age, fare, chance.choice(["C", "Q", "S"])))
    return rows


@pytest.fixture(scope="module")
def passengers(yarn_spark):
    """Rows of the shape that Kaggle's have, as CSV on HDFS, and read from there."""
    yarn_spark.createDataFrame(make_rows(), SCHEMA).coalesce(1).write.csv(f"{TITANIC}/csv", header=True)
    return yarn_spark.read.csv(f"{TITANIC}/csv", SCHEMA, header=True).fillna({"age": 30.0})


@pytest.fixture(scope="module")
def records(passengers):
    """Folders of TFRecords on HDFS: one of more files than there are nodes, and one of fewer."""
    rows = passengers.selectExpr(
        *(f"cast({name} as {kind}) {name}" for name, kind in map(str.split, RECORDS.split(", ")))
    )
    write_tfrecords(rows.repartition(3), f"{TITANIC}/three")
    write_tfrecords(rows.coalesce(1), f"{TITANIC}/one")
    return f"{TITANIC}/three", f"{TITANIC}/one"


def inputs(pclass, sex, age, fare):
    """Return what the wide part and the deep one take."""
    import tensorflow as tf

    wide = tf.concat([tf.one_hot(pclass, 4), tf.cast(sex == "female", tf.float32)[..., None]], -1)
    return wide, tf.stack([age / 30.0, tf.math.log1p(fare)], -1)


def parse(record):
    """Return the inputs of the wide part and of the deep one, and whether a passenger survived."""
    import tensorflow as tf

    kinds = {"survived": "float32", "pclass": "int64", "sex": "string", "age": "float32", "fare": "float32"}
    features = {name: tf.io.FixedLenFeature((), kind) for name, kind in kinds.items()}
    one = tf.io.parse_single_example(record, features)
    return inputs(one["pclass"], one["sex"], one["age"], one["fare"]), one["survived"]


def make_model():
    """Return a compiled wide & deep model, each of whose parts has an optimizer of its own."""
    import tensorflow as tf

    wide = tf.keras.experimental.LinearModel()
    deep = tf.keras.Sequential([tf.keras.layers.Dense(8, "relu"), tf.keras.layers.Dense(1)])
    model = tf.keras.experimental.WideDeepModel(wide, deep, activation="sigmoid")
    optimizers = [tf.keras.optimizers.Ftrl(0.5), tf.keras.optimizers.Adagrad(0.1)]
    model.compile(optimizers, "binary_crossentropy", metrics=["accuracy"])
    return model


def wide_and_deep(args, ctx):
    """Train a wide & deep model on this node's files, and write event files and model by TensorFlow's own calls.

    Then count this node's share of the rows of fewer files.
    """
    import tensorflow as tf

    tf.keras.utils.set_random_seed(7)
    with ctx.strategy().scope():
        model = make_model()
    files = ctx.files(args["records"])
    rows = tf.data.Dataset.from_tensor_slices(files).interleave(tf.data.TFRecordDataset).map(parse).batch(10)
    board = tf.keras.callbacks.TensorBoard(f"{args['out']}/logs", histogram_freq=1)
    history = model.fit(ctx.even(rows), epochs=3, callbacks=[*ctx.callbacks(), board], verbose=0)

    kinds = {"pclass": tf.int64, "sex": tf.string, "age": tf.float32, "fare": tf.float32}

    @tf.function(input_signature=[tf.TensorSpec([None], kind, name) for name, kind in kinds.items()])
    def serve(pclass, sex, age, fare):
        return {"survived": model(inputs(pclass, sex, age, fare))[:, 0]}

    model.save(ctx.model_dir(f"{args['out']}/saved"), include_optimizer=False)
    tf.saved_model.save(model, ctx.model_dir(f"{args['out']}/export"), signatures={"serving_default": serve})

    try:
        problem = ctx.files(args["one"])
    except ValueError as error:
        problem = str(error)
    one = tf.data.Dataset.list_files(f"{args['one']}/part*", shuffle=False)
    shared = sum(1 for _ in ctx.shard(one.interleave(tf.data.TFRecordDataset)))
    return {"files": files, "accuracy": history.history["accuracy"][-1], "problem": problem, "shared": shared}


@pytest.fixture(scope="module")
def trained(yarn_spark, records):
    """What the nodes of the Titanic's cluster have returned."""
    args = {"records": records[0], "one": records[1], "out": f"{TITANIC}/out"}
    with tfos_lab.run(
        wide_and_deep, args, cluster_size=2, spark=yarn_spark, env={"TF_USE_LEGACY_KERAS": "1"}
    ) as cluster:
        return list(cluster.wait(PATIENCE_S).values())


def list_files(spark, folder):
    """Return the paths of all files below a folder, as Spark finds them."""
    files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(folder)
    return {row.path.partition(f"{folder.removeprefix('hdfs://')}/")[2] for row in files.select("path").collect()}


def test_csv_becomes_tfrecords_on_hdfs(yarn_spark, records):
    for folder, files in zip(records, (3, 1), strict=True):
        assert len([path for path in list_files(yarn_spark, folder) if path.startswith("part-")]) == files
        back = read_tfrecords(yarn_spark, folder)
        assert back.count() == PASSENGERS
        assert {*back.columns} == {"survived", "pclass", "sex", "age", "fare", "embarked"}


def test_nodes_read_their_own_files_and_learn(trained, yarn, records):
    shares = [result["files"] for result in trained]
    assert sorted(map(len, shares)) == [1, 2]
    assert len({*shares[0], *shares[1]}) == 3
    assert all(file.startswith(records[0].replace("hdfs://", yarn.hdfs)) for share in shares for file in share)
    assert min(result["accuracy"] for result in trained) > 0.8


def test_nodes_share_the_rows_of_fewer_files(trained):
    for result in trained:
        assert "1 file for 2 nodes that train" in result["problem"]
        assert "ctx.shard(dataset)" in result["problem"]
        assert result["shared"] == PASSENGERS // 2


def test_event_files_and_models_are_on_hdfs(trained, yarn_spark):
    paths = list_files(yarn_spark, f"{TITANIC}/out")
    assert any(re.match(r"logs/train/events\.out\.tfevents\.", path) for path in paths)
    assert {"saved/saved_model.pb", "export/saved_model.pb"} <= paths


def test_predictions_are_written_back_to_hdfs(trained, yarn_spark, passengers):
    rows = passengers.withColumnRenamed("survived", "truth")
    scored = tfos_lab.predict(rows, f"{TITANIC}/out/export", output="chance")
    scored.select("truth", "chance").write.csv(f"{TITANIC}/predictions")
    back = yarn_spark.read.csv(f"{TITANIC}/predictions", "truth int, chance double").collect()
    assert len(back) == PASSENGERS
    assert np.mean([row.truth == (row.chance > 0.5) for row in back]) > 0.8


# ---- stages of Spark ML ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def points(yarn_spark):
    """Points of a plane: two coordinates, and what a model is to tell of them."""
    rows = [([i / 64.0, (i * 7 % 64) / 64.0], 2.0 * i / 64.0 - (i * 7 % 64) / 64.0 + 1.0) for i in range(64)]
    # In one partition: each task that scores has a worker of Spark's, which imports TensorFlow.
    return yarn_spark.createDataFrame(rows, "features array<double>, label double").coalesce(1)


def make_plane():
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,), name="features"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.3), "mse")
    return model


def test_an_estimator_s_model_is_exported_saved_and_loaded_on_hdfs(yarn_spark, yarn, points):
    estimator = ml.TFEstimator(
        model=make_plane,
        labelCol="label",
        epochs=8,
        batchSize=4,
        clusterSize=2,
        exportDir="hdfs:///ml/export",
        show=False,
    )
    model = estimator.fit(points)
    assert model.getModelPath() == f"{yarn.hdfs}/ml/export/model.keras"
    model.transform(points).select("label", "prediction").write.parquet("hdfs:///ml/scored")
    scored = yarn_spark.read.parquet("hdfs:///ml/scored").collect()
    assert max(abs(row.label - row.prediction) for row in scored) < 0.3
    model.write().overwrite().save("hdfs:///ml/saved")
    loaded = ml.TFModel.load("hdfs:///ml/saved")
    assert sorted(loaded.transform(points).select("label", "prediction").collect()) == sorted(scored)
    for ours, theirs in zip(loaded.model().get_weights(), model.model().get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# ---- through tfos_lab.compat ----------------------------------------------------------------------------------------


def train_plane(args, ctx):
    """Train on fed rows, and leave checkpoints and an exported model on HDFS, as programs for TFEstimator do."""
    import tensorflow as tf

    from tfos_lab.compat import TFNode, compat

    feed = TFNode.DataFeed(ctx.mgr, input_mapping=args.input_mapping)
    x, y = [], []
    while not feed.should_stop():
        batch = feed.next_batch(args.batch_size)
        x += batch["x"]
        y += batch["y"]
    model = tf.keras.Sequential([tf.keras.Input([2], name="x"), tf.keras.layers.Dense(1, name="y")])
    model.compile(tf.keras.optimizers.SGD(0.3), "mse")
    model.fit(tf.constant(x), tf.constant(y), epochs=20, batch_size=8, verbose=0)
    if ctx.job_name == "chief":
        tf.train.Checkpoint(model=model).save(f"{ctx.absolute_path(args.model_dir)}/plane")
    compat.export_saved_model(model, TFNode.hdfs_path(ctx, args.export_dir), ctx.job_name == "chief")


def test_a_pipeline_of_tensorflowonspark_has_its_models_on_hdfs(yarn_spark, points):
    estimator = (
        pipeline.TFEstimator(train_plane, {})
        .setInputMapping({"features": "x", "label": "y"})
        .setModelDir("hdfs:///ml/checkpoints")
        .setExportDir("hdfs:///ml/plane")
        .setClusterSize(2)
        .setMasterNode("chief")
        .setBatchSize(8)
        .setGraceSecs(1)
    )
    model = estimator.fit(points)
    assert {"plane-1.index", "checkpoint"} <= list_files(yarn_spark, "hdfs:///ml/checkpoints")
    model.setInputMapping({"features": "x"}).setOutputMapping({"y": "found"})
    model.transform(points).rdd.map(lambda row: f"{row.found[0]:.6f}").saveAsTextFile("hdfs:///ml/found")
    found = [float(line.value) for line in yarn_spark.read.text("hdfs:///ml/found").collect()]
    assert len(found) == 64
    without_a_scheme = pipeline.TFModel({}).setModelDir("/ml/plane").setInputMapping({"features": "x"})
    again = without_a_scheme.setOutputMapping({"y": "found"}).transform(points).collect()
    np.testing.assert_allclose(sorted(found), sorted(row.found[0] for row in again), atol=1e-5)
    assert pipeline.get_meta_graph_def("hdfs:///ml/plane", "serve").signature_def


# ---- unchanged ------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(PROGRAM_S + 60)
def test_a_program_of_tensorflowonspark_runs_unchanged(spark_sessions, yarn, tmp_path):
    """It is given to spark-submit, and the executors have no tfos_lab installed."""
    spark_sessions.close()  # the cluster has room for one application
    (hadoop_format,) = (jar for jar in jars() if jar.name.startswith("tensorflow-hadoop-"))
    place = place_on(yarn)
    del place.conf["spark.python.daemon.module"]  # it is one of tfos_lab's
    conf = place.conf | ONE_CONTAINER
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    options += ["--conf", "spark.ui.enabled=false", "--jars", hadoop_format]
    wrapper = ROOT / "tfos_lab" / "compat" / "__main__.py"
    environ = spark_environment(tmp_path / "local", python=make_bare_python(tmp_path / "bare"))
    done = subprocess.run(
        [spark_home() / "bin" / "spark-submit", "--master", "yarn", *options, wrapper, PROGRAMS / "mnist_on_hdfs.py"],
        env={**environ, **place.env, "PYSPARK_DRIVER_PYTHON": sys.executable, "TFOS_LAB_RUNS": str(tmp_path / "runs")},
        cwd=tmp_path,
        timeout=PROGRAM_S,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert re.findall(r"^(?:records|by_\w+): .*", done.stdout, re.MULTILINE) == [
        "records: 240",
        "by_files: 240 rows, 240 right",
        "by_rows: 240 rows, 240 right",
        "by_tasks: 240 rows, 240 right",
    ]
