"""Training by a ClusterCoordinator, from which workers and parameter servers are killed."""

from __future__ import annotations

import time

import pytest

from tests.misfortune.conftest import PATIENCE_S, Family
from tfos_lab.core.states import RunState
from tfos_lab.engine.state.events import NodeStartedAgain, StateChanged
from tfos_lab.errors import NodeFailed

pytestmark = [pytest.mark.leaves_nothing, pytest.mark.tensorflow]


def learning():
    """Return a function that learns ``y = 3 x + 1`` with Keras, in steps that the chief schedules.

    It trains until the file ``args / "enough"`` exists, and two hundred steps more; checkpoints go to ``backup_dir``.
    """

    def learn(args, ctx):
        from pathlib import Path

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

        @tf.function
        def step(iterator):
            return strategy.run(replica_step, args=next(iterator))

        iterator = iter(coordinator.create_per_worker_dataset(rows))

        def train(count):
            for _ in range(count):
                coordinator.schedule(step, args=(iterator,))
            coordinator.join()

        while not (Path(args) / "enough").exists():
            train(20)
            manager.save()
            (Path(args) / f"saved-{ctx.restart}").touch()
        train(200)
        (kernel,), (bias,) = (variable.numpy().tolist() for variable in model.trainable_variables)
        return begun, int(steps.numpy()), kernel[0], bias

    return learn


def serves_again(node, killed):
    return node.state == "serving" and node.pid not in (0, killed.pid)


@pytest.mark.parametrize("spark_mode", ["local", "standalone"])
def test_a_killed_worker_is_started_again_alone_while_training_goes_on(run, spark, spark_mode, tmp_path):
    options = {"local": "processes"} if spark_mode == "local" else {"driver_ps": True}
    cluster = run(learning(), str(tmp_path), cluster_size=4, num_ps=1, restarts=3, env={}, **options)
    family = Family.of(cluster)
    until(cluster, (tmp_path / "saved-0").exists)
    address = cluster.nodes[2].address
    family.children[2].kill()
    until(cluster, lambda: serves_again(cluster.nodes[2], family.children[2]))
    family.children[3].kill()
    until(cluster, lambda: serves_again(cluster.nodes[3], family.children[3]))
    (tmp_path / "enough").touch()
    begun, steps, kernel, bias = cluster.wait(timeout_s=120)["chief:0"]
    assert begun == 0
    assert steps >= 220
    assert (kernel, bias) == (pytest.approx(3.0, abs=0.3), pytest.approx(1.0, abs=0.3))
    assert [event.node for event in cluster.events if isinstance(event, NodeStartedAgain)] == ["worker:0", "worker:1"]
    assert RunState.RESTARTING not in [event.state for event in cluster.events if isinstance(event, StateChanged)]
    first, second = cluster.view().notes
    assert first.startswith("restart 1 of 3, of worker:0 alone, while the others go on: Exited: the process was killed")
    assert second.startswith("restart 2 of 3, of worker:1 alone")
    assert [node.state for node in cluster.nodes] == ["done"] * 4
    assert cluster.nodes[2].address == address


def test_a_killed_parameter_server_restarts_all_from_the_backup(run, tmp_path):
    cluster = run(learning(), str(tmp_path), cluster_size=3, num_ps=1, restarts=1, env={})
    family = Family.of(cluster)
    until(cluster, (tmp_path / "saved-0").exists)
    family.children[0].kill()
    until(cluster, (tmp_path / "saved-1").exists)
    (tmp_path / "enough").touch()
    begun, steps, kernel, bias = cluster.wait(timeout_s=120)["chief:0"]
    assert begun >= 20
    assert steps >= begun + 220
    assert (kernel, bias) == (pytest.approx(3.0, abs=0.3), pytest.approx(1.0, abs=0.3))
    [note] = cluster.view().notes
    assert note.startswith("restart 1 of 1, as ps:0: Exited: the process was killed")
    assert family.all_gone()


def test_a_worker_that_fails_again_and_again_ends_in_its_error(run, tmp_path):
    def fail(args, ctx):
        import os
        import threading
        import time
        from pathlib import Path

        def exit_when_told():
            while not Path(args).exists():
                time.sleep(0.02)
            os._exit(3)

        if ctx.node == "worker:0":
            threading.Thread(target=exit_when_told, daemon=True).start()
        if ctx.job_name != "chief":
            ctx.start_server().join()
        threading.Event().wait()

    cluster = run(fail, str(tmp_path / "serves"), cluster_size=3, num_ps=1, restarts=1, env={})
    until(cluster, lambda: cluster.nodes[2].state == "serving")
    (tmp_path / "serves").touch()
    with pytest.raises(NodeFailed) as error:
        cluster.wait(timeout_s=120)
    assert (error.value.node, error.value.kind) == ("worker:0", "Exited")
    assert "exited with code 3" in error.value.message
    [note] = cluster.view().notes
    assert note.startswith("restart 1 of 1, of worker:0 alone, while the others go on: Exited: the process exited with")


def until(cluster, condition):
    deadline = time.monotonic() + 3 * PATIENCE_S
    while not condition():
        if cluster.ended:
            cluster.wait()
        assert time.monotonic() < deadline
        time.sleep(0.02)
