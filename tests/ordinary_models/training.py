"""Trains ordinary models: on the nodes of one cluster, one after another, and then in one process of each node.

Pass 1 records which rows each step has. One process then trains on the same global batches, in the order of steps, and
from the same weights. The models are divided among the nodes for that.
"""

from __future__ import annotations

import functools
import importlib
import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.ordinary_models import models
from tests.ordinary_models.declare import ORDINARY, TF_KERAS, Ordinary

ROWS, PARTITIONS, BATCH, EPOCHS = 113, 3, 16, 2
SCHEMA = (
    "id long, x array<float>, a float, b float, city string, text string, tokens array<int>, image binary, "
    "series array<float>, v array<double>, y float, z float, k int, u float"
)


def some_rows() -> dict[str, Any]:
    """Return the columns as arrays; ``v`` becomes a vector of Spark ML."""
    random = np.random.default_rng(31)
    x = random.normal(size=(ROWS, 6)).astype(np.float32)
    sums = x.sum(axis=1)
    return {
        "id": np.arange(ROWS),
        "x": x,
        "a": random.normal(size=ROWS).astype(np.float32),
        "b": random.normal(size=ROWS).astype(np.float32),
        "v": random.normal(size=(ROWS, 3)),
        "city": np.array([city.encode() for city in random.choice(models.CITIES, ROWS)], object),
        "text": np.array([" ".join(words).encode() for words in random.choice(models.WORDS, (ROWS, 5))], object),
        "tokens": random.integers(0, models.VOCABULARY, (ROWS, 8)).astype(np.int32),
        "image": np.array([random.bytes(64) for _ in range(ROWS)], object),
        "series": random.normal(size=(ROWS, 12)).astype(np.float32),
        "y": (sums + random.normal(size=ROWS) > 0).astype(np.float32),
        "z": (np.sin(sums) + 0.1 * random.normal(size=ROWS)).astype(np.float32),
        "k": (np.abs(sums) * 3 % models.CLASSES).astype(np.int32),
        "u": random.choice([0.0, 0.5, 1.0, 2.5], ROWS).astype(np.float32),
    }


def some_frame(spark: Any, rows: Mapping[str, Any]) -> Any:
    """Return them as a DataFrame of some partitions."""
    from pyspark.ml.functions import array_to_vector

    def value(name: str, row: int) -> Any:
        found = rows[name][row]
        return found.decode() if name in ("city", "text") else found if isinstance(found, bytes) else found.tolist()

    names = [field.split()[0] for field in SCHEMA.split(", ")]
    frame = spark.createDataFrame([tuple(value(name, row) for name in names) for row in range(ROWS)], SCHEMA)
    return frame.withColumn("v", array_to_vector("v")).repartition(PARTITIONS)


# ---- on the nodes ---------------------------------------------------------------------------------------------------


def train_models(args: Any, ctx: Any) -> Any:
    """The map_fun: returns, by name of a model, what training on the nodes and in one process has found.

    ``args`` has the ``names`` of models, which ``keras``, and a ``folder`` that all nodes see; with ``whole``, all
    nodes have all rows, as arrays or a dataset in memory.
    """
    import tensorflow as tf

    # It would take a quarter of the time to make graphs faster that run a few times.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    keras = importlib.import_module(args["keras"])
    names = [name for name in args["names"] if has(keras, ORDINARY[name].needs)]
    strategy = ctx.strategy()
    rows = some_rows()
    begun: dict[str, list[Any]] = {name: [] for name in names}
    if args["whole"]:
        steps = [list(range(first, min(first + BATCH, ROWS))) for first in range(0, ROWS, BATCH)]
        given: Any = functools.partial(whole, rows)
    else:
        shares = of_all_nodes(
            ctx, Path(args["folder"]) / "rows", recorded(ctx.dataset(BATCH, features=["id"], label="y"))
        )
        steps = [[row for share in step for row in share] for step in zip(*shares, strict=True)]
        given = functools.partial(fed, ctx)
    together = {name: or_error(train_on_node, keras, ORDINARY[name], given, strategy, begun[name]) for name in names}
    own = [name for number, name in enumerate(names) if number % ctx.world_size == ctx.rank]
    alone = {name: or_error(train_alone, keras, ORDINARY[name], rows, steps, begun[name]) for name in own}
    # A node that returned before the others would be told that they still train.
    of_all_nodes(ctx, Path(args["folder"]) / "end", None)
    return {"together": together, "alone": alone, "steps": steps}


def has(keras: Any, name: str) -> bool:
    """Whether a Keras has what a model needs."""
    for part in filter(None, name.split(".")):
        keras = getattr(keras, part, None)
    return keras is not None


def or_error(train: Callable[..., Any], *args: Any) -> Any:
    """Return what a training has found, or why it has failed."""
    try:
        return train(*args)
    except Exception:  # noqa: BLE001 - it is a result
        return {"error": traceback.format_exc()}


def recorded(dataset: Any) -> list[list[int]]:
    """Return the rows of each of this node's steps, without those that only fill up."""
    found = []
    for ids, _, weights in dataset:
        real = ~(np.signbit(weights.numpy()) & (weights.numpy() == 0))
        found.append(ids.numpy()[real].tolist())
    return found


