"""Keras on several nodes through what ``ctx`` offers: the same as one process, with callbacks, and what is refused."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.clusters import running_clusters
from tests.support.data_files import rows, write_parquet
from tests.support.tensorflow_process import in_tensorflow
from tfos_lab.errors import NodeFailed

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(600)]

BATCH, STEPS, EPOCHS = 32, 6, 2
TOLERANCE = 1e-5


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    with running_clusters({"local": "processes", "grace": 2.0}) as start:
        yield start


# ---- the same as one process ----------------------------------------------------------------------------------------


def some_rows(count, seed):
    random = np.random.default_rng(seed)
    x = random.random((count, 8, 8, 1), np.float32)
    return x, (x.sum(axis=(1, 2, 3)) * 7 % 10).astype(np.int32)


def train(args, ctx):
    """Train in several ways on this node; the chief then does the same alone."""
    import keras
    import tensorflow as tf

    # To make graphs faster that run a few times takes longer than to run them.
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    strategy = ctx.strategy()
    found = learn(strategy.scope, slice(ctx.rank * BATCH, (ctx.rank + 1) * BATCH))
    found["known"] = fit_own_rows(ctx, strategy, knows=ctx.is_chief)
    found["unknown"] = fit_own_rows(ctx, strategy, knows=False)
    found["callbacks"] = use_callbacks(ctx, strategy, keras)
    alone = learn(tf.distribute.get_strategy().scope, slice(None)) if ctx.is_chief else None
    return found, alone


def make_model(*, build=True, **options):
    import keras

    keras.utils.set_random_seed(5)
    layers = [keras.Input((8, 8, 1))] if build else []
    layers += [keras.layers.Flatten(), keras.layers.Dense(24, activation="relu"), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], **options)
    return model


def learned(model, history):
    return [weight.tolist() for weight in model.get_weights()], history


def learn(scope, mine):
    """Learn from rows that all nodes have, and batch by batch, where each node has its part."""
    import tensorflow as tf

    with scope():
        model = make_model()
    dataset = tf.data.Dataset.from_tensor_slices(some_rows(8 * 2 * BATCH + 5, seed=1)).batch(2 * BATCH)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    x, y = some_rows(101, seed=2)  # no whole number of batches, nor of pairs
    history = model.fit(
        dataset.with_options(options), epochs=EPOCHS, verbose=0, shuffle=False, validation_data=(x, y)
    ).history
    found = {"fit": learned(model, history)}
    found["evaluate"] = model.evaluate(x, y, batch_size=2 * BATCH, verbose=0)
    found["predict"] = model.predict(x[:100], batch_size=2 * BATCH, verbose=0).tolist()
    with scope():
        by_hand = make_model(build=False)
    x, y = some_rows(2 * BATCH, seed=3)
    logs = [by_hand.train_on_batch(x[mine], y[mine], return_dict=True) for _ in range(3)]
    found["by hand"] = learned(by_hand, {"logs": logs, "test": by_hand.test_on_batch(x[mine], y[mine])})
    return found


def fit_own_rows(ctx, strategy, *, knows):
    """Fit a share of batches as a feed gives them, whose number this node knows or not; several steps go at once."""
    import tensorflow as tf

    fetched = []
    x, y = some_rows(2 * STEPS * BATCH, seed=25)

    def generate():
        for start in range(0, len(x), BATCH):
            fetched.append(start // BATCH)
            yield x[start : start + BATCH], y[start : start + BATCH]

    specs = (tf.TensorSpec((BATCH, 8, 8, 1), tf.float32), tf.TensorSpec((BATCH,), tf.int32))
    dataset = tf.data.Dataset.from_generator(generate, output_signature=specs)
    if knows:
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(2 * STEPS))
    own = ctx.shard(dataset)
    shown = [float(y[0]) for _, y in own]
    assert shown == [float(y[start * BATCH]) for start in range(ctx.rank, 2 * STEPS, 2)], "its own, and no others"
    with strategy.scope():
        model = make_model(build=False, steps_per_execution=4)
    history = model.fit(own, epochs=2, verbose=0, shuffle=False).history
    return int(model.optimizer.iterations.numpy()), *learned(model, history)


def use_callbacks(ctx, strategy, keras):
    """Checkpoints, backups, TensorBoard and an exported model of two fits, the second of which goes on."""
    import tensorflow as tf

    folder = f"{ctx.output_dir}/{ctx.rank}"
    own = ctx.shard(tf.data.Dataset.from_tensor_slices(some_rows(4 * BATCH, seed=30)).batch(BATCH))

    def fit(epochs):
        with strategy.scope():
            model = make_model()
        callbacks = [
            keras.callbacks.ModelCheckpoint(f"{folder}/best.keras", monitor="val_loss", save_best_only=True),
            keras.callbacks.BackupAndRestore(f"{folder}/backup", delete_checkpoint=False),
            keras.callbacks.TensorBoard(f"{folder}/logs"),
        ]
        options = {"verbose": 0, "shuffle": False, "validation_data": own, "callbacks": callbacks}
        return model, len(model.fit(own, epochs=epochs, **options).history["loss"])

    (_, first), (model, second) = fit(1), fit(3)
    model.export(f"{folder}/exported", verbose=False)
    x, _ = some_rows(4, seed=31)
    loaded = tf.saved_model.load(f"{folder}/exported")
    return {
        "epochs": [first, second],
        "reloaded": keras.models.load_model(f"{folder}/best.keras").count_params() == model.count_params(),
        "event files": len(tf.io.gfile.glob(f"{folder}/logs/train/events*")),
        "error of the export": float(np.abs(loaded.serve(tf.constant(x)) - model(x, training=False)).max()),
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """What each of two nodes has learned, and one process alone."""
    with pytest.MonkeyPatch.context() as patch, running_clusters({"local": "processes"}) as start:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("keras")))
        results = start(train, cluster_size=2).wait(timeout=500)
    (chief, alone), (worker, _) = results["chief:0"], results["worker:0"]
    return chief, worker, alone


def assert_equal(one, other, tolerance):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = ([both[name] for name in sorted(one)] for both in (one, other))
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for left, right in zip(one, other, strict=True):
            assert_equal(left, right, tolerance)
    else:
        assert one == pytest.approx(other, abs=tolerance)


@pytest.mark.parametrize("what", ["fit", "evaluate", "predict", "by hand"])
def test_two_workers_of_32_learn_and_report_what_one_process_does_with_64(trained, what):
    chief, worker, alone = trained
    for node in (chief, worker):
        assert_equal(node[what], alone[what], TOLERANCE)
    assert_equal(chief["fit"], worker["fit"], 0)


def test_an_epoch_of_each_node_s_own_batches_has_no_step_too_many_whoever_knows_its_length(trained):
    chief, worker, _ = trained
    for node in (chief, worker):
        assert node["known"][0] == node["unknown"][0] == 2 * STEPS
        assert_equal(node["known"], node["unknown"], 0)
    assert_equal(chief["known"], worker["known"], 0)


def test_checkpoints_backups_tensorboard_and_export_work(trained):
    for node in trained[:2]:
        found = node["callbacks"]
        assert found["epochs"] == [1, 2], "the second fit goes on where the backup ended"
        assert found["reloaded"]
        assert found["event files"] >= 1
        assert found["error of the export"] < TOLERANCE


GPUS = """
import numpy as np, tfos_lab
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
ctx = tfos_lab.local_context()

