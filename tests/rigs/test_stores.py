"""Files on servers of S3's, Azure's and Google's protocols: TensorFlow's own calls, keys of sessions, wrong ones."""

import os
import re
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import pyarrow as pa
import pytest

import tfos_lab
from tests.gfile.operations import OPERATIONS, expected_outcome, outcome
from tests.rigs.stores import azure_server, google_server, s3_server
from tests.rigs.yarn import RigMissing
from tests.support import records
from tests.support.clusters import running_clusters
from tests.support.lazy import Lazy
from tfos_lab.data.file_systems import open_path
from tfos_lab.errors import ConfigError

tf = Lazy("tensorflow")

pytestmark = pytest.mark.tensorflow


PATIENCE_S = 120.0
SERVERS = {"s3": s3_server, "azure": azure_server, "google": google_server}
# Azure's files grow; those of the others do not.
NO_APPEND = {"append": ("UnimplementedError", 12)}
UNLIKE_A_DISK = {"s3": NO_APPEND, "google": NO_APPEND}
VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_")


@pytest.fixture(scope="module")
def store_servers(tmp_path_factory):
    """A function that returns the server of a name, which runs until the module ends."""
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(SERVERS[name](tmp_path_factory.mktemp(name))))


@pytest.fixture(scope="module", params=SERVERS)
def store(request, store_servers):
    try:
        return store_servers(request.param)
    except RigMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in [name for name in os.environ if name.startswith(VARIABLES)]:
        monkeypatch.delenv(name)
    before = {*os.environ}
    yield
    for name in {*os.environ} - before:  # what a session has brought
        os.environ.pop(name)


@pytest.fixture
def keys(store, monkeypatch):
    """The server and its key are in this process' variables."""
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    tfos_lab.gfile.register()


@pytest.fixture
def no_session(spark_sessions):
    """Nodes are this machine's: no session is there whose executors they would be."""
    spark_sessions.close()


@pytest.fixture
def folder(store, tmp_path):
    return f"{store.address.format('bucket')}{tmp_path}"


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_tensorflow_s_own_file_system_answers_these_stores_answer(name, store, folder, tmp_path):
    expected = UNLIKE_A_DISK.get(store.name, {}).get(name) or expected_outcome(name, tmp_path / "native")
    assert outcome(OPERATIONS[name], f"{folder}/x") == expected


@pytest.mark.usefixtures("keys")
def test_models_checkpoints_and_event_files_are_written_and_read(folder):
    import keras

    folder = folder.replace("s3://", "s3a://")  # as Spark has it
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
    (events,) = tf.io.gfile.glob(f"{folder}/events/train/*.tfevents.*")
    assert len(list(tf.data.TFRecordDataset(events))) > 2
    assert tf.io.gfile.exists(f"{folder}/best.weights.h5")
    kept = tf.train.Checkpoint(step=tf.Variable(7)).save(f"{folder}/kept/at")
    step = tf.Variable(0)
    tf.train.Checkpoint(step=step).restore(tf.train.latest_checkpoint(f"{folder}/kept")).assert_consumed()
    assert (step.numpy(), kept) == (7, f"{folder}/kept/at-1")


@pytest.mark.usefixtures("keys")
def test_written_records_are_in_place_when_they_are_committed(folder):
    records.write(f"{folder}/records", pa.RecordBatch.from_pydict({"x": [1, 2]}))
    (part,) = tf.io.gfile.glob(f"{folder}/records/part-*")
    assert len(list(tf.data.TFRecordDataset(part))) == 2


@pytest.mark.usefixtures("keys")
def test_runs_are_kept_and_found(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))

    def work(args, ctx):
        ctx.report(1, loss=0.5)
        Path(ctx.output_dir, "notes.txt").write_text("kept")

    store = f"{folder}/kept"
    with tfos_lab.run(work, local="inline", run_store=store) as cluster:
        cluster.wait()
    assert tfos_lab.runs(store)["outcome"].tolist() == ["done"]
    run = tfos_lab.runs()[f"{store}/{cluster.run_dir.name}"]
    assert run.metrics["loss"].tolist() == [0.5]
    assert (run.output_dir / "notes.txt").read_text() == "kept"


# ---- keys of the session --------------------------------------------------------------------------------------------


