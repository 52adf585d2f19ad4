"""Nodes with uneven datasets of their own: with ``ctx.even`` they train as one process, without it they are told."""

import numpy as np
import pytest

import tfos_lab
from tests.support.clusters import running_clusters
from tfos_lab.errors import ConfigError, NodeFailed

pytestmark = [pytest.mark.tensorflow, pytest.mark.full, pytest.mark.timeout(300)]


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    with running_clusters({"local": "processes"}, ranks=2) as start:
        yield start


def rows(count, *, first=0, weighted=False):
    import tensorflow as tf

    x = np.arange(first, first + count, dtype="f4")
    parts = (x[:, None], x, np.full(count, 2.0, "f4"))
    return tf.data.Dataset.from_tensor_slices(parts if weighted else parts[:2])


# ---- batches of two nodes -------------------------------------------------------------------------------------------

COUNTS = [((23, 9), True), ((4, 0), False), ((0, 0), True), ((3, 40), False)]


def read_passes(args, ctx):
    """Return what this node reads of each of several even datasets, in the same order on both."""

    def mine(counts, **options):
        return rows(counts[ctx.rank], first=100 * ctx.rank, **options)

    def columns(batch):
        return [column.numpy().tolist() for column in batch]

    def read(dataset, steps=None):
        found = []
        for number, batch in enumerate(dataset, 1):
            found.append(batch)
            if number == steps:
                break
        return found

    found = {}
    for number, (counts, weighted) in enumerate(args):
        even = ctx.even(mine(counts, weighted=weighted).batch(4))
        found[f"exact {number}"] = [[columns(batch) for batch in read(even)] for _ in range(2)]
    full = ctx.even(mine((4, 8)).batch(4, drop_remainder=True))
    found["full"] = [columns(batch) for batch in read(full)], full.element_spec[2].shape.as_list()
    named = ctx.even(mine((6, 2)).map(lambda x, y: {"x": x, "y": y}).batch(4))
    found["named"] = [batch["sample_weight"].numpy().tolist() for batch in read(named)]
    drop = ctx.even(mine((40, 9)).map(lambda x, _: x).batch(4), "drop")
    found["drop"] = [[len(batch) for batch in read(drop)] for _ in range(2)]
    left = ctx.even(mine((80, 60)).batch(4))
    found["left"] = [len(read(left, steps)) for steps in (2, 2, 2, None)]
    return found


@pytest.fixture(scope="module")
def passes(tmp_path_factory):
    """What both nodes have read."""
    with pytest.MonkeyPatch.context() as patch, running_clusters({"local": "processes"}) as start:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("even")))
        results = start(read_passes, COUNTS, cluster_size=2).wait(timeout=200)
    return [results["chief:0"], results["worker:0"]]


