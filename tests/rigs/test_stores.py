"""Files on servers of Azure's and of Google's protocols: TensorFlow's own calls, keys of the session, wrong ones."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector
from pyspark.sql.types import LongType, StructField, StructType

import tfos_lab
from tests.gfile.operations import OPERATIONS, expected_outcome, outcome
from tests.rigs.stores import azure_server, google_server
from tests.rigs.yarn import RigMissing
from tests.support.clusters import running_clusters
from tests.support.quick import QUICK_ENV
from tfos_lab.data.file_systems import open_path
from tfos_lab.data.tfrecords.writing import batches_of, commit, start_write, write_task
from tfos_lab.errors import ConfigError

pytestmark = pytest.mark.tensorflow

tf = pytest.importorskip("tensorflow")

PATIENCE_S = 60.0
# Google's has no files that grow.
UNLIKE_A_DISK = {"google": {"append": ("UnimplementedError", 12)}}


@pytest.fixture(scope="module", params=[azure_server, google_server], ids=["azure", "google"])
def store(request, tmp_path_factory):
    try:
        with request.param(tmp_path_factory.mktemp("store")) as server:
            yield server
    except RigMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("AZURE_", "GOOGLE_", "STORAGE_"))]:
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
def folder(store, tmp_path):
    return f"{store.address.format('bucket')}{tmp_path}"


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("name", OPERATIONS)
def test_what_tensorflow_s_own_file_system_answers_these_stores_answer(name, store, folder, tmp_path):
    expected = UNLIKE_A_DISK.get(store.name, {}).get(name) or expected_outcome(name, tmp_path / "native")
    assert outcome(OPERATIONS[name], f"{folder}/x") == expected


@pytest.mark.usefixtures("keys")
def test_a_model_a_checkpoint_and_event_files_are_written_and_read(folder):
    import keras

    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1)])
    model.save(f"{folder}/model.keras")
    kept = tf.train.Checkpoint(step=tf.Variable(7)).save(f"{folder}/kept/at")
    with tf.summary.create_file_writer(f"{folder}/events").as_default():
        tf.summary.scalar("loss", 0.5, step=1)
    loaded = keras.models.load_model(f"{folder}/model.keras")
    assert [part.tolist() for part in loaded.get_weights()] == [part.tolist() for part in model.get_weights()]
    step = tf.Variable(0)
    tf.train.Checkpoint(step=step).restore(tf.train.latest_checkpoint(f"{folder}/kept")).assert_consumed()
    assert (step.numpy(), kept) == (7, f"{folder}/kept/at-1")
    (events,) = tf.io.gfile.glob(f"{folder}/events/*.tfevents.*")
    assert len(list(tf.data.TFRecordDataset(events))) == 2


@pytest.mark.usefixtures("keys")
def test_written_records_are_in_place_when_they_are_committed(folder):
    schema = StructType([StructField("x", LongType())])
    job = start_write({"path": f"{folder}/records"}, schema, overwrite=False)
    commit(job, write_task(job, batches_of([(1,), (2,)], schema), 0, 0))
    (part,) = tf.io.gfile.glob(f"{folder}/records/part-*")
    assert len(list(tf.data.TFRecordDataset(part))) == 2


def test_the_session_s_keys_reach_nodes_and_notebook_and_no_log_or_record(store, new_spark, tmp_path):
    def sum_of_rows(folder, ctx):
        from tfos_lab.data.file_systems import open_path

        system, place = open_path(f"{folder}/{ctx.node}")
        with system.open_output_stream(place) as file:
            file.write(b"here")
        feed, total = ctx.data_feed(), 0.0
        while not feed.should_stop():
            total += sum(row[0] for row in feed.next_batch(4))
        return total

    folder = f"{store.address.format('bucket')}{tmp_path}"
    session = new_spark("local[2]", conf=store.hadoop_conf)
    with running_clusters({"spark": session, "env": QUICK_ENV}) as run:
        cluster = run(sum_of_rows, folder, log_dir=f"{folder}/logs")
        system, place = open_path(folder)
        with system.open_output_stream(f"{place}/rows.csv") as sink:
            sink.write(b"x\n1\n2\n4.5\n")
        cluster.train(f"{folder}/*.csv")
        assert sum(cluster.wait(PATIENCE_S).values()) == 7.5
    assert {"chief:0", "worker:0"} <= {info.base_name for info in system.get_file_info(FileSelector(place))}
    kept = [path.read_bytes() for path in Path(cluster.run_dir).rglob("*") if path.is_file()]
    assert kept
    for secret in store.secrets:
        assert not any(secret.encode() in text for text in [*kept, repr(cluster).encode()])


@pytest.mark.usefixtures("keys")
def test_a_wrong_bucket_or_key_is_one_sentence_before_anything_starts(store, monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    misspelt = store.address.format("misspelt")
    refused = [(misspelt, {}, "(?i)not.?found|not exist", tf.errors.NotFoundError)]
    if store.wrong:
        refused.append((store.address.format("bucket"), store.wrong, "403", tf.errors.PermissionDeniedError))
    for address, wrong, words, error in refused:
        for name, value in wrong.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(ConfigError, match=rf"path='{address}/logs'.* cannot write to it: ") as caught:
            tfos_lab.run(print, cluster_size=2, log_dir=f"{address}/logs")
        assert re.search(words, str(caught.value))
        assert "\n" not in str(caught.value)
        with pytest.raises(error), tf.io.gfile.GFile(f"{address}/file", "w") as file:
            file.write("text")
        assert not (tmp_path / "runs").exists()