def parts(dataset):
    own = ctx.shard(dataset)
    divided = tf.distribute.MultiWorkerMirroredStrategy.experimental_distribute_dataset(two, own)
    return [part for batch in divided for part in two.experimental_local_results(batch)]

rows = tf.data.Dataset.range(24)
x = np.arange(4, dtype=np.float32)
weighted = tf.data.Dataset.from_tensor_slices((x, x, np.full(4, 3.0, np.float32))).batch(3)
answer = {
    "even": [part.numpy().tolist() for part in parts(rows.batch(6, drop_remainder=True))],
    "odd": [part.numpy().tolist() for part in parts(rows.batch(5, drop_remainder=True))],
    "last batch short": [part.numpy().tolist() for part in parts(rows.batch(7))],
    "weighted": [
        [x.numpy().tolist(), w.numpy().tolist(), np.signbit(w.numpy()).tolist()] for x, _, w in parts(weighted)
    ],
}

from tensorflow.python.data.ops import multi_device_iterator_ops as iterators
create, made = iterators._create_device_dataset, []
iterators._create_device_dataset = lambda *args: made.append(create(*args)) or made[-1]
parts(rows.batch(6))
answer["tuned"] = [dataset.options().autotune.enabled for dataset in made]
"""


@pytest.mark.full
def test_the_gpus_of_a_node_share_each_batch_and_their_mean_is_that_over_its_rows():
    divided = in_tensorflow(GPUS)
    assert divided["even"][:3] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert divided["odd"][:3] == [[0, 1], [2, 3, 4], [5, 6]]
    assert divided["last batch short"][-2:] == [[21], [22, 23]]
    for way, count in {"even": 24, "odd": 20, "last batch short": 24}.items():
        assert [row for part in divided[way] for row in part] == list(range(count))
    of_one, of_two = 3.0 * 2 * 1 / 3, 3.0 * 2 * 2 / 3
    assert divided["weighted"] == [
        [[0.0], [pytest.approx(of_one)], [False]],
        [[1.0, 2.0], [pytest.approx(of_two)] * 2, [False] * 2],
        # A GPU without a row of its own has a copy that does not count.
        [[3.0], [0.0], [True]],
        [[3.0], [6.0], [False]],
    ]
    # Python would wait for their tuners at the end of each epoch, for as long as the epoch has taken.
    assert divided["tuned"] == [False] * 2


# ---- ctx.callbacks() ------------------------------------------------------------------------------------------------


def fit_constant_model(args, ctx):
    """Fit a constant model, so that the metrics are the same after every step: three of four answers are right."""
    import time

    import tensorflow as tf
    import tf_keras as keras

    with ctx.strategy().scope():
        model = keras.Sequential([keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(3,))])
        model.compile(keras.optimizers.SGD(0.0), "mse", metrics=["accuracy"])
    rows, answers = np.ones((64, 3), "float32"), np.tile([0.0, 0.0, 1.0, 0.0], 16).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((rows, answers)).batch(8).repeat()
    slow = [keras.callbacks.LambdaCallback(on_train_batch_end=lambda *_: time.sleep(0.25))] if args else []
    callbacks = [*ctx.callbacks(), *slow]
    history = model.fit(dataset, epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=callbacks, verbose=0)
    return {name: values[-1] for name, values in history.history.items()}


@pytest.mark.full
def test_with_tf_keras_metrics_within_an_epoch_are_not_summed_over_workers(run):
    # As tf.keras, and imported beside Keras 3.
    for cluster in [run(fit_constant_model, "slowly", env={"TF_USE_LEGACY_KERAS": legacy}) for legacy in "10"]:
        results, metrics = cluster.wait(timeout=120), cluster.metrics
        assert results["chief:0"] == pytest.approx({"accuracy": 0.75, "loss": 0.25})
        assert len(metrics) > 2 * EPOCHS
        assert metrics["accuracy"].tolist() == pytest.approx([0.75] * len(metrics))
        assert metrics["loss"].tolist() == pytest.approx([0.25] * len(metrics))


def fit_while_the_loss_falls(ways, ctx):
    """Fit in a few ways a model whose loss falls by the same factor with each step; return what was reported."""
    import tensorflow as tf
    from tensorflow import keras

    # The last batch of an epoch has two rows only.
    rows, truth = np.ones((4 * (FALLING_STEPS - 1) + 2, 1), "float32"), [0, 1] * (2 * FALLING_STEPS - 1)
    labels = np.asarray(truth, "float32")[:, None]
    dataset = tf.data.Dataset.from_tensor_slices((rows, {"answer": np.ones_like(rows), "sign": labels}))
    found = {}
    for name, options in ways.items():
        x = keras.Input((1,))
        answer = keras.layers.Dense(1, kernel_initializer="zeros", use_bias=False, name="answer")(x)
        sign = keras.layers.Dense(1, "sigmoid", trainable=False, name="sign")(x)
        model = keras.Model(x, {"answer": answer, "sign": sign})
        model.compile(
            keras.optimizers.SGD(FALLING_RATE),
            loss={"answer": "mse"},
            metrics={"answer": ["mae"], "sign": [keras.metrics.AUC(name="auc")]},
            **options,
        )
        reports = found[name] = []

        def report(step, total_steps=None, reports=reports, **metrics):
            reports.append((step, metrics))

        ctx.report = report
        model.fit(dataset.batch(4), epochs=3, callbacks=ctx.callbacks(), verbose=0)
    return found


FALLING_STEPS, FALLING_RATE = 41, 0.01
KERAS_3 = {"keras": {}, "several steps at once": {"steps_per_execution": 4}, "compiled": {"jit_compile": True}}
KERAS_2 = {"tf_keras": {}, "tf_keras, several steps at once": {"steps_per_execution": 4}}


@pytest.fixture(scope="module")
def falling(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, running_clusters({"local": "processes", "grace": 2.0}) as start:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("falling")))
        found = {}
        for ways, legacy in ((KERAS_3, "0"), (KERAS_2, "1")):
            options = {"cluster_size": 1, "env": {"TF_USE_LEGACY_KERAS": legacy}}
            found |= start(fit_while_the_loss_falls, ways, **options).wait(timeout=300)["chief:0"]
        return found


@pytest.mark.parametrize("way", [*KERAS_3, *KERAS_2])
def test_a_curve_has_the_means_of_a_few_steps_and_does_not_jump_where_an_epoch_begins(falling, way):
    reports = falling[way]
    errors = [(1 - 2 * FALLING_RATE) ** step for step in range(3 * FALLING_STEPS)]
    within = [(step, metrics) for step, metrics in reports if "epoch" not in metrics]
    assert len(within) > 6
    for step, metrics in within:
        first = (step - 1) // FALLING_STEPS * FALLING_STEPS
        last = step - (step % FALLING_STEPS == 0)
        window = errors[max(first, last - 16) : last]
        assert metrics["loss"] == pytest.approx(np.mean(np.square(window)), rel=1e-3)
        assert metrics["answer_mae"] == pytest.approx(np.mean(window), rel=1e-3)
        assert not any("auc" in name for name in metrics), "there is no AUC of some steps"
    assert [metrics["loss"] for _, metrics in within] == sorted((one["loss"] for _, one in within), reverse=True)
    ends = [(step, metrics) for step, metrics in reports if "epoch" in metrics]
    assert [step for step, _ in ends] == [FALLING_STEPS, 2 * FALLING_STEPS, 3 * FALLING_STEPS]
    weights = [4] * (FALLING_STEPS - 1) + [2]
    for epoch, (_, metrics) in enumerate(ends):
        own = errors[epoch * FALLING_STEPS : (epoch + 1) * FALLING_STEPS]
        assert metrics["loss"] == pytest.approx(np.average(np.square(own), weights=weights), rel=1e-4)
        assert any("auc" in name for name in metrics)


def fit_until_the_loss_is_nan(args, ctx):
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    answers = np.ones(32 * 20, "float32")
    answers[32 * 11] = np.nan  # in the twelfth batch
    dataset = tf.data.Dataset.from_tensor_slices((np.ones((32 * 20, 3), "float32"), answers)).batch(32)
    callbacks = ctx.callbacks()
    model.fit(dataset, epochs=3, callbacks=callbacks, verbose=0)
    return [one.write_graph for one in callbacks if hasattr(one, "write_graph")]


def test_the_step_at_which_the_loss_becomes_nan_is_told_and_may_end_the_run(run):
    cluster = run(fit_until_the_loss_is_nan, None, cluster_size=1)
    written = cluster.wait(timeout=120)["chief:0"]
    assert written == [False], "a graph, that TensorBoard would open with and cannot draw"
    assert cluster.view().alarm == "loss is NaN since step 12"
    cluster = run(fit_until_the_loss_is_nan, None, cluster_size=1, on_nan="stop")
    with pytest.raises(NodeFailed, match="loss is NaN since step 12") as failed:
        cluster.wait(timeout=120)
    assert (failed.value.node, failed.value.kind) == ("chief:0", "FloatingPointError")


def fit_and_validate(args, ctx):
    """Fit with steps of a twentieth of a second, and validate for many short ones; return what Keras needed."""
    import time

    import keras
    import tensorflow as tf

    times = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            times.append(time.perf_counter())
            time.sleep(0.05)

    with ctx.strategy().scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    rows = tf.data.Dataset.from_tensor_slices((np.ones((32, 3), "float32"), np.ones(32, "float32"))).batch(4)
    steps = {"steps_per_epoch": 20, "validation_steps": 200, "validation_data": rows.repeat()}
    model.fit(rows.repeat(), epochs=2, callbacks=[Clock()], verbose=0, **steps)
    model.evaluate(rows, verbose=0)
    return (times[-1] - times[20]) / 19


def test_the_time_of_a_step_is_the_mean_of_the_epoch_s_training_steps(run):
    cluster = run(fit_and_validate, None, cluster_size=1)
    mean_s = cluster.wait(timeout=120)["chief:0"]
    (activity,) = cluster.diagnose().nodes.values()
    assert activity.step > 2 * 200, "steps of the validation show that it works"
    assert activity.step_s == pytest.approx(mean_s, rel=0.1)


def fit_late(args, ctx):
    """Fit fed rows, on one node later than the others wait to hear how many steps an epoch has."""
    import time

    from tensorflow import keras

    strategy = ctx.strategy()
    if ctx.is_chief:
        time.sleep(12)
    rows = ctx.dataset(4, features="x", label="x")
    with strategy.scope():
        model = keras.Sequential([keras.layers.Dense(3, input_shape=(3,))])
        model.compile("sgd", "mse")
    return len(model.fit(rows, epochs=2, verbose=0).history["loss"]), int(model.optimizer.iterations.numpy())


@pytest.mark.full
def test_nodes_that_come_late_end_their_epochs_with_the_others(run, tmp_path):
    data = write_parquet(tmp_path / "rows.parquet", rows(0, 40))
    clusters = [run(fit_late, env={"TF_USE_LEGACY_KERAS": legacy}) for legacy in "01"]
    for cluster in clusters:
        cluster.train(data, epochs=2)
    for cluster in clusters:
        assert cluster.wait(timeout=120) == dict.fromkeys(("chief:0", "worker:0"), (2, 2 * 5))


def count_traces(args, ctx):
    """Return how much TensorFlow has traced in each `fit`, and what one step makes of batches of several origins."""
    import keras
    import tensorflow as tf
    from tensorflow.python.framework import func_graph

    traced, make = [], func_graph.FuncGraph.__init__

    def count(graph, name, *args, **kwargs):
        traced.append(name)
        make(graph, name, *args, **kwargs)

    func_graph.FuncGraph.__init__ = count
    strategy = ctx.strategy()
    with strategy.scope():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
        model.compile("sgd", "mse")
    fed, x = ctx.dataset(4, features="x", label="x"), np.ones((16, 3), "float32")
    dataset = tf.data.Dataset.from_tensor_slices((x, x)).batch(4)
    counts = []
    for data in (fed, dataset, ctx.even(dataset)):
        for epochs in (2, 1, 3):
            before = len(traced)
            model.fit(data, epochs=epochs, verbose=0)
            counts.append(len(traced) - before)

    @tf.function
    def step(batches):
        return strategy.reduce("SUM", strategy.run(lambda x, _: tf.reduce_sum(x), args=next(batches)), axis=None)

    ways = (
        strategy.experimental_distribute_dataset(dataset),
        strategy.distribute_datasets_from_function(lambda _: dataset),
        strategy.experimental_distribute_dataset(dataset, tf.distribute.InputOptions()),
    )
    sums = [float(step(iter(way))) for way in ways]
    return counts, sums, model.evaluate(x, x, verbose=0)


def count_exchanges(args, ctx):
    """Return how often a step exchanges something, and the history: of Keras' own, with a metric, and an optimizer."""
    import keras
    import tensorflow as tf
    from tensorflow.python.framework import func_graph

    graphs, make = [], func_graph.FuncGraph.__init__

    def keep(graph, *args, **kwargs):
        make(graph, *args, **kwargs)
        graphs.append(graph)

    func_graph.FuncGraph.__init__ = keep

    def largest(y, predicted):
        return tf.reduce_max(model.trainable_variables[0])  # after the step

    class Passing(keras.optimizers.SGD):
        def apply(self, grads, trainable_variables=None):
            self.inner.apply_gradients(zip(grads, trainable_variables, strict=True))

    found = []
    for metrics, optimizer in (
        (["mae"], keras.optimizers.SGD),
        (["mae", largest], keras.optimizers.SGD),
        (["mae"], Passing),
    ):
        keras.utils.set_random_seed(0)
        with ctx.strategy().scope():
            model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
            model.compile(optimizer(), "mse", metrics=[*metrics, keras.metrics.MeanIoU(2, name="iou")])
            model.optimizer.inner = keras.optimizers.SGD()
        graphs.clear()
        history = model.fit(ctx.dataset(4, features="x", label="x"), epochs=2, verbose=0).history
        steps = [graph for graph in graphs if "step_on_data" in graph.name]
        found.append([sum("Collective" in op.type for op in graph.get_operations()) for graph in steps])
        found.append({name: values for name, values in history.items() if name != "largest"})
    return found


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """What both nodes of a cluster that is fed have counted."""
    with pytest.MonkeyPatch.context() as patch, running_clusters({"local": "processes", "grace": 2.0}) as start:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("counted")))
        cluster = start(lambda args, ctx: (count_traces(args, ctx), count_exchanges(args, ctx)))
        cluster.train(write_parquet(tmp_path_factory.mktemp("rows") / "rows.parquet", rows(0, 40)), epochs=12)
        return cluster.wait(timeout=240)


