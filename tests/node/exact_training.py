"""What the nodes of `test_keras_exact.py` run.

Each example is a file that all nodes wait for. They record the rows of their batches, train, and write their results;
the chief then trains alone on the same global batches. Models are made once in each process and begin each example with
the same weights: it is tracing them that takes seconds.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EPOCHS = 3


def train_examples(folder: str, ctx: Any) -> None:
    """The map_fun: works through ``1.json``, ``2.json``, … until one says ``null``."""
    import tensorflow as tf

    # To make graphs faster that run a few times takes longer than to run them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = ctx.strategy()
    for number in range(1, 1000):
        example = read_when_there(Path(folder) / f"{number}.json")
        if example is None:
            return
        train_on_node(example, ctx, strategy, Path(folder) / f"{number}-{ctx.worker_num}")
        if ctx.is_chief:
            batches = [read_when_there(Path(folder) / f"{number}-{node}.batches") for node in range(ctx.world_size)]
            write(Path(folder) / f"{number}-alone.result", train_alone(example, batches))


def read_when_there(path: Path) -> Any:
    while not path.exists():
        time.sleep(0.01)
    return json.loads(path.read_text())


def write(path: Path, content: Any) -> None:
    path.with_suffix(".part").write_text(json.dumps(content))
    path.with_suffix(".part").rename(path)


# --- both ------------------------------------------------------------------------------------------------------------


def keras_of(loop: str) -> Any:
    if loop == "tf_keras":
        import tf_keras

        return tf_keras
    import keras

    return keras


def kind_of(example: Any) -> str:
    return str(example.get("kind", "plain"))


def model_as_it_begins(example: Any, strategy: Any) -> Any:
    model, weights = made_model(example["loop"], kind_of(example), strategy)
    model.set_weights(weights)
    return model


@functools.cache
def made_model(loop: str, kind: str, strategy: Any) -> tuple[Any, list[Any]]:
    """Return the model of a strategy, and the weights that it begins with."""
    with strategy.scope():
        model = build_model(keras_of(loop), loop, kind)
    return model, model.get_weights()


def build_model(keras: Any, loop: str, kind: str) -> Any:
    """Return the compiled model; metrics and penalties, which take long to trace, has the plain one only."""
    keras.utils.set_random_seed(3)
    is_plain = kind == "plain"
    # In a loop of one's own, nobody adds up losses by rows.
    penalty = keras.regularizers.L2(0.1) if is_plain and loop != "by hand" else None
    inputs = keras.Input((3,))
    hidden = keras.layers.Dense(
        4, "tanh", kernel_regularizer=keras.regularizers.L2(0.01), activity_regularizer=penalty
    )(inputs)
    model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
    model.compile(
        OPTIMIZERS[kind](keras),
        loss="mse" if kind == "loss scale" else "binary_crossentropy",
        metrics=["accuracy", "mae"] if is_plain else [],
        weighted_metrics=[keras.metrics.BinaryAccuracy(name="weighted"), keras.metrics.AUC(name="auc")]
        if is_plain
        else [],
    )
    return model


def is_2(keras: Any) -> bool:
    return bool(keras.__name__ == "tf_keras")


def with_loss_scale(keras: Any, inner: Any) -> Any:
    """Return an optimizer whose gradients overflow at a row of a very large label, and at no other."""
    optimizers = keras.mixed_precision if is_2(keras) else keras.optimizers
    return optimizers.LossScaleOptimizer(inner, initial_scale=2.0**115, dynamic_growth_steps=3)


# The gradients that they get are between 0.01 and 1.
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda keras: keras.optimizers.SGD(0.5),
    "accumulation": lambda keras: keras.optimizers.Nadam(
        0.05, gradient_accumulation_steps=3, clipnorm=0.05, weight_decay=0.01, use_ema=True, ema_overwrite_frequency=2
    ),
    "loss scale": lambda keras: with_loss_scale(
        keras, keras.optimizers.Adam(0.05, clipnorm=0.05, **({} if is_2(keras) else {"gradient_accumulation_steps": 2}))
    ),
}


def fit(example: Any, model: Any, dataset: Any) -> dict[str, Any]:
    keras = keras_of(example["loop"])
    live = []
    taken = int(model.optimizer.iterations.numpy())
    watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: live.append(numbers_of(logs)))
    history = model.fit(dataset, epochs=EPOCHS, callbacks=[watch], verbose=0, shuffle=False).history
    return {
        "weights": [weight.tolist() for weight in model.get_weights()],
        "history": [
            numbers_of(dict(zip(history, values, strict=True))) for values in zip(*history.values(), strict=True)
        ],
        "live": live,
        "iterations": [{"iterations": int(model.optimizer.iterations.numpy()) - taken}],
        "evaluated": [evaluated(example, model, dataset)],
    }


def evaluated(example: Any, model: Any, dataset: Any) -> dict[str, float]:
    """Return what the plain model's ``evaluate`` does; the rows are read in any case."""
    if kind_of(example) == "plain":
        return numbers_of(model.evaluate(dataset, verbose=0, return_dict=True))
    return {"batches": float(sum(1 for _ in dataset))}


