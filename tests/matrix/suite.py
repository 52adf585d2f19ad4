"""What has to work with every version that `pyproject.toml` allows; ``make matrix`` runs it in an environment for each.

It is no part of ``make test``, which tests all of this, and more, with the locked versions.
"""

import datetime as dt
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

import tfos_lab
from tests.ordinary_models import models  # noqa: F401 - the models
from tests.ordinary_models.compare import assert_as_in_one_process, train_all
from tests.ordinary_models.declare import ORDINARY
from tests.support.clusters import running_clusters
from tests.support.eventually import eventually
from tests.support.unix_http import fetch_until
from tfos_lab.errors import ConfigError, NodeFailed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(400)]


def version_of(package):
    return tuple(int(number) for number in importlib.metadata.version(package).split(".")[:2])


SPARK = version_of("pyspark")
HAS_CONNECT = SPARK >= (4, 0) and importlib.util.find_spec("grpc_status") is not None
WAIT_S = 300


@pytest.fixture(params=["local", "standalone", *(["connect"] if HAS_CONNECT else [])])
def spark_mode(request):
    return request.param


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def run(spark):
    """``tfos_lab.run``, on two nodes."""
    with running_clusters({"spark": spark, "cluster_size": 2}) as start:
        yield start


# ---- training -------------------------------------------------------------------------------------------------------


def test_training_of_some_ordinary_models_is_that_of_one_process(spark, tmp_path):
    check_training([name for name, model in ORDINARY.items() if model.short], spark, tmp_path)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("spark_mode", ["local"])
def test_all_ordinary_models_learn_as_in_one_process(spark, tmp_path):
    check_training(list(ORDINARY), spark, tmp_path)


def check_training(names, spark, tmp_path):
    keras = "tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") else "keras"
    found = train_all(names, keras, 2, spark=spark, folder=tmp_path)
    failures = {name: why for name in names if (why := failure_of(found, name, keras))}
    assert not failures, "\n\n".join(f"{name}: {why}" for name, why in failures.items())


def failure_of(found, name, keras):
    """Return in which way a model is not as in one process though it has to be; those that are not exact may differ."""
    model = ORDINARY[name]
    if keras not in model.keras or model.not_exact.get(keras) or version_of(keras) < model.since:
        return ""
    try:
        assert_as_in_one_process(found, name)
    except AssertionError as error:
        return str(error)
    except pytest.skip.Exception:
        return ""
    return ""


# ---- rows in and out ------------------------------------------------------------------------------------------------


def count_rows(args, ctx):
    """Return how many rows this node has had, and their sum."""
    import tensorflow as tf

    rows = total = 0
    for batch in ctx.dataset(8):
        real = tf.math.logical_or(batch["sample_weight"] != 0, batch["sample_weight"] != 0)
        rows += int(tf.reduce_sum(tf.cast(real, tf.int64)))
        total += int(tf.reduce_sum(tf.boolean_mask(batch["x"], real)))
    return rows, total


def everything(results):
    """Add up what the nodes have returned."""
    return [sum(numbers) for numbers in zip(*results.values(), strict=True)]


def test_every_row_is_inferred_once_and_in_order(run, spark):
    def double(args, ctx):
        for batch in ctx.dataset(8):
            ctx.put_results({"double": 2 * batch["x"]})

    cluster = run(double)
    df = spark.range(0, 75, 1, 4).withColumnRenamed("id", "x")
    rows = cluster.inference(df).collect()
    cluster.wait(timeout=WAIT_S)
    assert [(row.x, row.double) for row in rows] == [(x, 2 * x) for x in range(75)]


