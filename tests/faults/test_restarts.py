"""A lost node, with `restarts`: all nodes start again, or a worker alone, and the user's call does not notice."""

import os
import signal
from pathlib import Path

import pytest

from tests.faults.scene import PATIENCE_S, Family, wait_forever
from tests.support.eventually import eventually
from tests.support.processes import gone

pytestmark = pytest.mark.leaves_nothing


def states_of(cluster):
    """Return the states of the cluster, not those of its nodes."""
    return [event.state for event in cluster.events if hasattr(event, "state") and not hasattr(event, "node")]


def test_nodes_that_were_killed_start_again(scene):
    cluster = scene.run(lambda args, ctx: ctx.restart or wait_forever(args, ctx), restarts=2)
    first = scene.family
    scene.child("worker:0").kill()
    assert dict(cluster.wait(timeout=120)) == {"chief:0": 1, "worker:0": 1}
    assert cluster.state == "done"
    assert gone(first.nodes)
    assert "restart 1 of 2, as worker:0: Exited: the process was killed" in " ".join(cluster.view().notes)
    assert states_of(cluster).count("restarting") == 1
    assert states_of(cluster)[-1] == "done"
    [(lost_s, again_s)] = cluster.view().restarts
    assert cluster.timings["running"] < lost_s < again_s < cluster.timings["done"]


def fail_once(args, ctx):
    """Kill itself in the first start, once it has read the first rows."""
    rows = [row for batch in ctx.dataset(4) for row in batch["x"].numpy()[batch["sample_weight"].numpy() > 0]]
    if ctx.restart == 0 and ctx.node == "worker:0":
        os.kill(os.getpid(), signal.SIGKILL)
    if ctx.restart == 0:
        ctx.wait_for_training(120)
    print(f"start {ctx.restart}")  # noqa: T201
    return sorted(int(row) for row in rows)


@pytest.mark.tensorflow
@pytest.mark.parametrize("spark_mode", ["local", "standalone"])
def test_rows_are_fed_again(scene, spark, spark_mode):
    scene.run(fail_once, restarts=1, env={})
    results = scene.feed(spark.range(40).withColumnRenamed("id", "x"))
    assert sorted(row for rows in results.values() for row in rows) == list(range(40))
    assert "start 1" in scene.cluster.logs("chief:0")


# ---- training by a ClusterCoordinator -------------------------------------------------------------------------------


def learn(folder, ctx):
    """Learn ``y = 3 x + 1`` with Keras, in steps that the chief schedules; checkpoints go to ``backup_dir``.

    It trains until there is a file ``enough``, and two hundred steps more.
    """
    import keras
    import tensorflow as tf

    strategy = ctx.strategy()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD(0.3)
        optimizer.build(model.trainable_variables)
        steps = tf.Variable(0, dtype=tf.int64, trainable=False)
    checkpoint = tf.train.Checkpoint(model=model, steps=steps)
    manager = tf.train.CheckpointManager(checkpoint, f"{ctx.backup_dir}/steps", max_to_keep=1)
    checkpoint.restore(manager.latest_checkpoint)
    begun = int(steps.numpy())

    def rows():
        x = tf.random.stateless_uniform((64, 1), seed=(1, 2))
        return tf.data.Dataset.from_tensor_slices((x, 3.0 * x + 1.0)).repeat().batch(16)

    def replica_step(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x, training=True) - y) ** 2)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        steps.assign_add(1)
        return loss

    step = tf.function(lambda iterator: strategy.run(replica_step, args=next(iterator)))
    iterator = iter(coordinator.create_per_worker_dataset(rows))

    def train(count):
        for _ in range(count):
            coordinator.schedule(step, args=(iterator,))
        coordinator.join()

    while not Path(folder, "enough").exists():
        train(20)
        manager.save()
        Path(folder, f"saved-{ctx.restart}").touch()
    train(200)
    (kernel,), (bias,) = (variable.numpy().tolist() for variable in model.trainable_variables)
    return begun, int(steps.numpy()), kernel[0], bias


def until(cluster, fact):
    """Wait for what takes as long as TensorFlow does, on a cluster that must not fail."""

    def is_so():
        if cluster.ended:
            cluster.wait()
        return fact()

    eventually(is_so, patience_s=3 * PATIENCE_S)


def learned(cluster, folder):
    """Let it end; return the step at which it began and the last one."""
    (folder / "enough").touch()
    begun, steps, kernel, bias = cluster.wait(timeout=240)["chief:0"]
    assert (kernel, bias) == (pytest.approx(3.0, abs=0.3), pytest.approx(1.0, abs=0.3))
    return begun, steps


def serves_again(view, killed):
    return view.state == "serving" and view.pid not in (0, killed.pid)


@pytest.mark.tensorflow
@pytest.mark.parametrize("spark_mode", ["local", "standalone"])
def test_a_killed_worker_is_started_again_alone_while_training_goes_on(run, spark, spark_mode, tmp_path):
    options = {} if spark_mode == "local" else {"driver_ps": True}
    cluster = run(learn, str(tmp_path), cluster_size=4, num_ps=1, restarts=3, env={}, **options)
    family = Family.of(cluster)
    until(cluster, (tmp_path / "saved-0").exists)
    address = cluster.nodes[2].address
    for rank in (2, 3):
        family.children[rank].kill()
        until(cluster, lambda rank=rank: serves_again(cluster.nodes[rank], family.children[rank]))
    begun, steps = learned(cluster, tmp_path)
    assert begun == 0
    assert steps >= 220
    assert "restarting" not in states_of(cluster)
    first, second = cluster.view().notes
    assert first.startswith("restart 1 of 3, of worker:0 alone, while the others go on: Exited: the process was killed")
    assert second.startswith("restart 2 of 3, of worker:1 alone")
    assert [node.state for node in cluster.nodes] == ["done"] * 4
    assert cluster.nodes[2].address == address


@pytest.mark.tensorflow
def test_a_killed_parameter_server_restarts_all_from_the_backup(run, tmp_path):
    cluster = run(learn, str(tmp_path), cluster_size=3, num_ps=1, restarts=1, env={})
    family = Family.of(cluster)
    until(cluster, (tmp_path / "saved-0").exists)
    family.children[0].kill()
    until(cluster, (tmp_path / "saved-1").exists)
    begun, steps = learned(cluster, tmp_path)
    assert begun >= 20
    assert steps >= begun + 220
    [note] = cluster.view().notes
    assert note.startswith("restart 1 of 1, as ps:0: Exited: the process was killed")
    assert gone(family.nodes)