@pytest.mark.parametrize("number", range(len(COUNTS)), ids=map(str, COUNTS))
def test_every_row_counts_once_in_the_mean_over_all_rows_of_a_step(passes, number):
    counts, weighted = COUNTS[number]
    for both in zip(*(node[f"exact {number}"] for node in passes), strict=True):
        steps = list(zip(*both, strict=True))
        assert len(steps) == max(-(-count // 4) for count in counts)
        seen = []
        for batches in steps:
            real = [[value for value, w in zip(y, ws, strict=True) if not np.signbit(w)] for _, y, ws in batches]
            seen += (whole := [value for values in real for value in values])
            mean = np.mean([np.mean(np.multiply(ws, y)) for _, y, ws in batches])
            assert mean == pytest.approx(np.mean(whole) * (2 if weighted else 1), rel=1e-6)
        assert sorted(seen) == [*range(counts[0]), *range(100, 100 + counts[1])]


def test_a_filler_batch_is_the_last_one_again_with_weights_that_no_row_has(passes):
    (_, (x, y, weights)), shape = passes[0]["full"]
    assert (x, y) == ([[0], [1], [2], [3]], [0, 1, 2, 3])
    assert np.signbit(weights).all()
    assert shape == [4]


def test_dicts_get_weights_under_the_name_that_fed_rows_have(passes):
    chief, worker = (node["named"] for node in passes)
    assert chief == [pytest.approx([4 / 3] * 4), pytest.approx([2.0] * 2)]
    assert worker == [pytest.approx([2 / 3] * 2), [0.0] * 2]


def test_with_drop_all_end_with_the_first_and_batches_are_left_as_they_are(passes):
    assert [node["drop"] for node in passes] == [[[4, 4, 4]] * 2, [[4, 4, 1]] * 2]


def test_passes_that_all_nodes_leave_at_the_same_step_do_not_count(passes):
    assert [node["left"] for node in passes] == [[2, 2, 2, 20]] * 2


def leave_early(args, ctx):
    for number, _ in enumerate(ctx.even(rows(80).batch(4)), 1):
        if number == 2 and not ctx.is_chief:
            return


def test_who_reads_on_after_another_has_left_is_told_instead_of_waiting_forever(run):
    with pytest.raises(NodeFailed, match=r"worker:0 has left a pass over ctx.even\(dataset\) that chief:0 still reads"):
        run(leave_early, cluster_size=2).wait(timeout=100)


# ---- on one node ----------------------------------------------------------------------------------------------------


def test_on_one_node_it_adds_weights_only():
    ctx = tfos_lab.local_context()
    even = ctx.even(rows(6).batch(4))
    assert int(even.cardinality()) == 2
    assert [w.numpy().tolist() for _, _, w in even] == [[1.0] * 4, [1.0] * 2]
    assert [w.numpy().tolist() for _, _, w in ctx.even(rows(2, weighted=True).batch(4))] == [[2.0, 2.0]]
    assert [len(batch) for batch in ctx.even(rows(6).batch(4), "drop")] == [2, 2]


def test_what_cannot_be_even_is_refused():
    import tensorflow as tf

    ctx = tfos_lab.local_context()
    for dataset, why in [
        (rows(6).batch(4).repeat(), "it is endless, and endless datasets are even: end it with take"),
        (rows(6), "its elements are no batches of dense tensors: batch it before"),
        (rows(6).map(lambda x, _: x).batch(2), r"remainder='exact' needs elements \(x, y\), \(x, y, w\) or a dict"),
        (rows(6).batch(2).map(lambda x, y: (x, y, tf.cast(y, tf.int32))), "remainder='exact' needs"),
    ]:
        with pytest.raises(ConfigError, match=rf"ctx.even\(dataset\): {why}"):
            ctx.even(dataset)
    with pytest.raises(ConfigError, match=r"ctx.even of a list: give it a tf.data.Dataset of batches"):
        ctx.even([1])
    with pytest.raises(ConfigError, match="remainder='pad': use 'exact' or 'drop'"):
        ctx.even(rows(6).batch(4), remainder="pad")


# ---- training -------------------------------------------------------------------------------------------------------


def train_unevenly(args, ctx):
    """Return what this node has learned of its rows, and on the chief what one process learns of all of them."""
    import keras
    import tensorflow as tf

    # To make graphs faster that run a few times takes longer than to run them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
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


def test_nodes_with_uneven_datasets_train_as_one_process_does(run):
    results = run(train_unevenly, cluster_size=2).wait(timeout=200)
    alone = results["chief:0"][2]
    assert [sizes for _, sizes, _ in results.values()] == [[8, 8], [8, 5]]
    for (weights, history, evaluated), _, _ in results.values():
        for found, expected in zip(weights, alone[0], strict=True):
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        assert history.keys() == alone[1].keys()
        for name, values in history.items():
            assert values == pytest.approx(alone[1][name], abs=1e-5), name
        assert evaluated == pytest.approx(alone[2], abs=1e-5)


def loop_unevenly(then, ctx):
    """Train in a loop over 3 batches on the worker, and 4 on the chief, or as many if it goes on alone."""
    import tensorflow as tf

    strategy = ctx.strategy()

    @tf.function
    def step(batch):
        return strategy.run(
            lambda batch: tf.distribute.get_replica_context().all_reduce("SUM", tf.reduce_sum(batch)), args=(batch,)
        )

    dataset = tf.data.Dataset.range(4 if ctx.is_chief and then != "the chief goes on" else 3).batch(1)
    for _ in range(2 if then == "read it again" else 1):
        for batch in dataset:
            step(batch)
    if then == "all go on" or (ctx.is_chief and then == "the chief goes on"):
        strategy.gather(tf.ones((2, 2)), axis=0)


UNEVEN = (
    r"has ended its dataset after 3 steps while chief:0 still trains.*: "
    r"give all nodes equally many steps, or wrap the dataset in ctx\.even\(dataset\)\n"
)
ALONE = "as many as chief:0 has taken, which waits for it in something else: call fit, evaluate and predict"


def test_a_node_that_has_ended_its_dataset_is_told_instead_of_waited_for(run):
    told = dict.fromkeys(("all return", "all go on", "read it again"), UNEVEN)
    told["the chief goes on"] = f"has returned after 3 steps, {ALONE}"
    # All at once: most of the time is one in which nobody is known to wait in vain.
    clusters = {then: run(loop_unevenly, then, cluster_size=2) for then in told}
    for then, cluster in clusters.items():
        with pytest.raises(NodeFailed, match=f"FeedError: worker:0 {told[then]}"):
            cluster.wait(timeout=100)


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


@pytest.mark.parametrize(
    "legacy", [pytest.param(False, id="keras"), pytest.param(True, id="tf_keras", marks=pytest.mark.full)]
)
def test_keras_refuses_own_datasets_of_different_lengths_at_once(run, legacy):
    env = {"TF_USE_LEGACY_KERAS": "1"} if legacy else {}
    with pytest.raises(NodeFailed, match=r"FeedError: the workers have different numbers of batches \(13, 12, in the"):
        run(fit_unevenly, legacy, cluster_size=2, env=env).wait(timeout=100)


def make_variables(args, ctx):
    """Make a variable in each of two scopes, the chief late in the second one; then be asked to end, and hear it."""
    import os
    import signal
    import time

    import tensorflow as tf

    values, heard = [], []
    signal.signal(signal.SIGTERM, lambda *_: heard.append("SIGTERM"))
    for value in (1.0, 2.0):
        if ctx.is_chief and values:
            time.sleep(2)
        with ctx.strategy().scope():
            values.append(float(tf.Variable(value if ctx.is_chief else 0.0).numpy()))
    os.kill(os.getpid(), signal.SIGTERM)
    return values, ctx.strategy() is ctx.strategy(), heard


def test_a_node_may_ask_for_its_strategy_again_while_another_uses_it_and_hears_signals_with_it(run):
    results = run(make_variables, cluster_size=2).wait(timeout=100)
    assert list(results.values()) == [([1.0, 2.0], True, ["SIGTERM"])] * 2


def ask_late(args, ctx):
    import tensorflow as tf

    tf.ones(1)
    ctx.strategy()


def test_a_strategy_that_is_asked_for_too_late_is_refused_with_what_to_do(run):
    with pytest.raises(NodeFailed, match=r"ConfigError: ctx.strategy\(\) comes too late: .* before ctx.dataset\(\)"):
        run(ask_late, cluster_size=2).wait(timeout=100)