def test_no_epoch_is_traced_again_and_a_step_takes_batches_from_wherever_they_come(counted):
    for (counts, sums, loss), _ in counted.values():
        assert counts[0] > 0
        assert counts[1::3] == counts[2::3], "one epoch and three"
        assert sums == [4 * 3, 2 * 4 * 3, 4 * 3], "each worker gets its share, or what its function returns"
        assert np.isfinite(loss)


def test_a_step_exchanges_gradients_and_counts_of_metrics_together(counted):
    results = {node: found for node, (_, found) in counted.items()}
    exchanges, histories = results["chief:0"][::2], results["chief:0"][1::2]
    # One for each dtype: the mean IoU counts in integers. Where the step is not all of Keras, metrics have their own.
    assert exchanges == [[2], [3], [3]]
    assert histories[0] == histories[1] == histories[2]
    assert results["worker:0"] == results["chief:0"]


def test_with_parameter_servers_tf_keras_reports_each_epoch(run):
    cluster = run(fit_constant_model, env={"TF_USE_LEGACY_KERAS": "1"}, cluster_size=3, num_ps=1)
    results, metrics = cluster.wait(timeout=120), cluster.metrics
    assert results["chief:0"] == pytest.approx({"accuracy": 0.75, "loss": 0.25})
    assert metrics["step"].tolist() == [STEPS, 2 * STEPS]
    assert metrics["epoch"].tolist() == [1, 2]
    assert metrics["accuracy"].tolist() == pytest.approx([0.75, 0.75])


