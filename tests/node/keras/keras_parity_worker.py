"""Two workers and, beside them, the same training in one process; what each found is written as JSON.

Run as ``python keras_parity_worker.py FOLDER``. TensorFlow is imported once and three children are forked, as on a
node; `test_workers.py` reads ``FOLDER/worker-0.json``, ``worker-1.json`` and ``alone.json``.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import tensorflow as tf

from tfos_lab.errors import FeedError
from tfos_lab.node.keras import distribute, workers

BATCH = 32
STEPS = 6
EPOCHS = 3
# How many rows each worker was fed; the rest of its STEPS batches is padding. The second has an empty batch.
FED = (STEPS * BATCH - 5, (STEPS - 1) * BATCH - 20)

Found = dict[str, Any]


# --- data and models ------------------------------------------------------------------------------------------------


def some_rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.random((count, 8, 8, 1), np.float32)
    return x, (x.sum(axis=(1, 2, 3)) * 7 % 10).astype(np.int32)


def fed_rows(rank: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rows of one worker, padded to full batches with garbage that weighs nothing."""
    x, y = some_rows(STEPS * BATCH, seed=10 + rank)
    weight = (np.arange(STEPS * BATCH) < FED[rank]).astype(np.float32)
    x[weight == 0] = 50.0
    return x, y, weight


def batches(*rows: np.ndarray, size: int = BATCH) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensor_slices(rows).batch(size, drop_remainder=True)


def small_model(*, build: bool = True) -> keras.Model:
    keras.utils.set_random_seed(5)
    layers: list[Any] = [keras.Input((8, 8, 1))] if build else []
    layers += [keras.layers.Flatten(), keras.layers.Dense(24, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    model.compile(
        keras.optimizers.Adam(0.01),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="weighted")],
    )
    return model


