"""Training on N nodes equals training in one process on the same global batches, to 1e-5, in every reported number.

For numbers of rows and nodes, batch sizes and partitions at the edges, with and without weights: with Keras 3, and with
tf_keras. Other models, a loop of the user's among them, and optimizers are in `test_ordinary_models.py`.
"""

import functools
from pathlib import Path

import numpy as np
import pytest

import tfos_lab
from tests.ordinary_models.training import of_all_nodes, recorded

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

TOLERANCE = 1e-5
EPOCHS = 2
# One pass to record the batches, the epochs of training, and `evaluate`.
READINGS = EPOCHS + 2
NODES = {"keras": 3, "tf_keras": 2}
# How rows become steps is the same whoever trains on them, and `test_batches` has its laws: tf_keras has the edges at
# which some rows do not count, and Keras has all edges. Each has the rows of its partitions, the batch size, whether it
# is weighted, the remainder, and whether the length of an epoch is known before training.
EDGES = {
    "fewer rows than nodes": ([0, 1, 0, 1], 4, True, "exact", True),
    "padded batches": ([7, 0, 31, 2, 19], 11, True, "pad", True),
    "a length that is not known yet": ([40, 0, 33], 8, False, "exact", False),
    "a row more than full batches": ([96, 1], 16, False, "exact", True),
}
# What one cluster trains, by its Keras: at an edge after another.
TRAININGS = {"keras": list(EDGES), "tf_keras": list(EDGES)[:2]}


def rows_of(partitions):
    """Return features, labels and weights of as many rows."""
    count = sum(partitions)
    random = np.random.default_rng(count)
    x = random.normal(size=(count, 3)).astype(np.float32)
    y = (random.random(count) < 0.4).astype(np.float32)
    return x, y, random.choice([0.0, 0.5, 1.0, 2.5], count).astype(np.float32)


def frame_of(spark, partitions):
    x, y, weight = (column.tolist() for column in rows_of(partitions))
    numbered = list(zip(range(len(x)), x, y, weight, strict=True))
    ends = np.cumsum(partitions)
    parts = [numbered[end - size : end] for end, size in zip(ends, partitions, strict=True)]
    rdd = spark.sparkContext.parallelize(parts, len(parts)).flatMap(list)
    return spark.createDataFrame(rdd, "id long, x array<float>, y float, weight float")


# ---- what nodes run -------------------------------------------------------------------------------------------------


def train_examples(args, ctx):
    """Train on the rows of one feed after another; the chief then trains alone on the same global batches."""
    import tensorflow as tf

    keras, folder = args
    # To make graphs faster that run a few times takes longer than to run them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy, found = ctx.strategy(), []
    for number, edge in enumerate(TRAININGS[keras]):
        partitions, batch_size, weighted, remainder, is_known = EDGES[edge]
        weight = "weight" if weighted else None
        dataset = ctx.dataset(batch_size, features=["x", "id"], label="y", weight=weight, remainder=remainder)
        batches = dataset.map(lambda features, y, w: (features["id"], y, w))
        rows = dataset.map(lambda features, y, w: (features["x"], y, w))
        mine = recorded(batches) if is_known else None
        together = train(rows, strategy)
        shares = of_all_nodes(ctx, Path(folder) / str(number), recorded(batches) if mine is None else mine)
        steps = [[row for share in step for row in share] for step in zip(*shares, strict=True)]
        assert sorted(row for step in steps for row in step) == list(range(sum(partitions)))
        alone = train(global_batches(partitions, steps, weighted), None) if ctx.is_chief else None
        found.append((together, alone))
    return found


def global_batches(partitions, steps, weighted):
    import tensorflow as tf

    x, y, weight = rows_of(partitions)

    def generate():
        for step in steps:
            yield x[step], y[step], weight[step] if weighted else np.ones(len(step), np.float32)

    specs = (tf.TensorSpec((None, 3)), tf.TensorSpec((None,)), tf.TensorSpec((None,)))
    # Where Keras does not know how long an epoch is, a single process counts a step too many.
    known = tf.data.experimental.assert_cardinality(len(steps))
    return tf.data.Dataset.from_generator(generate, output_signature=specs).apply(known)


@functools.cache
def made_model(strategy):
    """Return the model of a strategy, and the weights that it begins with: it is tracing it that takes seconds."""
    import tensorflow as tf
    from tensorflow import keras

    with (strategy or tf.distribute.get_strategy()).scope():
        keras.utils.set_random_seed(3)
        inputs = keras.Input((3,))
        penalties = {
            "kernel_regularizer": keras.regularizers.L2(0.01),
            "activity_regularizer": keras.regularizers.L2(0.1),
        }
        hidden = keras.layers.Dense(4, "tanh", **penalties)(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
        model.compile(
            keras.optimizers.SGD(0.5),
            loss="binary_crossentropy",
            metrics=["accuracy", "mae"],
            weighted_metrics=[keras.metrics.BinaryAccuracy(name="weighted"), keras.metrics.AUC(name="auc")],
        )
    return model, model.get_weights()


def train(rows, strategy):
    """Train from the same weights; return the weights, and all numbers that are reported."""
    model, weights = made_model(strategy)
    model.set_weights(weights)
    numbers = fit(model, rows)
    return [weight.tolist() for weight in model.get_weights()], numbers


def fit(model, rows):
    from tensorflow import keras

    live = []
    watch = keras.callbacks.LambdaCallback(on_train_batch_end=lambda step, logs: live.append(dict(logs)))
    taken = int(model.optimizer.iterations.numpy())
    history = model.fit(rows, epochs=EPOCHS, callbacks=[watch], verbose=0, shuffle=False).history
    epochs = [dict(zip(history, values, strict=True)) for values in zip(*history.values(), strict=True)]
    evaluated = model.evaluate(rows, verbose=0, return_dict=True)
    return [*live, *epochs, evaluated, {"steps": int(model.optimizer.iterations.numpy()) - taken}]


# ---- tests ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keras", TRAININGS)
def test_nodes_train_as_one_process_does(keras, tmp_path, spark_sessions):
    spark, env = spark_sessions.get("local"), {"TF_USE_LEGACY_KERAS": "1"} if keras == "tf_keras" else {}
    options = {"cluster_size": NODES[keras], "env": env, "spark": spark, "name": "exact"}
    with tfos_lab.run(train_examples, (keras, str(tmp_path)), **options) as cluster:
        for edge in TRAININGS[keras]:
            cluster.train(frame_of(spark, EDGES[edge][0]), epochs=READINGS)
        results = list(cluster.wait(timeout=400).values())
    for number, training in enumerate(TRAININGS[keras]):
        (first, _), alone = results[0][number]
        for weights, numbers in (node[number][0] for node in results):
            assert weights == first, f"{training}: all nodes have the same bits"
            for weight, expected in zip(weights, alone[0], strict=True):
                np.testing.assert_allclose(weight, expected, rtol=0, atol=TOLERANCE, err_msg=str(training))
            assert len(numbers) == len(alone[1]), training
            for shown, expected in zip(numbers, alone[1], strict=True):
                assert shown == pytest.approx(expected, abs=TOLERANCE, rel=TOLERANCE), training
