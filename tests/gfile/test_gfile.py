"""`tfos_lab.gfile`: other file systems in TensorFlow answer as its own does, and whatever writes files writes there.

Each test runs on ``local://``, which TensorFlow does not know, and on a store that has keys, no directories and no
renames, as object stores do.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import tfos_lab.gfile
from tests.gfile.operations import OPERATIONS, expected_outcome, outcome, read, write
from tests.support.eventually import eventually
from tests.support.lazy import Lazy
from tfos_lab.errors import ConfigError

tf = Lazy("tensorflow")
gfile = Lazy("tensorflow.io.gfile")

pytestmark = pytest.mark.tensorflow("here")


class KeyStore(MemoryFileSystem):
    """Files by their names alone: a directory is there as long as something is below it."""

    protocol = "keys"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]

    def mkdir(self, path, create_parents=True, **kwargs):
        """Make nothing, as on S3."""

    makedirs = mkdir

    def rmdir(self, path):
        if not self.exists(path):
            raise FileNotFoundError(path)


class Troubled(MemoryFileSystem):
    """Fails, or does not answer, where the name says so."""

    protocol = "troubled"
    store: ClassVar = {}
    pseudo_dirs: ClassVar = [""]
    waiting = threading.Event()

    def info(self, path, **kwargs):
        if "forbidden" in path:
            raise PermissionError(f"no right to {path}")
        if "forbidden by AWS" in path:
            raise OSError("AWS Error ACCESS_DENIED during HeadObject operation")
        if "gone" in path:
            raise ConnectionRefusedError("the server is not there")
        if "broken" in path:
            raise RuntimeError("what nobody expects")
        if "interrupted" in path:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            time.sleep(60)
        if "silent" in path:
            self.waiting.wait(60)
        return super().info(path, **kwargs)


@pytest.fixture(scope="module", autouse=True)
def _registered():
    for system in (KeyStore, Troubled):
        fsspec.register_implementation(system.protocol, system, clobber=True)
    tfos_lab.gfile.register()
    tfos_lab.gfile.register("keys", "troubled")


@pytest.fixture(params=["local", "keys"])
def base(request, tmp_path):
    address = f"{request.param}://{tmp_path}/store"
    gfile.makedirs(address)
    return address


# ---- as TensorFlow's own --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_tensorflow_s_own_file_system_answers_this_one_answers(name, base, tmp_path):
    assert outcome(OPERATIONS[name], f"{base}/x") == expected_outcome(name, tmp_path / "native")


def test_an_error_names_the_address(base):
    with pytest.raises(tf.errors.NotFoundError, match=f"^{base}/none: no such file or directory"):
        read(f"{base}/none")


# ---- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("forbidden", "PermissionDeniedError", "no right to"),
        ("forbidden by AWS", "PermissionDeniedError", "no right to"),
        ("gone", "UnavailableError", "the server is not there"),
        ("broken", "UnknownError", "RuntimeError: what nobody expects"),
    ],
)
def test_what_a_store_raises_is_tensorflow_s_error_with_the_address(name, error, text):
    with pytest.raises(getattr(tf.errors, error), match=f"^troubled:///{name}: .*{text}"):
        gfile.stat(f"troubled:///{name}")


def test_a_store_that_does_not_answer_is_an_error_after_a_time(monkeypatch):
    monkeypatch.setattr(tfos_lab.gfile, "_ANSWER_S", 0.2)
    with pytest.raises(tf.errors.DeadlineExceededError, match=r"^troubled:///silent: no answer for 0\.2 s"):
        gfile.stat("troubled:///silent")
    Troubled.waiting.set()


def test_ctrl_c_ends_what_waits_for_a_store():
    with pytest.raises(tf.errors.CancelledError) as error:
        gfile.exists("troubled:///interrupted")
    assert error.value.message == "interrupted"


def test_an_address_that_needs_a_package_names_it():
    with pytest.raises(
        tf.errors.FailedPreconditionError, match=r"adl:///x: path='adl:///': .*it needs fsspec and adlfs"
    ):
        gfile.stat("adl:///x")


def test_keys_in_an_address_are_in_no_error():
    for address in ("memory://key:secret@bucket/none", "adl://key:secret@bucket/none"):
        with pytest.raises(tf.errors.OpError) as caught:
            gfile.stat(address)
        assert "***@bucket" in caught.value.message
        assert "secret" not in str(caught.value)


def test_files_are_not_renamed_from_one_store_to_another():
    write("memory:///f", "hello")
    with pytest.raises(tf.errors.UnimplementedError, match="cannot be renamed to another store, memory://elsewhere"):
        gfile.rename("memory:///f", "memory://elsewhere/f")


def test_what_tensorflow_knows_stays_its_own():
    assert tfos_lab.gfile.register() == []
    assert tfos_lab.gfile.register("file", "ram") == []
    write("ram://a", "text")
    assert read("ram://a") == "text"


def test_a_tensorflow_that_takes_no_file_systems_is_one_sentence(monkeypatch):
    monkeypatch.setattr(tfos_lab.gfile, "_REGISTER", "no_such_function")
    with pytest.raises(ConfigError, match="takes no file systems from Python, so that it cannot open elsewhere://"):
        tfos_lab.gfile.register("elsewhere")


# ---- large, many, and at the same time ------------------------------------------------------------------------------


def test_a_large_file_is_read_whole_in_order_and_out_of_order(base):
    data = np.random.default_rng(0).bytes(20_000_003)
    write(f"{base}/large", data, "wb")
    assert read(f"{base}/large", "rb") == data
    with gfile.GFile(f"{base}/large", "rb") as file:
        for offset in np.random.default_rng(1).integers(0, len(data), 50):
            file.seek(int(offset))
            assert file.read(1000) == data[offset : offset + 1000]


def test_many_files_are_listed_matched_and_removed(base):
    gfile.makedirs(f"{base}/many")
    for number in range(300):
        write(f"{base}/many/part-{number:05}", str(number))
    assert len(gfile.listdir(f"{base}/many")) == 300
    assert len(gfile.glob(f"{base}/many/part-000*")) == 100
    gfile.rmtree(f"{base}/many")
    assert not gfile.exists(f"{base}/many/part-00000")


def test_tfrecords_are_read_by_many_threads(base):
    for shard in range(8):
        with tf.io.TFRecordWriter(f"{base}/part-{shard}") as writer:
            for number in range(500):
                writer.write(b"%d" % (500 * shard + number))
    rows = tf.data.Dataset.list_files(f"{base}/part-*").interleave(
        tf.data.TFRecordDataset, cycle_length=8, num_parallel_calls=8
    )
    assert sorted(int(row.numpy()) for row in rows) == list(range(4000))


def test_compressed_tfrecords_are_read_back(base):
    with tf.io.TFRecordWriter(f"{base}/r.gz", "GZIP") as writer:
        for number in range(1000):
            writer.write(b"%d" % number)
    assert [int(row.numpy()) for row in tf.data.TFRecordDataset(f"{base}/r.gz", "GZIP")] == list(range(1000))


def test_threads_write_and_read_their_own_files(base):
    def work(number):
        for turn in range(20):
            write(f"{base}/{number}", f"{number} {turn}")
            assert read(f"{base}/{number}") == f"{number} {turn}"
        return number

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))


@pytest.mark.parametrize("base", ["keys"], indirect=True)  # a disk shows what is written to a file that is open
def test_a_file_that_is_replaced_while_it_is_read_is_never_a_mixture(base):
    write(f"{base}/f", "old " * 100_000)
    with gfile.GFile(f"{base}/f") as file:
        begin = file.read(400)
        write(f"{base}/new", "new " * 100_000)
        gfile.rename(f"{base}/new", f"{base}/f", overwrite=True)
        assert set((begin + file.read()).split()) == {"old"}
    assert set(read(f"{base}/f").split()) == {"new"}


def test_no_handle_and_no_thread_is_left(base):
    def open_files():
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    def callers():
        return {one.ident for one in threading.enumerate() if one.name == "tfos-storage"}

    others = callers()
    write(f"{base}/f", "hello")
    before = open_files()
    for _ in range(50):
        read(f"{base}/f")
    assert open_files() <= before
    assert eventually(lambda: callers() <= others)


def test_a_reader_keeps_a_block_and_not_the_file(base):
    import tracemalloc

    write(f"{base}/large", bytes(64 << 20), "wb")
    with gfile.GFile(f"{base}/large", "rb") as file:
        file.read(1)
        tracemalloc.start()
        total = 1 + sum(len(file.read(100_000)) for _ in range(640))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert total > 60_000_000
    assert peak < 20 << 20


# ---- what writes files ----------------------------------------------------------------------------------------------


@pytest.fixture
def model():
    import keras

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


ROWS = np.arange(32, dtype="float32").reshape(8, 4), np.arange(8, dtype="float32")


def test_models_are_saved_and_loaded(base, model):
    import keras

    model.save(f"{base}/model.keras")
    model.save_weights(f"{base}/model.weights.h5")
    model.export(f"{base}/exported", verbose=False)
    expected = model.predict(ROWS[0], verbose=0)
    loaded = keras.models.load_model(f"{base}/model.keras")
    np.testing.assert_allclose(loaded.predict(ROWS[0], verbose=0), expected)
    served = tf.saved_model.load(f"{base}/exported")  # its function does not keep its variables alive
    np.testing.assert_allclose(served.serve(ROWS[0]), expected, rtol=1e-6)


def test_callbacks_write_and_clean_up(base, model):
    import keras

    callbacks = [
        keras.callbacks.TensorBoard(f"{base}/events", histogram_freq=1),
        keras.callbacks.ModelCheckpoint(base + "/epoch-{epoch}.keras"),
        keras.callbacks.BackupAndRestore(f"{base}/backup"),
    ]
    model.fit(*ROWS, epochs=2, verbose=0, callbacks=callbacks)
    assert sorted(name for name in gfile.listdir(base) if name.endswith(".keras")) == ["epoch-1.keras", "epoch-2.keras"]
    (events,) = gfile.glob(f"{base}/events/train/events.out.*")
    steps = [event.step for event in tf.compat.v1.train.summary_iterator(events)]
    assert max(steps) == 1
    assert not gfile.glob(f"{base}/backup/*")


def test_checkpoints_are_written_kept_and_restored(base, model):
    manager = tf.train.CheckpointManager(tf.train.Checkpoint(model=model), f"{base}/checkpoints", max_to_keep=2)
    for _ in range(3):
        manager.save()
    assert sorted(gfile.glob(f"{base}/checkpoints/*.index")) == [
        f"{base}/checkpoints/ckpt-{number}.index" for number in (2, 3)
    ]
    assert tf.train.latest_checkpoint(f"{base}/checkpoints") == f"{base}/checkpoints/ckpt-3"
    kept = model.get_weights()
    model.set_weights([0.0 * one for one in kept])
    tf.train.Checkpoint(model=model).restore(f"{base}/checkpoints/ckpt-3").assert_existing_objects_matched()
    np.testing.assert_allclose(model.get_weights()[0], kept[0])


def test_a_file_that_is_dropped_and_not_closed_is_there(base):
    gfile.GFile(f"{base}/f", "w").write("hello")
    gc.collect()
    assert read(f"{base}/f") == "hello"


def test_what_is_flushed_is_there_while_the_file_is_open(base):
    with gfile.GFile(f"{base}/f", "w") as file:
        file.write("first")
        file.flush()
        if not base.startswith("keys"):
            assert read(f"{base}/f") == "first"
    assert read(f"{base}/f") == "first"


# ---- processes ------------------------------------------------------------------------------------------------------


def run(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_a_plain_program_has_it_with_a_local_context_so_have_its_forks_and_it_ends_with_files_that_are_open(tmp_path):
    done = run(
        f"""
        import os, tfos_lab
        ctx = tfos_lab.local_context(log_dir="local://{tmp_path}/logs")
        import tensorflow as tf
        tf.io.gfile.makedirs(ctx.event_dir)
        print(tf.io.gfile.listdir(ctx.log_dir))
        path = "local://{tmp_path}/f"
        tf.io.gfile.GFile(path, "w").write("hello")
        pid = os.fork()
        if not pid:
            text = tf.io.gfile.GFile(path).read()
            os._exit(0 if text == "hello" else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        tf.io.gfile.GFile("local://{tmp_path}/open", "w").write("hello")
        reader = tf.io.gfile.GFile(path)
        writer = tf.summary.create_file_writer("local://{tmp_path}/events")
        with writer.as_default():
            tf.summary.scalar("loss", 1.0, 1)
        print("at the end")
        """
    )
    assert (done.returncode, done.stdout) == (0, "['chief-0']\n0\nat the end\n"), done.stderr


def test_a_notebook_has_it_from_the_import_of_tensorflow_on(tmp_path):
    done = run(
        f"""
        import sys
        from IPython.core.interactiveshell import InteractiveShell
        shell = InteractiveShell.instance()
        shell.run_cell("%load_ext tfos_lab").raise_error()
        assert "tensorflow" not in sys.modules
        import tensorflow as tf
        tf.io.gfile.GFile("local://{tmp_path}/f", "w").write("hello")
        print(tf.io.gfile.listdir("local://{tmp_path}"), "hdfs" in tf.io.gfile.get_registered_schemes())
        """
    )
    assert done.stdout == "['f'] True\n", done.stderr


# ---- kills while saving: see `tests/rigs/test_hdfs.py` ---------------------------------------------------------------


def test_what_killed_savers_have_left_goes_a_day_later_with_the_next_save_of_that_name(tmp_path):
    old, young, other = (tmp_path / name for name in (".tfos-model-old", ".tfos-model-young", ".tfos-other-old"))
    for path in (old, young, other):
        path.write_bytes(b"half")
    for path in (old, other):
        os.utime(path, (time.time() - 25 * 3600,) * 2)
    write(f"local://{tmp_path}/model", b"whole")
    assert [path.exists() for path in (old, young, other)] == [False, True, True]
    assert (tmp_path / "model").read_bytes() == b"whole"
