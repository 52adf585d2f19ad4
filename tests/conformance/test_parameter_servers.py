"""Programs with parameter servers of TensorFlow 1 and Keras 2; those of Keras 3 are the example and the tutorial."""

import numpy as np
import pytest

from tests.support.findings import findings, leave
from tfos_lab.data import mnist

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow, pytest.mark.full]


@pytest.fixture(scope="module")
def digits():
    return mnist(download=False)


# Functions are made where they are asked for: nodes elsewhere cannot import this module.


def classifying():
    """Return a program of TensorFlow 1: workers that train the same variables, each at its own speed.

    One of them makes its server by itself, and the other nodes have ours.
    """

    def classify(args, ctx):
        import tensorflow as tf

        v1 = tf.compat.v1
        v1.disable_eager_execution()
        if ctx.node == "worker:1":
            started = v1.train.Server(v1.train.ClusterSpec(ctx.cluster_spec), ctx.job_name, ctx.task_index)
        else:
            started = ctx.start_server()
        if ctx.job_name == "ps":
            started.join()
        with v1.device(v1.train.replica_device_setter(cluster=v1.train.ClusterSpec(ctx.cluster_spec))):
            step = v1.train.get_or_create_global_step()
            x, y = v1.placeholder(tf.float32, [None, 28 * 28]), v1.placeholder(tf.int64, [None])
            hidden, readout = (
                v1.get_variable(name, shape, initializer=v1.glorot_uniform_initializer(seed=1))
                for name, shape in (("hidden", [28 * 28, 256]), ("readout", [256, 10]))
            )
            logits = tf.matmul(tf.nn.relu(tf.matmul(x, hidden)), readout)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            train = v1.train.AdamOptimizer(0.002).minimize(loss, global_step=step)
            accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
        accuracies = []
        with v1.train.MonitoredTrainingSession(started.target, is_chief=ctx.is_chief) as session:
            dataset = ctx.dataset(32, features="image", label="label", shuffle=True, seed=1)
            for _ in range(ctx.epochs):
                for images, labels, _weights in dataset:
                    session.run(train, {x: images, y: labels})
                accuracies.append(float(session.run(accuracy, dict(zip((x, y), args, strict=True)))))
            return max(accuracies), int(session.run(step))

    return classify


@pytest.mark.back_ends("local-session")
def test_two_workers_and_one_ps_learn_the_digits_asynchronously(run, spark, digits):
    test_set = digits.x_test.reshape(-1, 28 * 28) / np.float32(255), digits.y_test
    cluster = run(classifying(), test_set, cluster_size=3, num_ps=1, master_node=None)
    # After 6 epochs, one beginning in some thousands is below the bound; after 10, all are a hundredth above it.
    epochs = 10
    cluster.train(digits.train_df(spark), epochs=epochs)
    results = cluster.wait(timeout=200)
    accuracies, steps = zip(results["worker:0"], results["worker:1"], strict=True)
    assert max(accuracies) >= 0.95
    # Workers that update the count at the same time may count one step for two.
    assert max(steps) > 0.9 * epochs * len(digits.x_train) / 32
    assert [node.state for node in cluster.nodes] == ["done"] * 3


def of_2019():
    """Return a wide & deep program with feature columns, under Keras 2, with an evaluator beside it."""

    def train(folder, ctx):
        import numpy as np
        import tensorflow as tf

        strategy = ctx.strategy()
        columns = tf.feature_column
        age = columns.numeric_column("age")
        town = columns.categorical_column_with_vocabulary_list("town", ["Rome", "Oslo"])
        crossed = columns.crossed_column([columns.bucketized_column(age, [30.0]), "town"], hash_bucket_size=8)
        with strategy.scope():
            deep = tf.keras.Sequential(
                [
                    tf.keras.layers.DenseFeatures([age, columns.embedding_column(town, 2)]),
                    tf.keras.layers.Dense(4, activation="relu"),
                    tf.keras.layers.Dense(1),
                ]
            )
            wide = tf.keras.Sequential(
                [tf.keras.layers.DenseFeatures([columns.indicator_column(crossed)]), tf.keras.layers.Dense(1)]
            )
            model = tf.keras.experimental.WideDeepModel(wide, deep, activation="sigmoid")
            model.compile("adam", "binary_crossentropy", metrics=["accuracy"])
        ages = np.arange(64, dtype=np.float32)
        rows = {"age": ages[:, None], "town": np.array(["Rome", "Oslo"] * 32)[:, None]}
        dataset = tf.data.Dataset.from_tensor_slices((rows, (ages > 30).astype(np.float32)[:, None])).batch(16)
        if ctx.job_name == "evaluator":
            evaluator = tf.keras.experimental.SidecarEvaluator(model, dataset, folder, max_evaluations=1)
            evaluator.start()
            return leave(folder, ctx, sorted(model.get_metrics_result()), nodes=2)
        saving = tf.keras.callbacks.ModelCheckpoint(f"{folder}/ckpt-{{epoch}}", save_weights_only=True)
        history = model.fit(dataset.repeat(), epochs=2, steps_per_epoch=4, verbose=0, callbacks=[saving])
        return leave(folder, ctx, [history.epoch, type(model).__module__], nodes=2)

    return train


@pytest.mark.back_ends("local")
def test_a_wide_and_deep_program_of_2019_trains_and_is_evaluated_beside(run, tmp_path):
    options = {"cluster_size": 4, "num_ps": 1, "evaluator": True, "env": {"TF_USE_LEGACY_KERAS": "1"}}
    folder = tmp_path / "model"
    folder.mkdir()
    run(of_2019(), str(folder), **options).wait(timeout=200)
    found = findings(folder)
    epochs, module = found["chief:0"]
    assert epochs == [0, 1]
    assert module.startswith("tf_keras.")
    assert found["evaluator:0"] == ["accuracy", "loss"]


def of_the_tutorial():
    """Return a program of TensorFlow's own tutorial, which starts its servers itself."""

    def train(args, ctx):
        import tensorflow as tf

        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        if resolver.task_type in ("worker", "ps"):
            server = tf.distribute.Server(
                resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
            )
            server.join()
        strategy = tf.distribute.ParameterServerStrategy(resolver)
        coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
        with strategy.scope():
            steps = tf.Variable(0)
        step = tf.function(lambda: steps.assign_add(1))
        for _ in range(20):
            coordinator.schedule(step)
        coordinator.join()
        return int(steps.numpy())

    return train


@pytest.mark.back_ends("local")
def test_servers_that_a_program_starts_itself_end_with_training(run):
    cluster = run(of_the_tutorial(), cluster_size=3, num_ps=1)
    assert dict(cluster.wait(timeout=60)) == {"chief:0": 20, "worker:0": None, "ps:0": None}