def layered_model() -> keras.Model:
    model = keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(4, 3, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Flatten(),
            keras.layers.Dropout(0.2),
            keras.layers.Dense(10),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    return model


def weights_of(model: keras.Model) -> list[Any]:
    return [weight.tolist() for weight in model.get_weights()]


def learned(model: keras.Model, history: dict[str, list[float]]) -> Found:
    return {"weights": weights_of(model), "history": history}


# --- what a worker and the process alone both do ---------------------------------------------------------------------


def train_on_shared_rows(scope: Callable[[], Any], found: Found) -> None:
    """Unpatched data distribution: TensorFlow divides the rows; the global batch is 64."""
    with scope():
        model = small_model()
    dataset = batches(*some_rows(10 * 2 * BATCH, seed=1), size=2 * BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    # 100 rows are no whole number of batches.
    x, y = some_rows(100, seed=2)
    fitted = model.fit(dataset.with_options(options), epochs=EPOCHS, verbose=0, shuffle=False, validation_data=(x, y))
    found["shared"] = learned(model, fitted.history)
    found["evaluate"] = model.evaluate(x, y, batch_size=2 * BATCH, verbose=0)
    found["predict"] = model.predict(x, batch_size=2 * BATCH, verbose=0).tolist()


def train_on_batch(scope: Callable[[], Any], mine: slice, found: Found) -> None:
    with scope():
        model = small_model(build=False)
    x, y = some_rows(2 * BATCH, seed=3)
    losses = [model.train_on_batch(x[mine], y[mine], return_dict=True) for _ in range(3)]
    found["train_on_batch"] = {"logs": losses, "test": model.test_on_batch(x[mine], y[mine]), **learned(model, {})}


# --- a worker --------------------------------------------------------------------------------------------------------


def worker(rank: int, folder: Path, found: Found) -> None:
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with recorded_error(found, "unpatched_error"):
        train_on_shared_rows(strategy.scope, {})
    found["patched"] = workers.patch_keras()
    train_on_shared_rows(strategy.scope, found)
    train_on_batch(strategy.scope, slice(rank * BATCH, (rank + 1) * BATCH), found)
    train_on_presharded(strategy, rank, found)
    divide_unmarked_rows(strategy, found)
    finish_in_step(strategy, rank, found)
    use_callbacks(strategy, folder / f"of-worker-{rank}", found)
    use_tf_keras(strategy, rank, found)


def train_on_presharded(strategy: Any, rank: int, found: Found) -> None:
    """Fed and padded rows: what is learned, which rows `fit` reads, and what it knows about their number."""
    fetched: list[int] = []

    def record(ids: Any) -> Any:
        fetched.extend(ids.tolist())
        return ids

    def recording(ids: Any, rows: Any) -> Any:
        with tf.control_dependencies([tf.numpy_function(record, [ids], tf.int64)]):
            return tuple(tf.identity(column) for column in rows)

    ids = tf.data.Dataset.range(1000 * rank, 1000 * rank + STEPS * BATCH).batch(BATCH, drop_remainder=True)
    own_ids = workers.mark_as_presharded(ids)
    own = tf.data.Dataset.zip(own_ids, batches(*fed_rows(rank))).map(recording).prefetch(2)
    steps: list[int] = []
    count = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(step))
    with strategy.scope():
        model = small_model(build=False)
    history = model.fit(own, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[count]).history
    found["own"] = learned(model, history)
    found["rows_of_fit"] = fetched
    found["fit_steps"] = {"run": len(steps), "announced": count.params["steps"]}

    distributed = strategy.experimental_distribute_dataset(own_ids.take(STEPS).prefetch(1))
    found["rows_of_loop"] = rows_of(strategy, distributed)
    found["cardinality"] = int(distributed.cardinality)
    found["element_shape"] = distributed.element_spec._value_specs[0].shape.as_list()


def rows_of(strategy: Any, distributed: Any) -> list[int]:
    fetched = [strategy.experimental_local_results(batch) for batch in distributed]
    return [row for parts in fetched for part in parts for row in part.numpy().tolist()]


def divide_unmarked_rows(strategy: Any, found: Found) -> None:
    dataset = tf.data.Dataset.range(4 * BATCH).batch(BATCH)
    found["unmarked"] = rows_of(strategy, strategy.experimental_distribute_dataset(dataset))


def finish_in_step(strategy: Any, rank: int, found: Found) -> None:
    """Workers whose datasets differ in length: refused if that is known, and no endless wait if it is not."""
    own = workers.mark_as_presharded(batches(*some_rows(STEPS * BATCH, seed=20 + rank)))
    with strategy.scope():
        model = small_model()
    model.fit(own, verbose=0, shuffle=False)  # traces a step that does not ask the other workers
    with recorded_error(found, "different_steps_error"):
        model.fit(own.take(STEPS - rank), verbose=0, shuffle=False)
    unknown = own.take(STEPS - 2 * rank).filter(lambda x, y: True)
    history = model.fit(unknown, verbose=0, shuffle=False)
    found["unknown_steps"] = learned(model, history.history)
    found["one_knows"] = fit_generated(strategy.scope, rank, knows_length=rank == 0)
    found["none_knows"] = fit_generated(strategy.scope, rank, knows_length=False)
    found["several_steps_at_once"] = fit_with_many_steps_at_once(strategy, own)


def fit_generated(scope: Callable[[], Any], rank: int, *, knows_length: bool) -> Found:
    """Like a feed that is still running, where this worker may know its length already or not."""
    x, y = some_rows(STEPS * BATCH, seed=25 + rank)

    def generate() -> Iterator[Any]:
        for start in range(0, STEPS * BATCH, BATCH):
            yield x[start : start + BATCH], y[start : start + BATCH]

    specs = (tf.TensorSpec((BATCH, 8, 8, 1), tf.float32), tf.TensorSpec((BATCH,), tf.int32))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=specs)
    if knows_length:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(STEPS))
    own = workers.mark_as_presharded(dataset.prefetch(2))
    with scope():
        model = small_model(build=False)
    history = model.fit(own, epochs=2, verbose=0, shuffle=False).history
    history["evaluated"] = model.evaluate(own, verbose=0)
    return {"iterations": int(model.optimizer.iterations.numpy()), **learned(model, history)}


