"""`fit` and `evaluate` of Keras 3 where all nodes have all of the data: arrays, and datasets in memory."""

from __future__ import annotations

import pytest

from tests.support.clusters import running_clusters

pytestmark = [pytest.mark.full, pytest.mark.tensorflow, pytest.mark.timeout(600)]

# More than two batches, whose parts differ in size; the last has a row for one node only.
ROWS, BATCH, EPOCHS, NODES = 11, 5, 4, 2
# Of so many powers of two, no others have the same sum.
ALL_ROWS = pytest.approx((2**ROWS - 1) / ROWS, rel=1e-6)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each node has found, and the chief's log."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        with running_clusters({"local": "processes", "grace": 2.0}) as start:
            cluster = start(try_all, cluster_size=NODES)
            results = list(cluster.wait(timeout=500).values())
            return results, cluster.logs("chief:0")


@pytest.fixture
def results(found):
    return found[0]


def try_all(args, ctx):
    import numpy as np
    import tensorflow as tf
    import tf_keras  # noqa: F401 - a Keras that the fork server has not loaded is patched by ctx.strategy()

    # To make graphs faster that run a few times takes longer than to run them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    return {
        "tf_keras": fit_tf_keras(ctx),
        "arrays": fit_powers(ctx, shuffle=True, ways=({}, {"sample_weight": np.ones(ROWS, np.float32)})),
        "batches": fit_powers(ctx, shuffle="batch"),
        "other lengths": fit_other_rows(ctx, lambda rank: slice(0, 8 + rank)),
        "own step": fit_with_own_step(ctx),
        "called": fit_own_step_of_unbuilt(ctx, is_called=True),
        "never called": fit_own_step_of_unbuilt(ctx, is_called=False),
        "named": fit_named(ctx),
        "counting": fit_with_own_metric(ctx),
        "steps": fit_too_many_steps(ctx),
        "other rows": fit_other_rows(ctx, lambda rank: slice(rank, 8 + rank)),
        "in memory": fit_in_memory(ctx, seed=3),
        "no seed": fit_in_memory(ctx, seed=None),
        "callback": evaluate_within_fit(ctx),
        "weights": fit_weights(ctx),
        "single batches": take_single_batches(ctx),
        "yielded": fit_yielded(ctx),
        "own losses": fit_own_losses(ctx),
        "own metric": fit_own_metric(ctx),
        "seeds": fit_powers(ctx, seed=1 + ctx.rank, shuffle=True),
    }


def model_of_means(ctx, kind=None):
    """Return a model that learns nothing, and whose metric is the mean over the rows that it has seen."""
    import keras

    with ctx.strategy().scope():
        model = (kind or keras.Sequential)([keras.Input((1,)), keras.layers.Dense(1, kernel_initializer="ones")])
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=[keras.metrics.MeanSquaredError(), value])
    return model


def value(_y_true, y_pred):
    return y_pred


def powers():
    import numpy as np

    return 2.0 ** np.arange(ROWS, dtype=np.float32)[:, None]


