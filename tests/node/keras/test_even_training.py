"""Two nodes with uneven datasets of their own: they train as one process, or say why they cannot go on."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.clusters import running_clusters
from tfos_lab.errors import NodeFailed

pytestmark = [pytest.mark.tensorflow, pytest.mark.leaves_nothing, pytest.mark.timeout(300)]

ADVICE = "give all nodes equally many steps, or wrap the dataset in ctx.even(dataset)"


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    with running_clusters({"local": "processes"}, ranks=2) as start:
        yield start


def train_unevenly(legacy, ctx):
    """Return what this node has learned of its rows, and on the chief what one process learns of all of them."""
    import numpy as np
    import tensorflow as tf

    if legacy:
        import tf_keras as keras
    else:
        import keras

    strategy = ctx.strategy()
    random = np.random.default_rng(5)
    x = random.normal(size=(50, 3)).astype("f4")
    y = (x.sum(axis=1, keepdims=True) > 0).astype("f4")
    weights = random.choice([0.0, 0.5, 1.0, 2.0], size=50).astype("f4")
    shares = [np.arange(37), np.arange(37, 50)]
    spec = (tf.TensorSpec((None, 3)), tf.TensorSpec((None, 1)), tf.TensorSpec((None,)))

    def learn(dataset):
        keras.utils.set_random_seed(3)
        inputs = keras.Input((3,))
        hidden = keras.layers.Dense(4, "tanh", kernel_regularizer=keras.regularizers.L2(0.01))(inputs)
        model = keras.Model(inputs, keras.layers.Dense(1, "sigmoid")(hidden))
        model.compile(
            keras.optimizers.SGD(0.5),
            loss="binary_crossentropy",
            metrics=["mae"],
            weighted_metrics=[keras.metrics.AUC(name="auc")],
        )
        history = model.fit(dataset, epochs=3, verbose=0).history
        evaluated = model.evaluate(dataset, verbose=0, return_dict=True)
        return [weight.tolist() for weight in model.get_weights()], history, evaluated

    def batches(*shares):
        for start in range(0, 40, 8):
            rows = np.concatenate([share[start : start + 8] for share in shares])
            if len(rows):
                yield x[rows], y[rows], weights[rows]

    def dataset(*shares):
        return tf.data.Dataset.from_generator(lambda: batches(*shares), output_signature=spec)

    with strategy.scope():
        together = learn(ctx.even(dataset(shares[ctx.rank])))
    sizes = [len(batch[0]) for batch in ctx.even(dataset(shares[ctx.rank]), "drop")]
    return together, sizes, learn(dataset(*shares)) if ctx.is_chief else None


@pytest.mark.parametrize("legacy", [False, True], ids=["keras", "tf_keras"])
def test_nodes_with_uneven_datasets_train_as_one_process_does(run, legacy):
    env = {"TF_USE_LEGACY_KERAS": "1"} if legacy else {}
    results = run(train_unevenly, legacy, cluster_size=2, env=env).wait(timeout_s=200)
    alone = results["chief:0"][2]
    assert [sizes for _, sizes, _ in results.values()] == [[8, 8], [8, 5]]
    for (weights, history, evaluated), _, _ in results.values():
        for found, expected in zip(weights, alone[0], strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        assert history.keys() == alone[1].keys()
        for name, values in history.items():
            assert values == pytest.approx(alone[1][name], abs=1e-5), name
        assert evaluated == pytest.approx(alone[2], abs=1e-5)


def loop_unevenly(goes_on, ctx):
    """Train in a loop over 3 batches on the worker and 4 on the chief."""
    import tensorflow as tf

    strategy = ctx.strategy()

    @tf.function
    def step(batch):
        return strategy.run(
            lambda batch: tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(batch)), args=(batch,)
        )

    for batch in tf.data.Dataset.range(4 if ctx.is_chief else 3).batch(1):
        step(batch)
    if goes_on:
        strategy.gather(tf.ones((2, 2)), axis=0)


@pytest.mark.parametrize("goes_on", [False, True], ids=["and returned", "and gone on to another collective"])
def test_a_node_that_has_ended_its_dataset_is_told_instead_of_waited_for(run, goes_on):
    with pytest.raises(NodeFailed) as caught:
        run(loop_unevenly, goes_on, cluster_size=2).wait(timeout_s=100)
    first = str(caught.value).splitlines()[0]
    assert "FeedError: worker:0 has ended its dataset after 3 steps while chief:0 still trains" in first
    assert first.endswith(ADVICE)


def fit_unevenly(legacy, ctx):
    """Fit a dataset that is said to be each node's own, and longer on the chief."""
    import tensorflow as tf

    if legacy:
        import tf_keras as keras
    else:
        import keras

    with ctx.strategy().scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    rows = tf.ones((26 if ctx.is_chief else 24, 1))
    model.fit(tf.data.Dataset.from_tensor_slices((rows, rows)).batch(2).with_options(options), verbose=0)


@pytest.mark.parametrize("legacy", [False, True], ids=["keras", "tf_keras"])
def test_keras_refuses_own_datasets_of_different_lengths_at_once(run, legacy):
    env = {"TF_USE_LEGACY_KERAS": "1"} if legacy else {}
    with pytest.raises(NodeFailed, match=r"FeedError: the workers have different numbers of batches \(13, 12, in the"):
        run(fit_unevenly, legacy, cluster_size=2, env=env).wait(timeout_s=100)


def make_variables(args, ctx):
    """Make a variable in each of two scopes; the chief comes late to the second."""
    import time

    import tensorflow as tf

    values = []
    for value in (1.0, 2.0):
        if ctx.is_chief and values:
            time.sleep(2)
        with ctx.strategy().scope():
            values.append(float(tf.Variable(value if ctx.is_chief else 0.0).numpy()))
    return values, ctx.strategy() is ctx.strategy()


def test_a_node_may_ask_for_its_strategy_again_while_another_uses_it(run):
    results = run(make_variables, cluster_size=2).wait(timeout_s=100)
    assert list(results.values()) == [([1.0, 2.0], True)] * 2


def ask_late(args, ctx):
    import tensorflow as tf

    tf.ones(1)
    ctx.strategy()


def test_a_strategy_that_is_asked_for_too_late_is_refused_with_what_to_do(run):
    with pytest.raises(NodeFailed, match=r"ConfigError: ctx.strategy\(\) comes too late: .* before ctx.dataset\(\)"):
        run(ask_late, cluster_size=2).wait(timeout_s=100)
