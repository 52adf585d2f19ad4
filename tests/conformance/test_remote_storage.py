"""Event files, backups and restarts at a remote address.

It is on HDFS with YARN. Elsewhere it is ``local://``, which TensorFlow does not know either.
"""

import contextlib
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import tfos_lab.gfile
from tests.support.eventually import eventually
from tests.support.lazy import Lazy
from tests.support.unix_http import PATIENCE_S, fetch_until, write_events
from tfos_lab.errors import ConfigError, NodeFailed

tf = Lazy("tensorflow")
gfile = Lazy("tensorflow.io.gfile")

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow, pytest.mark.back_ends("inline", "local", "yarn")]


@pytest.fixture
def address(request, back_end, tmp_path):
    """A remote folder that is not there yet."""
    tfos_lab.gfile.register()
    root = request.getfixturevalue("yarn").hdfs if back_end.name == "yarn" else "local://"
    return f"{root}{tmp_path}/store"


def content(folder):
    """Return what is in the files below a folder, by their names."""
    files = [f"{parent}/{name}" for parent, _, names in gfile.walk(str(folder)) for name in names]
    return {file.removeprefix(f"{folder}/"): gfile.GFile(file, "rb").read() for file in files}


def train(args, ctx):
    """Write event files by Keras, by itself below ``event_dir``, and to the address directly; then wait, or fail."""
    import keras
    import tensorflow as tf

    if ctx.is_chief:
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=2, callbacks=ctx.callbacks(), verbose=0)
    node = ctx.node.replace(":", "-")
    for folder in (f"{ctx.event_dir}/own", f"{ctx.log_dir}/direct/{node}"):
        writer = tf.summary.create_file_writer(folder)
        with writer.as_default():
            tf.summary.scalar("accuracy", 0.5, step=1)
        writer.close()  # HDFS shows a file as far as it was closed, and the node that fails last is stopped
    while not gfile.exists(args["go_on"]):
        time.sleep(0.05)
    raise ValueError("the function has failed")


def test_event_files_are_shown_while_they_are_written_and_are_complete_at_the_address(run, back_end, address, tmp_path):
    # Nodes import this file, and do not have these modules.
    from tfos_lab.core import cluster_records
    from tfos_lab.driver.publisher import show_folder

    go_on = f"{address}/go-on" if back_end.name == "yarn" else str(tmp_path / "go-on")
    cluster = run(train, {"go_on": go_on}, tensorboard=True, log_dir=f"{address}/logs")
    if not back_end.is_inline:
        socket = cluster.publisher.tensorboard_socket
        fetch_until(socket, "/data/plugin/scalars/tags", b"epoch_loss")
        fetch_until(socket, "/data/plugin/scalars/tags", b"chief-0/own")
        eventually(lambda: gfile.glob(f"{address}/logs/*/own/*tfevents*"))  # before the end
    with gfile.GFile(go_on, "w") as file:
        file.write("now")
    with pytest.raises((NodeFailed, ValueError), match="the function has failed"):
        cluster.wait(PATIENCE_S)
    cluster.stop()
    there, here = content(f"{address}/logs"), content(cluster.run_dir / "events")
    nodes = [node.name.replace(":", "-") for node in cluster.nodes]
    assert {name.rpartition("/")[0] for name in there} == {
        "chief-0/train",
        *(f"{node}/own" for node in nodes),
        *(f"direct/{node}" for node in nodes),
    }
    assert all(there[name] == data for name, data in here.items())
    assert {name.rpartition("/")[0] for name in here} >= {"chief-0/train", "chief-0/own"}
    fetch_until(cluster.publisher.tensorboard_socket, "/data/plugin/scalars/tags", b"epoch_loss")
    cluster.publisher.close()
    with contextlib.closing(show_folder(f"{address}/logs")) as shown:  # as %tfos tensorboard ADDRESS
        fetch_until(cluster_records.find(shown.id).tensorboard, "/data/plugin/scalars/tags", b"direct/chief-0")


def put_a_file_in_its_place(folder):
    shutil.rmtree(folder)
    Path(folder).write_text("a file, where the folder should be")


@pytest.mark.back_ends("local")
def test_an_address_that_a_node_cannot_write_to_is_one_sentence(run, address, tmp_path):
    def look(args, ctx):
        put_a_file_in_its_place(args)
        ctx.callbacks()

    with pytest.raises(Exception, match=rf"path='{address}/logs': \S+ cannot write to it: "):
        run(look, str(tmp_path / "store"), log_dir=f"{address}/logs", cluster_size=1).wait(PATIENCE_S)


@pytest.mark.back_ends("connect")
def test_a_run_of_this_machine_checks_its_address_beside_a_session_of_connect(back_end, spark):
    tfos_lab.gfile.register()
    with pytest.raises(ConfigError, match=r"path='local:///proc/logs': \S+ cannot write to it"):
        tfos_lab.run(print, local="processes", log_dir="local:///proc/logs")


@pytest.mark.back_ends("local")
def test_a_store_that_takes_no_files_any_more_is_a_note_and_the_files_are_here(run, address, tmp_path):
    def write(args, ctx):
        put_a_file_in_its_place(args)
        write_events(ctx.event_dir, loss=[1.0])

    cluster = run(write, str(tmp_path / "store"), log_dir=f"{address}/logs", cluster_size=1)
    cluster.wait(PATIENCE_S)
    cluster.stop()
    [note] = [note for note in cluster.view().notes if note.startswith("event files: not all")]
    assert f"event files: not all of chief-0 is in {address}/logs/chief-0, from " in note
    assert content(cluster.run_dir / "events")


# ---- restarts -------------------------------------------------------------------------------------------------------


def fit_and_die_once(args, ctx):
    """Train for four epochs; in the first start a node is killed in the third, when the second is saved."""
    import json

    import keras
    import tensorflow as tf

    def saved_epochs():
        try:
            return json.loads(tf.io.gfile.GFile(f"{ctx.backup_dir}/training_metadata.json").read())["epoch"]
        except (tf.errors.NotFoundError, ValueError):
            return 0

    class Killed(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if ctx.restart == 0 and epoch == 2 and ctx.rank == ctx.world_size - 1:
                while saved_epochs() < 2:
                    time.sleep(0.01)
                os.kill(os.getpid(), signal.SIGKILL)

    with ctx.strategy().scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    history = model.fit(x, y, batch_size=8, epochs=4, callbacks=[*ctx.callbacks(), Killed()], verbose=0)
    return ctx.backup_dir, history.epoch, [weight.tolist() for weight in model.get_weights()]


@pytest.mark.back_ends("local")
def test_keras_goes_on_from_a_backup_at_the_address(run, address):
    cluster = run(fit_and_die_once, restarts=1, log_dir=f"{address}/logs", cluster_size=2)
    results = list(cluster.wait(4 * PATIENCE_S).values())
    assert results == [results[0]] * 2
    backup, epochs, _ = results[0]
    assert backup.startswith(f"{address}/logs/backup-")
    assert epochs == [2, 3]
    assert not gfile.exists(backup)  # training has ended: nothing goes on from it
    assert "chief-0-restart-1/train" in {name.rpartition("/")[0] for name in content(f"{address}/logs")}