def fit_with_many_steps_at_once(strategy: Any, own: tf.data.Dataset) -> Found:
    with strategy.scope():
        model = small_model()
        model.compile(model.optimizer, model.loss, metrics=["accuracy"], steps_per_execution=4)
    return learned(model, model.fit(own, epochs=2, verbose=0, shuffle=False).history)


def use_callbacks(strategy: Any, folder: Path, found: Found) -> None:
    own = workers.mark_as_presharded(batches(*some_rows(2 * BATCH, seed=30)))

    def fit(epochs: int) -> keras.Model:
        with strategy.scope():
            model = layered_model()
        fitted = model.fit(
            own,
            epochs=epochs,
            verbose=0,
            shuffle=False,
            validation_data=own,
            callbacks=[
                keras.callbacks.ModelCheckpoint(str(folder / "best.keras"), monitor="val_loss", save_best_only=True),
                keras.callbacks.BackupAndRestore(str(folder / "backup"), delete_checkpoint=False),
                keras.callbacks.TensorBoard(str(folder / "logs")),
            ],
        )
        found.setdefault("epochs_run", []).append(len(fitted.history["loss"]))
        return model

    fit(epochs=1)
    model = fit(epochs=3)  # goes on where the first left off
    model.export(folder / "exported", verbose=False)
    x, _ = some_rows(4, seed=31)
    exported = tf.saved_model.load(str(folder / "exported"))
    found["export_error"] = float(np.abs(exported.serve(tf.constant(x)) - model(x, training=False)).max())
    found["reloaded"] = keras.models.load_model(folder / "best.keras").count_params() == model.count_params()
    found["event_files"] = len(list((folder / "logs").glob("train/events*")))


def use_tf_keras(strategy: Any, rank: int, found: Found) -> None:
    import tf_keras

    steps: list[int] = []
    own = workers.mark_as_presharded(batches(*some_rows(STEPS * BATCH, seed=40 + rank)))
    with strategy.scope():
        model = tf_keras.Sequential([tf_keras.layers.Flatten(), tf_keras.layers.Dense(10)])
        model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    count = tf_keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: steps.append(step))
    model.fit(own, epochs=2, verbose=0, callbacks=[count])
    found["tf_keras_steps"] = len(steps)


# --- one process alone -----------------------------------------------------------------------------------------------


def alone(folder: Path, found: Found) -> None:
    found.update(patched_safely())
    train_on_shared_rows(tf.distribute.get_strategy().scope, found)
    train_on_batch(tf.distribute.get_strategy().scope, slice(None), found)
    for name, knows in {"one_knows": True, "none_knows": False}.items():
        found[name] = fit_generated(tf.distribute.get_strategy().scope, 0, knows_length=knows)
    found["divided"] = divide_among_two_gpus()
    found["divided_weights"] = divide_weighted_rows()
    found["parameter_servers_error"] = fit_with_parameter_servers()
    parts = [batches(*fed_rows(rank)) for rank in range(2)]
    together = tf.data.Dataset.zip(*parts).map(
        lambda first, second: tuple(tf.concat(both, axis=0) for both in zip(first, second, strict=True))
    )
    model = small_model()
    found["own"] = learned(model, model.fit(together, epochs=EPOCHS, verbose=0, shuffle=False).history)
    found["without_padding"] = train_by_hand_without_padding(together)


def divide_among_two_gpus() -> Found:
    rows = tf.data.Dataset.range(24)
    ways = {
        "even": rows.batch(6, drop_remainder=True),
        "odd": rows.batch(5, drop_remainder=True),
        "last batch short": rows.batch(7),
    }
    divided = {name: distribute._divide_batches(dataset, 2) for name, dataset in ways.items()}
    return {
        name: {"parts": [part.tolist() for part in dataset.as_numpy_iterator()], "length": int(dataset.cardinality())}
        for name, dataset in divided.items()
    }