def fit_powers(ctx, *, shuffle, seed=None, ways=()):
    """Fit arrays that are shuffled, and evaluate them in some ways.

    Returns what each epoch has seen, what the first batch of each, and what the evaluations.
    """
    import keras

    if seed is not None:
        keras.utils.set_random_seed(seed)

    firsts = []

    class First(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch == 0:
                firsts.append(logs["value"])

    model, x = model_of_means(ctx), powers()
    with ctx.strategy().scope():  # as some do
        history = model.fit(
            x, x, batch_size=BATCH, epochs=EPOCHS, verbose=0, shuffle=shuffle, callbacks=[First()]
        ).history
    options = {"batch_size": BATCH, "verbose": 0, "return_dict": True}
    return history["value"], firsts, [model.evaluate(x, x, **options, **way)["value"] for way in ways]


def fit_in_memory(ctx, *, seed):
    import tensorflow as tf

    x = powers()
    dataset = tf.data.Dataset.from_tensor_slices((x, x)).shuffle(ROWS, seed=seed).batch(BATCH)
    model = model_of_means(ctx)
    history = model.fit(dataset, epochs=EPOCHS, verbose=0, validation_data=dataset).history
    return history["value"], history["val_value"]


def fit_tf_keras(ctx):
    """Fit arrays with tf_keras; returns what it says of an epoch after its last batch, and at its end."""
    import tf_keras

    last = tf_keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: said.append(float(logs["mae"])))
    said: list[float] = []
    with ctx.strategy().scope():
        model = tf_keras.Sequential([tf_keras.Input((1,)), tf_keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=["mae"])
    found = model.fit(powers() / 2**ROWS, powers() / 2**ROWS, batch_size=BATCH, verbose=0, callbacks=[last])
    return said[-1], found.history["mae"][0]


def fit_with_own_step(ctx):
    """Fit a model whose step takes what it is given, and no weights."""
    import keras
    import tensorflow as tf

    class Own(keras.Sequential):
        def train_step(self, data):
            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
            variables = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return {"loss": loss}

    x = powers()
    return model_of_means(ctx, Own).fit(x, x, batch_size=BATCH, epochs=1, verbose=0).history["loss"]


def fit_own_step_of_unbuilt(ctx, *, is_called):
    """Fit a model as a class, whose layer is built when it is called first; its step takes a dict."""
    import keras
    import tensorflow as tf

    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.layer = keras.layers.Dense(1)

        def call(self, x):
            return self.layer(x)

        def train_step(self, data):
            return {"loss": tf.reduce_mean(self.layer(data["x"]))}

    x = powers()
    with ctx.strategy().scope():
        model = Own()
        model.compile("sgd")
        if is_called:
            model(x[:1])
    try:
        return list(model.fit(tf.data.Dataset.from_tensor_slices({"x": x, "z": x}).batch(BATCH), verbose=0).history)
    except ValueError as error:
        return str(error)


def fit_with_own_metric(ctx):
    """Fit a model with a metric that counts the rows it is given, whatever their weights."""
    import keras

    class Own(keras.Sequential):
        def compute_metrics(self, x, y, y_pred, sample_weight=None):
            super().compute_metrics(x, y, y_pred, sample_weight)
            self.rows.update_state(keras.ops.ones_like(y))
            return self.get_metrics_result()

        @property
        def metrics(self):
            return [*super().metrics, self.rows]

    with ctx.strategy().scope():
        Own.rows = keras.metrics.Sum("rows")
    x = powers()
    return model_of_means(ctx, Own).fit(x, x, batch_size=BATCH, epochs=1, verbose=0).history["rows"]


def fit_named(ctx):
    from typing import Any, NamedTuple

    import tensorflow as tf

    class Row(NamedTuple):
        x: Any
        y: Any

    x = powers()
    dataset = tf.data.Dataset.from_tensor_slices(Row(x, x)).batch(BATCH)
    return len(model_of_means(ctx).fit(dataset, epochs=1, verbose=0).history["loss"])


def evaluate_within_fit(ctx):
    """Evaluate all rows in a callback, while `fit` has weights; returns what both have seen."""
    import keras
    import numpy as np

    x, evaluated = powers(), []

    class Evaluate(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            evaluated.append(self.model.evaluate(x, x, batch_size=BATCH, verbose=0, return_dict=True)["value"])

    options = {"batch_size": BATCH, "epochs": EPOCHS, "sample_weight": np.ones(ROWS, np.float32)}
    history = model_of_means(ctx).fit(x, x, verbose=0, callbacks=[Evaluate()], **options).history
    return history["value"], evaluated


def fit_weights(ctx):
    """Fit weights of several types, of which the last row has 2 and the others 1; returns each loss."""
    import numpy as np

    x = powers()
    return [
        model_of_means(ctx).fit(x, 0 * x, sample_weight=weights, batch_size=BATCH, verbose=0).history["loss"]
        for dtype in (np.int64, np.float64)
        for weights in [np.array([1] * (ROWS - 1) + [2], dtype)]
    ]


def take_single_batches(ctx):
    """Train, test and predict one batch after a `fit`; returns the losses, and the predictions."""
    import numpy as np

    model, x = model_of_means(ctx), powers()
    model.fit(x, x, batch_size=BATCH, verbose=0)
    given = (x, 0 * x, np.full(ROWS, 2.0, np.float32))
    losses = [float(step(*given, return_dict=True)["loss"]) for step in (model.train_on_batch, model.test_on_batch)]
    return losses, model.predict_on_batch(x).tolist()


def fit_yielded(ctx):
    """Fit arrays that a generator yields, from addresses at which TensorFlow does not copy them; returns them."""
    import numpy as np

    memory = np.zeros(1024, np.uint8)
    rows = memory[-memory.ctypes.data % 64 :][: 4 * BATCH].view(np.float32)[:, None]
    rows[:] = 1

    def batches():
        while True:
            yield rows, rows

    model_of_means(ctx).fit(batches(), steps_per_epoch=2, epochs=2, verbose=0)
    return rows.tolist()


def fit_own_losses(ctx):
    """Train by losses of the user's, in a step and in `compute_loss`; returns the losses and weights."""
    import keras
    import numpy as np
    import tensorflow as tf

    def stepping(loss_of):
        class Own(keras.Sequential):
            def train_step(self, data):
                x, y = data
                with tf.GradientTape() as tape:
                    loss = loss_of(self, x, y, self(x, training=True))
                variables = self.trainable_variables
                self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
                return {"loss": loss}

        return Own

    class Loss(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return keras.ops.mean((y - y_pred) ** 2)

    kinds = [
        stepping(lambda _model, _x, y, y_pred: keras.ops.mean((y - y_pred) ** 2)),
        stepping(lambda model, x, y, y_pred: model.compute_loss(x=x, y=y, y_pred=y_pred)),
        stepping(lambda _model, _x, y, y_pred: tf.nn.compute_average_loss((y - y_pred)[:, 0] ** 2)),
        Loss,
    ]
    found, x = [], np.ones((BATCH, 1), np.float32)
    for kind in kinds:
        model = model_of_means(ctx, kind)
        model.optimizer.learning_rate.assign(0.25)
        loss = model.fit(x, 3 * x, batch_size=BATCH, verbose=0).history["loss"]
        found.append([*loss, *model.get_weights()[0].ravel().tolist()])
    return found


def fit_own_metric(ctx):
    """Train with a metric whose result is its variable; returns what the history has."""
    import keras
    import tensorflow as tf

    class Count(keras.metrics.Metric):
        def __init__(self):
            super().__init__(name="count")
            self.rows = self.add_variable(shape=(), initializer="zeros", name="rows")

        def update_state(self, y_true, _y_pred, sample_weight=None):
            self.rows.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32))

        def result(self):
            return self.rows.value

    with ctx.strategy().scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse", metrics=[Count()])
    return [float(rows) for rows in model.fit(powers(), powers(), batch_size=BATCH, verbose=0).history["count"]]


def fit_other_rows(ctx, mine):
    x = powers()[mine(ctx.rank)]
    return len(model_of_means(ctx).fit(x, x, batch_size=BATCH, epochs=1, verbose=0).history["loss"])


def fit_too_many_steps(ctx):
    """Ask for more steps than there are batches; returns how many were taken."""
    x = powers()
    model = model_of_means(ctx)
    model.fit(x, x, batch_size=BATCH, epochs=2, steps_per_epoch=2, verbose=0)
    return int(model.optimizer.iterations.numpy())


@pytest.mark.parametrize("what", ["arrays", "batches", "seeds"])
def test_each_row_of_shuffled_arrays_is_in_each_epoch_once(results, what):
    for result in results:
        assert result[what][0] == [ALL_ROWS] * EPOCHS


def test_arrays_are_shuffled_anew_in_each_epoch_and_alike_on_all_nodes(results):
    firsts = [result["arrays"][1] for result in results]
    assert len(set(firsts[0])) > 1
    assert firsts[1:] == firsts[:1] * (NODES - 1)


@pytest.mark.parametrize("what", ["in memory", "callback"])
def test_each_row_is_evaluated_once_too_after_each_epoch_and_by_a_callback(results, what):
    for result in results:
        assert result["arrays"][2] == [ALL_ROWS] * 2, "without weights, and with them"
        seen, evaluated = result[what]
        assert [*seen, *evaluated] == [ALL_ROWS] * EPOCHS * 2


def test_an_epoch_ends_where_the_rows_do(results):
    assert [result["steps"] for result in results] == [3] * NODES


def test_weights_of_rows_may_be_of_any_type(results):
    loss = (sum(4**row for row in range(ROWS)) + 4 ** (ROWS - 1)) / ROWS
    for result in results:
        assert result["weights"] == [[pytest.approx(loss, rel=1e-5)]] * 2


def test_single_batches_are_those_of_one_process(results):
    loss = 2 * sum(4**row for row in range(ROWS)) / ROWS
    for result in results:
        losses, predicted = result["single batches"]
        assert losses == [pytest.approx(loss, rel=1e-5)] * 2
        assert predicted == [[2.0**row] for row in range(ROWS)]


def test_arrays_that_a_generator_yields_stay_as_they_are(results):
    for result in results:
        assert result["yielded"] == [[1.0]] * BATCH


def test_losses_of_the_users_are_those_of_one_process(results):
    for result in results:
        assert result["own losses"] == [pytest.approx([4.0, 2.0])] * 4


def test_a_metric_may_return_its_variable(results):
    assert [result["own metric"] for result in results] == [[ROWS]] * NODES


def test_what_cannot_be_weighted_is_left_to_tensorflow(results):
    for result in results:
        assert len(result["own step"]) == result["other lengths"] == result["other rows"] == result["named"] == 1
        assert result["counting"] == [ROWS]


def test_tf_keras_says_the_same_of_an_epoch_after_its_last_batch_and_at_its_end(found):
    results, _ = found
    for result in results:
        of_last_batch, of_epoch = result["tf_keras"]
        assert of_last_batch == pytest.approx(of_epoch, rel=1e-5)


def test_a_model_with_a_step_of_its_own_has_its_variables_before_it(found):
    results, _ = found
    for result in results:
        assert result["called"] == ["loss"]
        assert (
            "variables of a model must exist before its first step, and Own, whose step is your own"
            in result["never called"]
        )


@pytest.mark.parametrize(
    "sentence", ["The nodes call `fit` or `evaluate` with different data", "Each node shuffles its dataset in an order"]
)
def test_what_gives_nodes_other_rows_than_one_process_is_told_once(found, sentence):
    _, log = found
    assert log.count(sentence) == 1


def test_no_line_of_tensorflow_s_is_about_options_that_no_user_has_set(found):
    _, log = found
    assert "auto_shard_policy" not in log