def numbers_of(logs: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in logs.items()}


def loss_of(example: Any, model: Any, x: Any, y: Any) -> Any:
    """Return the loss of each row."""
    import tensorflow as tf

    return keras_of(example["loop"]).losses.binary_crossentropy(tf.reshape(y, (-1, 1)), model(x, training=True))


# --- a node ----------------------------------------------------------------------------------------------------------


def train_on_node(example: Any, ctx: Any, strategy: Any, path: Path) -> None:
    weight = "weight" if example["weighted"] else None
    dataset = ctx.dataset(
        example["batch_size"], features=["x", "id"], label="y", weight=weight, remainder=example["remainder"]
    )

    def record_batches() -> None:
        batches = [real_rows(features["id"].numpy(), weights.numpy()) for features, _, weights in dataset]
        write(path.with_suffix(".batches"), batches)

    # The length of an epoch is known once it has been read.
    if not example.get("cold"):
        record_batches()
    rows = dataset.map(lambda features, y, w: (features["x"], y, w))
    model = model_as_it_begins(example, strategy)
    result = (
        train_by_hand(example, model, rows, strategy) if example["loop"] == "by hand" else fit(example, model, rows)
    )
    write(path.with_suffix(".result"), result)
    if example.get("cold"):
        record_batches()


def real_rows(ids: Any, weights: Any) -> list[int]:
    import numpy as np

    return [int(row) for row, weight in zip(ids, weights, strict=True) if weight or not np.signbit(weight)]


def train_by_hand(example: Any, model: Any, rows: Any, strategy: Any) -> dict[str, Any]:
    import tensorflow as tf

    @tf.function(reduce_retracing=True)
    def step(x: Any, y: Any, w: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.nn.compute_average_loss(loss_of(example, model, x, y), sample_weight=w)
            loss += tf.nn.scale_regularization_loss(tf.add_n(model.losses))
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    distributed = strategy.experimental_distribute_dataset(rows)
    live = []
    for _ in range(EPOCHS):
        for batch in distributed:
            losses = strategy.run(step, args=batch)
            live.append({"loss": float(strategy.reduce("SUM", losses, axis=None))})
    # As often as `fit` and `evaluate` read the rows.
    for _ in rows:
        pass
    return {"weights": [weight.tolist() for weight in model.get_weights()], "live": live}


# --- one process -----------------------------------------------------------------------------------------------------


def train_alone(example: Any, batches: list[list[list[int]]]) -> Any:
    """Train on the global batches: at each step the rows of all nodes."""
    import tensorflow as tf

    steps = [[row for node in step for row in node] for step in zip(*batches, strict=True)]
    model = model_as_it_begins(example, tf.distribute.get_strategy())

    def generate() -> Iterator[Any]:
        for rows in steps:
            x, y, weight = zip(*(example["rows"][row] for row in rows), strict=True)
            yield x, y, weight if example["weighted"] else [1.0] * len(rows)

    specs = (tf.TensorSpec((None, 3)), tf.TensorSpec((None,)), tf.TensorSpec((None,)))
    # Where Keras does not know how long an epoch is, a single process counts a step too many.
    known = tf.data.experimental.assert_cardinality(len(steps))
    rows = tf.data.Dataset.from_generator(generate, output_signature=specs).apply(known)
    trained = train_alone_by_hand(example, model, rows) if example["loop"] == "by hand" else fit(example, model, rows)
    return {**trained, "rows": sorted(row for step in steps for row in step)}


def train_alone_by_hand(example: Any, model: Any, rows: Any) -> dict[str, Any]:
    import tensorflow as tf

    live = []
    for _ in range(EPOCHS):
        for x, y, w in rows:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(w * loss_of(example, model, x, y)) + tf.add_n(model.losses)
            gradients = tape.gradient(loss, model.trainable_variables)
            model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            live.append({"loss": float(loss)})
    return {"weights": [weight.tolist() for weight in model.get_weights()], "live": live}