def fed(ctx: Any, ordinary: Ordinary) -> Any:
    return ctx.dataset(BATCH, features=list(ordinary.features), label=ordinary.label, weight=ordinary.weight)


def whole(rows: Mapping[str, Any], ordinary: Ordinary) -> Any:
    """Return all rows as a dataset of batches."""
    import tensorflow as tf

    x = {name: rows[name] for name in ordinary.features}
    weights = () if ordinary.weight is None else (rows[ordinary.weight],)
    some = (x if len(x) > 1 else rows[ordinary.features[0]], targets(ordinary.label, rows), *weights)
    if ordinary.change and not weights:
        some = (*some, np.ones(ROWS, np.float32))
    return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(tf.constant, some)).batch(BATCH)


def train_on_node(keras: Any, ordinary: Ordinary, given: Callable[..., Any], strategy: Any, begun: list[Any]) -> Any:
    import tensorflow as tf

    dataset = given(ordinary)
    with strategy.scope():
        keras.utils.set_random_seed(3)
        model = ordinary.build(keras)
    spec = dataset.element_spec
    begun += [model.get_weights(), spec if len(spec) == 3 else (*spec, tf.TensorSpec([None]))]
    if ordinary.change:
        dataset = changed(dataset, ordinary.change)
    return trained(keras, ordinary, model, dataset, strategy)


def changed(dataset: Any, change: Callable[..., Any]) -> Any:
    """Return the dataset mapped, without a warning for each lambda whose lines are not its own."""
    import tensorflow as tf

    return dataset.map(tf.autograph.experimental.do_not_convert(change))


def trained(keras: Any, ordinary: Ordinary, model: Any, dataset: Any, strategy: Any) -> Any:
    if ordinary.repeat:
        dataset = dataset.repeat()
    if ordinary.train:
        history = ordinary.train(keras, model, dataset, strategy, EPOCHS)
    else:
        options = {**ordinary.fit, **(validation(ordinary) if ordinary.validates else {})}
        history = model.fit(dataset, epochs=EPOCHS, verbose=0, shuffle=False, **options).history
    return {
        "weights": model.get_weights(),
        "history": {name: np.array(values, np.float64) for name, values in history.items()},
        "iterations": int(model.optimizer.iterations.numpy()),
    }


def validation(ordinary: Ordinary) -> dict[str, Any]:
    """Return the options of ``fit`` for some rows that all nodes have; TensorFlow divides the batches among them."""
    rows = some_rows()
    (feature,) = ordinary.features
    return {"validation_data": (rows[feature][:96], rows[ordinary.label][:96]), "validation_batch_size": 48}


# ---- in one process -------------------------------------------------------------------------------------------------


def of_all_nodes(ctx: Any, folder: Path, mine: Any) -> list[Any]:
    """Return what all nodes have given, by rank; they tell each other by files."""
    folder.mkdir(exist_ok=True)
    part = folder / f"{ctx.rank}.part"
    part.write_text(json.dumps(mine))
    part.rename(folder / f"{ctx.rank}.json")
    paths = [folder / f"{rank}.json" for rank in range(ctx.world_size)]
    while not all(path.exists() for path in paths):
        time.sleep(0.05)
    return [json.loads(path.read_text()) for path in paths]


def train_alone(
    keras: Any, ordinary: Ordinary, rows: Mapping[str, Any], steps: Sequence[Sequence[int]], begun: list[Any]
) -> Any:
    import tensorflow as tf

    weights, specs = begun
    keras.utils.set_random_seed(3)
    model = ordinary.build(keras)
    model.set_weights(weights)
    # Tracing it would take longer than the few steps. Of several outputs, Keras takes other means of losses when eager,
    # and the optimizers of tf_keras are then compiled for each variable.
    is_compiled = keras.__name__ == TF_KERAS and model.jit_compile
    model.run_eagerly = isinstance(ordinary.label, str) and not is_compiled

    def batches() -> Iterator[Any]:
        for step in steps:
            batch = {name: values[step] for name, values in rows.items()}
            x = {name: batch[name] for name in ordinary.features}
            weight = np.ones(len(step), np.float32) if ordinary.weight is None else batch[ordinary.weight]
            yield x if len(x) > 1 else batch[ordinary.features[0]], targets(ordinary.label, batch), weight

    dataset = tf.data.Dataset.from_generator(batches, output_signature=specs)
    if ordinary.change:
        dataset = changed(dataset, ordinary.change)
    if ordinary.weight is None and not ordinary.weighs:
        dataset = changed(dataset, lambda x, y, _: (x, y))
    # Of an epoch of unknown length, Keras would count a step too many.
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(steps)))
    return trained(keras, ordinary, model, dataset, tf.distribute.get_strategy())


def targets(label: Any, batch: Mapping[str, Any]) -> Any:
    if isinstance(label, str):
        return batch[label]
    if isinstance(label, Mapping):
        return {output: batch[name] for output, name in label.items()}
    return tuple(batch[name] for name in label)