def fit_with_parameter_servers(args, ctx):
    with ctx.strategy().scope():
        model = make_model()
    model.fit(*some_rows(BATCH, seed=50), verbose=0)


def test_keras_3_has_no_fit_with_parameter_servers_and_says_what_to_use_instead(run):
    with pytest.raises(NodeFailed, match="ConfigError: Keras 3 has no `fit` with parameter servers") as caught:
        run(fit_with_parameter_servers, cluster_size=3, num_ps=1).wait(timeout=120)
    assert "TF_USE_LEGACY_KERAS" in str(caught.value)


def fit_fed_rows_with_parameter_servers(args, ctx):
    import tensorflow as tf

    with ctx.strategy().scope():
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(ctx.dataset(4, features="x", label="y"))


def test_keras_2_has_no_fit_of_fed_rows_with_parameter_servers(run, tmp_path):
    pq.write_table(pa.table({"x": [1.0] * 8, "y": [2.0] * 8}), tmp_path / "rows.parquet")
    cluster = run(fit_fed_rows_with_parameter_servers, env={"TF_USE_LEGACY_KERAS": "1"}, cluster_size=3, num_ps=1)
    cluster.train(str(tmp_path / "rows.parquet"))
    with pytest.raises(NodeFailed, match="ConfigError: Keras 2 has no `fit` of fed rows with parameter servers"):
        cluster.wait(timeout=120)


def resume_from_half_a_backup(args, ctx):
    """Return the epochs of each `fit`: the first one, one from a backup that was cut off, one with no other left."""
    from pathlib import Path

    import keras

    def fit(epochs):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
        callbacks = ctx.callbacks()
        callbacks[0].delete_checkpoint = False
        return model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=epochs, callbacks=callbacks, verbose=0).epoch

    written, folder = [fit(2)], Path(ctx.backup_dir)
    (folder / "training_metadata.json").write_text("")
    written.append(fit(3))
    (folder / "training_metadata.json").write_text("")
    (folder / "latest.weights.h5.bkp").unlink()
    written.append(fit(2))
    return written


def test_training_resumes_where_the_chief_was_lost_while_it_wrote_its_backup(run):
    results = run(resume_from_half_a_backup, cluster_size=1, restarts=1).wait(timeout=120)
    assert results["chief:0"] == [[0, 1], [1, 2], [0, 1]]