def write_files_and_sum_rows(folders, ctx):
    """Write to each store with TensorFlow, and sum the rows that the node is fed from each, of both kinds."""
    import tensorflow as tf

    for folder in folders:
        with tf.io.gfile.GFile(f"{folder}/{ctx.node}", "w") as file:
            file.write(f"of {ctx.node}")
    texts = {tf.io.gfile.GFile(f"{folder}/{ctx.node}").read() for folder in folders}
    of_batch = lambda batch: float(batch["x"].numpy() @ batch["sample_weight"].numpy())  # noqa: E731
    return texts, [sum(map(of_batch, ctx.dataset(4))) for _ in range(2 * len(folders))]


ROWS = {"a.csv": "x\n1\n2\n4", "b.csv": "x\n8.5\n", "a.json": '{"x": 1}\n\n{"x": 2}', "b.json": ""}


def test_the_session_s_keys_reach_nodes_that_read_files_and_the_notebook_and_no_log_or_record(
    new_spark, store_servers, tmp_path
):
    """One session has the keys of all stores in its settings; this process' variables do not have them."""
    stores = []
    for name in SERVERS:
        with suppress(RigMissing):  # others have skipped for it, and said why
            stores.append(store_servers(name))
    folders = [f"{store.address.format('bucket')}{tmp_path}/keys" for store in stores]
    conf = {name: value for store in stores for name, value in store.hadoop_conf.items()}
    with running_clusters({"spark": new_spark("local[2]", conf=conf)}) as run:
        cluster = run(write_files_and_sum_rows, folders, log_dir=f"{folders[0]}/logs")
        for folder in folders:
            for name, text in ROWS.items():
                system, place = open_path(f"{folder}/{name}")
                with system.open_output_stream(place) as sink:
                    sink.write(text.encode())
            for kind in ("csv", "json"):
                cluster.train(f"{folder.replace('s3://', 's3a://')}/*.{kind}")
        results = cluster.wait(PATIENCE_S)
    assert {node: texts for node, (texts, _) in results.items()} == {node: {f"of {node}"} for node in results}
    sums = [sum(of_nodes) for of_nodes in zip(*(sums for _, sums in results.values()), strict=True)]
    assert sums == [15.5, 3.0] * len(folders)
    tfos_lab.gfile.register()
    for folder in folders:
        assert {*results, *ROWS} <= {*tf.io.gfile.listdir(folder)}
    assert tf.io.gfile.isdir(f"{folders[0]}/logs")
    kept = [path.read_bytes() for path in Path(cluster.run_dir).rglob("*") if path.is_file()]
    assert kept
    for secret in [secret for store in stores for secret in store.secrets]:
        assert not any(secret.encode() in text for text in [*kept, repr(cluster).encode()])


# ---- what is wrong --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("keys", "no_session")
def test_a_wrong_bucket_or_key_is_one_sentence_before_anything_starts(store, monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    misspelt, bucket = store.address.format("misspelt"), store.address.format("bucket")
    refused = [(misspelt, {}, "(?i)not.?found|not exist", tf.errors.NotFoundError)]
    if store.wrong:
        refused.append((bucket, store.wrong, "403|ACCESS_DENIED", tf.errors.PermissionDeniedError))
    for address, wrong, words, error in refused:
        for name, value in wrong.items():
            monkeypatch.setenv(name, value)
        for option in ("log_dir", "run_store"):
            with pytest.raises(ConfigError, match=rf"path='{address}/here'.* cannot write to it: ") as caught:
                tfos_lab.run(print, cluster_size=2, **{option: f"{address}/here"})
            assert re.search(words, str(caught.value))
            assert "\n" not in str(caught.value)
        with pytest.raises(error), tf.io.gfile.GFile(f"{address}/file", "w") as file:
            file.write("text")
        assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("keys", "no_session")
@pytest.mark.parametrize("store", ["s3"], indirect=True)
def test_a_server_that_is_not_there_is_one_sentence(store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    address = store.address.format("bucket")
    with pytest.raises(ConfigError, match=rf"path='{address}/logs'.* cannot write to it: .*connect") as caught:
        tfos_lab.run(print, cluster_size=2, log_dir=f"{address}/logs")
    assert "\n" not in str(caught.value)