def divide_weighted_rows() -> list[Any]:
    """Return x and weights of the parts of a batch of three rows and of one of one row."""
    x = np.arange(4, dtype=np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, x, np.full(4, 3.0, np.float32))).batch(3)
    parts = distribute._divide_batches(dataset, 2).as_numpy_iterator()
    return [[x.tolist(), weights.tolist(), np.signbit(weights).tolist()] for x, _, weights in parts]


def fit_with_parameter_servers() -> str | None:
    model = small_model()
    model._distribute_strategy = object.__new__(tf.distribute.ParameterServerStrategy)
    recorded: Found = {}
    with recorded_error(recorded, "error"):
        model.train_on_batch(*some_rows(BATCH, seed=50))
    return recorded["error"]


def patched_safely() -> Found:
    """What `patch_keras` returns and leaves alone, in a process where no TensorFlow op has run yet."""
    from tensorflow.python.eager import context

    unpatched = keras.src.backend.tensorflow.trainer.reduce_per_replica
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    legacy = workers.patch_keras()
    del os.environ["TF_USE_LEGACY_KERAS"]
    version, keras.__version__ = keras.__version__, "3.16.0"
    later = workers.patch_keras()
    keras.__version__ = version
    untouched = keras.src.backend.tensorflow.trainer.reduce_per_replica is unpatched
    first = workers.patch_keras()
    patched = keras.src.backend.tensorflow.trainer.reduce_per_replica
    second = workers.patch_keras()
    return {
        "answers": {"legacy": legacy, "later": later, "first": first, "second": second},
        "untouched_until_needed": untouched,
        "replaced_once": patched is keras.src.backend.tensorflow.trainer.reduce_per_replica is not unpatched,
        "devices_untouched": context.context()._context_handle is None,
        "threads": threading.active_count(),
    }


def train_by_hand_without_padding(together: tf.data.Dataset) -> list[Any]:
    """The same training in which the padding does not exist: a sum over real rows, divided by the batch size."""
    model = small_model()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum")
    for _ in range(EPOCHS):
        for x, y, weight in together:
            real = weight > 0
            with tf.GradientTape() as tape:
                value = loss(y[real], model(x[real], training=True)) / (2 * BATCH)
            variables = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
    return weights_of(model)


_PEER_S = 60.0


# --- processes -------------------------------------------------------------------------------------------------------


@contextmanager
def recorded_error(found: Found, name: str) -> Iterator[None]:
    found[name] = None
    try:
        yield
    except (ValueError, tf.errors.InvalidArgumentError, FeedError) as error:
        found[name] = f"{type(error).__name__}: {error}"[:500]


def reserve_ports(count: int) -> list[socket.socket]:
    held = []
    for _ in range(count):
        port = socket.socket()
        port.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port.bind(("127.0.0.1", 0))
        held.append(port)
    return held


def fork(name: str, folder: Path, play: Callable[[Found], None], peer: str = "") -> int:
    """Run ``play`` in a process of its own, which its peer may still need when it is through."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        found: Found = {"keras": keras.__version__}
        began = time.monotonic()
        play(found)
        found["seconds"] = time.monotonic() - began
        (folder / f"{name}.json").write_text(json.dumps(found, default=float))
        status = 0
    except BaseException:  # noqa: BLE001 - the child ends here, whatever happened
        traceback.print_exc()
    finally:
        (folder / f"{name}.over").touch()
        deadline = time.monotonic() + _PEER_S
        while peer and not (folder / f"{peer}.over").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def main(folder: Path) -> int:
    ports = reserve_ports(2)
    addresses = [f"127.0.0.1:{port.getsockname()[1]}" for port in ports]

    def play_worker(rank: int) -> Callable[[Found], None]:
        def play(found: Found) -> None:
            task = {"type": "worker", "index": rank}
            os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
            worker(rank, folder, found)

        return play

    children = [fork(f"worker-{rank}", folder, play_worker(rank), f"worker-{1 - rank}") for rank in range(2)]
    children.append(fork("alone", folder, lambda found: alone(folder, found)))
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