def test_files_are_read_around_spark(run, spark, tmp_path):
    spark.range(0, 75, 1, 3).withColumnRenamed("id", "x").write.parquet(str(tmp_path / "rows"))
    cluster = run(count_rows)
    cluster.train(str(tmp_path / "rows"))
    assert everything(cluster.wait(timeout=WAIT_S)) == [75, 75 * 74 // 2]


def test_arrays_and_data_frames_of_pandas_are_fed(run, spark):
    import pandas as pd

    for data in (pd.DataFrame({"x": np.arange(75), "name": [f"row {x}" for x in range(75)]}), {"x": np.arange(75)}):
        cluster = run(count_rows)
        cluster.train(data)
        assert everything(cluster.wait(timeout=WAIT_S)) == [75, 75 * 74 // 2]


def test_rows_with_times_are_those_of_spark(run, spark):
    def read(args, ctx):
        feed, rows = ctx.data_feed(), []
        while not feed.should_stop():
            rows += feed.next_batch(4)
        return [(row[0], row[1].isoformat()) for row in rows]

    when = dt.datetime(2026, 11, 25, 12, 30, 15, 250)  # noqa: DTZ001 - as Spark gives them
    frame = spark.createDataFrame([(x, when + dt.timedelta(days=x)) for x in range(9)], "x long, when timestamp")
    cluster = run(read)
    cluster.train(frame)
    read_rows = sorted(tuple(row) for share in cluster.wait(timeout=WAIT_S).values() for row in share)
    assert read_rows == [(row.x, row.when.isoformat()) for row in sorted(frame.collect())]


# ---- TFRecord -------------------------------------------------------------------------------------------------------


def test_tfrecords_are_written_and_read_here_and_by_tensorflow(run, spark, tmp_path):
    folder = str(tmp_path / "records")
    written = [(x, x / 2, f"row {x}", [float(x), 1.0], bytes([x])) for x in range(50)]
    df = spark.createDataFrame(written, "x long, half float, name string, pair array<float>, raw binary").repartition(3)
    tfos_lab.data.write_tfrecords(df, folder, compression="gzip")
    back = tfos_lab.data.read_tfrecords(spark, folder, binary_features=["raw"])
    assert back.columns == ["half", "name", "pair", "raw", "x"]
    rows = sorted((row.x, row.half, row.name, row.pair, bytes(row.raw)) for row in back.collect())
    assert rows == written

    def read_and_write(folder, ctx):
        import tensorflow as tf

        parts = sorted(tf.io.gfile.glob(f"{folder}/part-*"))
        spec = {"x": tf.io.FixedLenFeature((), tf.int64)}
        records = tf.data.TFRecordDataset(parts, compression_type="GZIP")
        total = sum(int(tf.io.parse_single_example(record, spec)["x"]) for record in records)
        with tf.io.TFRecordWriter(f"{folder}-2/made.tfrecord") as writer:
            for x in range(5):
                feature = tf.train.Feature(int64_list=tf.train.Int64List(value=[x]))
                example = tf.train.Example(features=tf.train.Features(feature={"x": feature}))
                writer.write(example.SerializeToString())
        return total

    (tmp_path / "records-2").mkdir()
    results = run(read_and_write, folder, cluster_size=1).wait(timeout=WAIT_S)
    assert results["chief:0"] == sum(range(50))
    again = tfos_lab.data.read_tfrecords(spark, f"{folder}-2", "x int")
    assert sorted(row.x for row in again.collect()) == list(range(5))


def test_tfrecords_are_written_by_folders_and_a_write_that_fails_leaves_nothing(spark, tmp_path):
    folder = tmp_path / "records"
    df = spark.range(0, 30, 1, 3).selectExpr("id as x", "id % 3 as part")
    tfos_lab.data.write_tfrecords(df, str(folder), partition_by="part")
    read = tfos_lab.data.read_tfrecords(spark, str(folder))
    assert sorted((row.x, row.part) for row in read.collect()) == [(x, x % 3) for x in range(30)]
    assert sorted(row.x for row in read.where("part = 2").collect()) == list(range(2, 30, 3))
    with pytest.raises(ConfigError, match="is there already: use mode='overwrite' or mode='append'"):
        tfos_lab.data.write_tfrecords(df, str(folder))
    tfos_lab.data.write_tfrecords(df.where("x < 4"), str(folder), mode="overwrite")
    assert tfos_lab.data.read_tfrecords(spark, str(folder)).count() == 4
    with pytest.raises(Exception, match="divi"):
        tfos_lab.data.write_tfrecords(df.selectExpr("raise_error('divided')"), str(tmp_path / "failed"))
    assert not (tmp_path / "failed").exists()


def test_the_format_tfrecord_is_known_by_name_where_spark_has_such_formats(spark, tmp_path):
    if SPARK < (4, 0):
        with pytest.raises(ConfigError, match=r"Spark 3\.5\S* has no .*read_tfrecords.*Spark 4\.0"):
            tfos_lab.data.register_tfrecords(spark)
        return
    tfos_lab.data.register_tfrecords(spark)
    spark.range(10).write.format("tfrecord").mode("append").save(str(tmp_path / "records"))
    assert spark.read.format("tfrecord").load(str(tmp_path / "records")).count() == 10


# ---- Spark ML, scoring ----------------------------------------------------------------------------------------------


def train_a_line(args, ctx):
    """Train a model of one factor."""
    if os.environ.get("TF_USE_LEGACY_KERAS"):
        import tf_keras as keras
    else:
        import keras

    with ctx.strategy().scope():
        inputs = keras.Input((1,), name="x")
        model = keras.Model(inputs, keras.layers.Dense(1, use_bias=False)(inputs))
        model.compile(keras.optimizers.SGD(args.rate), loss="mse")
    rows = ctx.dataset(args.batchSize, label="label")
    history = model.fit(rows, epochs=ctx.epochs, verbose=0).history
    ctx.save_model(model)
    return history


def test_estimator_is_fitted_saved_loaded_and_transforms_as_scoring_does(spark, tmp_path):
    from tfos_lab.ml import TFEstimator, TFModel

    df = spark.createDataFrame([(x / 10, 3 * x / 10) for x in range(21)], "x float, label float").repartition(3)
    estimator = TFEstimator(train_a_line, {"rate": 0.3}, clusterSize=2, batchSize=4, epochs=15, show=False)
    estimator.save(str(tmp_path / "estimator"))
    loaded = TFEstimator.load(str(tmp_path / "estimator"))
    assert (loaded.uid, loaded.getEpochs(), loaded.getArgs()) == (estimator.uid, 15, {"rate": 0.3})
    model = loaded.setFeaturesCol("x").fit(df)
    model.setInputMapping({"x": "x"}).setPredictionCol("guess").save(str(tmp_path / "model"))
    again = TFModel.load(str(tmp_path / "model"))
    guesses = [(row.label, row.guess) for row in again.transform(df).collect()]
    assert len(guesses) == 21
    assert all(guess == pytest.approx(label, abs=0.1) for label, guess in guesses)
    scored = tfos_lab.predict(df, again.getModelPath(), output="guess")
    assert sorted(row.guess for row in scored.collect()) == pytest.approx(sorted(guess for _, guess in guesses))


# ---- the notebook ---------------------------------------------------------------------------------------------------

MAKE_SESSION = """
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
df = spark.range(0, 30, 1, 3).withColumnRenamed("id", "x")
"""
RUN_CELLS = """
import json, os, sys
import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in json.loads(sys.argv[1])])
sockets = Config(KernelManager={"transport": "ipc", "ip": os.path.abspath("kernel")})
NotebookClient(
    notebook, timeout=300, startup_timeout=120, iopub_timeout=120, allow_errors=True, config=sockets
).execute()
print(json.dumps([[output for output in cell.outputs] for cell in notebook.cells]))
"""


def test_a_cell_in_a_kernel_trains_shows_what_it_did_and_fails_with_its_line(spark_sessions, tmp_path):
    spark_sessions.close()
    cells = [
        "%load_ext tfos_lab",
        MAKE_SESSION,
        "%%tfos cluster_size=2 data=df\nsum(int(b['x'].numpy().sum()) for b in ctx.dataset(8, remainder='drop'))",
        "print(sum(cluster.results.values()), cluster.state)",
        "%%tfos cluster_size=2\nif ctx.task_index == 0 and not ctx.is_chief:\n    raise ValueError('as asked')",
        "%tfos doctor",
    ]
    command = [sys.executable, "-c", RUN_CELLS, json.dumps(cells)]
    printed = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True).stdout
    loaded, _, trained, told, failed, doctor = json.loads(printed.splitlines()[-1])
    assert loaded == []
    assert "done, 2/2 nodes done" in json.dumps(trained)
    total, state = told[0]["text"].split()
    assert state == "done"
    assert 0 < int(total) <= 435
    [error] = [output for output in failed if output["output_type"] == "error"]
    assert "as asked" in error["evalue"]
    assert "worker:0" in error["evalue"]
    assert "✗ versions" not in json.dumps(doctor, ensure_ascii=False)


# ---- storage --------------------------------------------------------------------------------------------------------


def test_tensorflow_saves_and_loads_at_an_address_that_it_does_not_know(run, tmp_path):
    def save(args, ctx):
        import importlib

        import tensorflow as tf

        keras = importlib.import_module(args["keras"])
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(2,))])
        model.compile("adam", "mse")
        folder = f"{args['folder']}/{ctx.worker_num}"
        tf.io.gfile.makedirs(folder)
        with tf.io.TFRecordWriter(f"{folder}/rows.tfrecord") as writer:
            for number in range(100):
                writer.write(b"%d" % number)
        files = tf.data.Dataset.list_files(f"{folder}/*.tfrecord")
        total = sum(int(row.numpy()) for row in files.interleave(tf.data.TFRecordDataset))
        model.save(f"{folder}/model.keras")
        manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), f"{folder}/checkpoints", max_to_keep=2)
        manager.save()
        loaded = keras.models.load_model(f"{folder}/model.keras")
        return total, loaded.count_params(), manager.latest_checkpoint == f"{folder}/checkpoints/ckpt-1"

    keras = "tf_keras" if os.environ.get("TF_USE_LEGACY_KERAS") else "keras"
    results = run(save, {"keras": keras, "folder": f"local://{tmp_path}/store"}).wait(timeout=WAIT_S)
    assert set(results.values()) == {(4950, 3, True)}


