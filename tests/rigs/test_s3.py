"""Files on a real S3 server: TensorFlow's own calls, keys from the session, and what is said of wrong ones."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tfos_lab
from tests.gfile.operations import OPERATIONS, expected_outcome, outcome
from tests.rigs.s3 import s3_server
from tests.rigs.yarn import RigMissing
from tests.support.clusters import running_clusters
from tfos_lab.data.file_systems import open_path
from tfos_lab.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

PATIENCE_S = 60.0
# A store has no files that grow, and an empty directory is what a trailing slash says.
UNLIKE_A_DISK = {"append": ("UnimplementedError", 12)}


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    try:
        with s3_server(tmp_path_factory.mktemp("s3")) as server:
            yield server
    except RigMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def keys(s3, monkeypatch):
    """The server and its keys are in this process' variables."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    tfos_lab.gfile.register()


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_tensorflow_s_own_file_system_answers_s3_answers(name, tmp_path):
    expected = UNLIKE_A_DISK.get(name) or expected_outcome(name, tmp_path / "native")
    assert outcome(OPERATIONS[name], f"s3://bucket{tmp_path}/x") == expected


@pytest.mark.usefixtures("keys")
def test_models_checkpoints_and_event_files_are_written_and_read(tmp_path):
    import keras

    folder = f"s3a://bucket{tmp_path}"
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rows = tf.data.Dataset.from_tensor_slices(([[1.0, 2.0]] * 8, [[3.0]] * 8)).batch(4)
    callbacks = [
        keras.callbacks.TensorBoard(f"{folder}/events"),
        keras.callbacks.ModelCheckpoint(f"{folder}/best.weights.h5", save_best_only=True, save_weights_only=True),
        keras.callbacks.BackupAndRestore(f"{folder}/backup"),
    ]
    model.fit(rows, validation_data=rows, epochs=2, verbose=0, callbacks=callbacks)
    model.save(f"{folder}/model.keras")
    model.export(f"{folder}/exported", verbose=False)
    weights = [part.tolist() for part in model.get_weights()]
    assert [part.tolist() for part in keras.models.load_model(f"{folder}/model.keras").get_weights()] == weights
    assert len(tf.saved_model.load(f"{folder}/exported").variables) == len(weights)
    assert tf.io.gfile.glob(f"{folder}/events/train/*.tfevents.*")
    assert tf.io.gfile.exists(f"{folder}/best.weights.h5")


@pytest.mark.usefixtures("keys")
def test_runs_are_kept_and_found(tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))

    def work(args, ctx):
        ctx.report(1, loss=0.5)
        Path(ctx.output_dir, "notes.txt").write_text("kept")

    store = f"s3a://bucket{tmp_path}/kept"
    with tfos_lab.run(work, local="inline", run_store=store) as cluster:
        cluster.wait()
    assert tfos_lab.runs(store)["outcome"].tolist() == ["done"]
    run = tfos_lab.runs()[f"{store}/{cluster.run_dir.name}"]
    assert run.metrics["loss"].tolist() == [0.5]
    assert (run.output_dir / "notes.txt").read_text() == "kept"


@pytest.mark.usefixtures("keys")
def test_a_bucket_for_runs_that_is_not_there_is_one_sentence():
    with pytest.raises(ConfigError, match=r"path='s3://nobody/runs': .* cannot write to it"):
        tfos_lab.run(lambda: None, local="inline", run_store="s3://nobody/runs")


# ---- keys of the session --------------------------------------------------------------------------------------------


def write_a_file_and_sum_rows(args, ctx):
    import tensorflow as tf

    with tf.io.gfile.GFile(f"{args}/{ctx.node}", "w") as file:
        file.write("here")
    text = tf.io.gfile.GFile(f"{args}/{ctx.node}").read()
    sums = [sum(float(batch["x"].numpy() @ batch["sample_weight"].numpy()) for batch in ctx.dataset(4)) for _ in "12"]
    return text, sums


def test_the_session_s_keys_reach_nodes_that_read_files_and_the_notebook_and_no_log_or_record(new_spark, s3, tmp_path):
    """They are in the session's settings; this process' variables do not have them."""
    folder = f"s3://bucket{tmp_path}/keys"
    with running_clusters({"spark": new_spark("local[2]", conf=s3.hadoop_conf)}) as run:
        cluster = run(write_a_file_and_sum_rows, folder, log_dir=f"{folder}/logs")
        system, place = open_path(f"s3a://bucket{tmp_path}/rows")
        for name, text in (
            ("a.csv", "x\n1\n2\n4"),
            ("b.csv", "x\n8.5\n"),
            ("a.json", '{"x": 1}\n\n{"x": 2}'),
            ("b.json", ""),
        ):
            with system.open_output_stream(f"{place}/{name}") as sink:
                sink.write(text.encode())
        for kind in ("csv", "json"):
            cluster.train(f"s3a://bucket{tmp_path}/rows/*.{kind}")
        texts, sums = zip(*cluster.wait(PATIENCE_S).values(), strict=True)
    assert {*texts} == {"here"}
    assert [sum(node) for node in zip(*sums, strict=True)] == [15.5, 3.0]
    tfos_lab.gfile.register()
    assert sorted(tf.io.gfile.listdir(folder)) == ["chief:0", "logs", "worker:0"]
    kept = [path.read_bytes() for path in Path(cluster.run_dir).rglob("*") if path.is_file()]
    assert kept
    assert not any(s3.secret.encode() in text or s3.key.encode() in text for text in kept)
    assert s3.secret not in repr(cluster)


@pytest.mark.parametrize(
    ("wrong", "bucket", "words"),
    [
        ({}, "none", "Bucket 'none' not found"),
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "bucket", "ACCESS_DENIED"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "bucket", "connect"),
    ],
    ids=["bucket", "key", "server"],
)
@pytest.mark.usefixtures("keys")
def test_a_wrong_address_or_key_is_one_sentence_before_anything_starts(wrong, bucket, words, monkeypatch, tmp_path):
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    with pytest.raises(ConfigError, match=rf"path='s3://{bucket}/logs'.* cannot write to it: .*{words}") as caught:
        tfos_lab.run(print, cluster_size=2, log_dir=f"s3://{bucket}/logs")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()