# ---- TensorBoard ----------------------------------------------------------------------------------------------------


def test_event_files_of_the_chief_are_shown_by_tensorboard(run, tmp_path):
    def report(args, ctx):
        for step in range(3):
            ctx.report(step=step, loss=1.0 / (step + 1))
        if ctx.is_chief:
            import tensorflow as tf

            with tf.summary.create_file_writer(ctx.log_dir).as_default():
                tf.summary.scalar("loss", 0.5, step=1)

    cluster = run(report, tensorboard=True, log_dir=str(tmp_path / "events"))
    cluster.wait(timeout=WAIT_S)
    unix_server = cluster.publisher.tensorboard_socket
    fetch_until(unix_server, "/data/plugin/scalars/tags", b"loss")
    cluster.publisher.close()


# ---- failures and the end -------------------------------------------------------------------------------------------


def test_a_failure_names_its_node_and_line_and_the_next_cluster_runs(run):
    def fail(args, ctx):
        if not ctx.is_chief:
            raise ValueError("as asked")
        time.sleep(60)

    with pytest.raises(NodeFailed, match="as asked") as raised:
        run(fail).wait(timeout=WAIT_S)
    assert "worker:0" in str(raised.value)
    assert dict(run(lambda args, ctx: ctx.task_index).wait(timeout=WAIT_S)) == {"chief:0": 0, "worker:0": 0}


def test_a_stop_ends_every_process(run, tmp_path):
    def wait_for_ever(folder, ctx):
        import os
        from pathlib import Path

        Path(folder, f"{os.getpid()}.pid").touch()
        time.sleep(10_000)

    cluster = run(wait_for_ever, str(tmp_path))
    eventually(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
    pids = [int(path.stem) for path in tmp_path.glob("*.pid")]
    cluster.stop(grace=0.0)
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]  # noqa: PTH110
