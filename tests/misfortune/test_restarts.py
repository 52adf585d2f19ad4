"""A lost node, with `restarts`: all nodes start again and are fed again, and the user's call does not notice."""

from __future__ import annotations

import json
import time

import pytest

from tests.misfortune.conftest import PATIENCE_S, Family, wait_forever
from tests.support.clusters import runtime_of
from tests.support.unix_http import fetch_until, write_events
from tfos_lab.errors import ClusterEnded, NodeFailed

pytestmark = pytest.mark.leaves_nothing


def fail_once(args, ctx):
    """Kill itself in the first generation, once it has read the first rows."""
    import os
    import signal

    rows = [row for batch in ctx.dataset(4) for row in batch["x"].numpy()[batch["sample_weight"].numpy() > 0]]
    if ctx.restart == 0 and ctx.task_index == 0 and ctx.job_name == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    if ctx.restart == 0:
        ctx.wait_for_training(120)
    print(f"generation {ctx.restart}")  # noqa: T201
    return sorted(int(row) for row in rows)


def test_nodes_that_were_killed_start_again_and_are_fed_again(run):
    cluster = run(wait_for_a_kill, restarts=2)
    first = Family.of(cluster)
    first.children[1].kill()
    assert dict(cluster.wait(timeout_s=120)) == {"chief:0": 1, "worker:0": 1}
    assert cluster.state == "done"
    assert first.all_gone()
    assert "restart 1 of 2, as worker:0: Exited: the process was killed" in " ".join(cluster.view().notes)
    states = [event.state for event in cluster.events if hasattr(event, "state") and not hasattr(event, "node")]
    assert states.count("restarting") == 1
    assert states[-1] == "done"
    [(lost_s, again_s)] = cluster.view().restarts
    assert cluster.timings["running"] < lost_s < again_s < cluster.timings["done"]


def wait_for_a_kill(args, ctx):
    """Return only in a later generation."""
    import threading

    if ctx.restart == 0:
        threading.Event().wait()
    return ctx.restart


@pytest.mark.tensorflow
@pytest.mark.parametrize("spark_mode", ["local", "standalone"])
def test_rows_are_fed_again(run, spark):
    cluster = run(fail_once, restarts=1, env={})
    cluster.train(spark.range(40).withColumnRenamed("id", "x"))
    results = cluster.wait(timeout_s=200)
    assert sorted(row for rows in results.values() for row in rows) == list(range(40))
    assert "generation 1" in cluster.logs("chief:0")


def learn(args, ctx):
    """Train for four epochs; in the first generation a worker is killed in the third, when the second is saved."""
    import json
    import os
    import time
    from pathlib import Path

    import keras
    import numpy as np

    def saved_epochs():
        try:
            return json.loads((Path(ctx.backup_dir) / "training_metadata.json").read_text())["epoch"]
        except (OSError, ValueError):  # the chief has not begun, or is writing it
            return 0

    class Killed(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if ctx.restart == 0 and epoch == 2 and not ctx.is_chief:
                while saved_epochs() < 2:
                    time.sleep(0.01)
                os.kill(os.getpid(), 9)

    with ctx.strategy().scope():
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
        model.compile(keras.optimizers.SGD(0.1), "mse")
    x, y = np.ones((8, 2), "float32"), np.ones((8, 1), "float32")
    history = model.fit(x, y, batch_size=8, epochs=4, callbacks=[*ctx.callbacks(), Killed()], verbose=0)
    return history.epoch, model.get_weights()


@pytest.mark.tensorflow
def test_keras_continues_after_the_last_complete_epoch_on_all_nodes(run):
    results = run(learn, restarts=1, env={}).wait(timeout_s=200)
    (epochs, weights), (others_epochs, others_weights) = results.values()
    assert epochs == others_epochs == [2, 3]
    for one, other in zip(weights, others_weights, strict=True):
        assert one.tolist() == other.tolist()


def test_when_no_restart_is_left_the_cluster_fails_as_usual(run):
    def die(args, ctx):
        import os

        os.kill(os.getpid(), 9)

    with pytest.raises(NodeFailed) as caught:
        run(die, restarts=1).wait(timeout_s=120)
    assert caught.value.kind == "Exited"


def test_a_stopped_cluster_does_not_restart(run):
    cluster = run(wait_forever, restarts=5)
    family = Family.of(cluster)
    family.children[0].kill()
    cluster.stop(grace_s=0.0)
    assert cluster.state == "stopped"
    assert family.all_gone()
    with pytest.raises(ClusterEnded):
        cluster.wait(timeout_s=10)


def write_scalars(args, ctx):
    """Write event files as two training loops would that know nothing of each other."""
    import threading

    write, written = args
    if ctx.is_chief:
        write(ctx.event_dir, loss=[3.0, 2.0, 1.0] if ctx.restart == 0 else [0.5, 0.25])
        written.touch()
    if ctx.restart == 0:
        threading.Event().wait()


@pytest.mark.parametrize("lost", ["children", "agents"])
def test_event_files_of_all_generations_are_copied_here_and_kept_apart(run, tmp_path, monkeypatch, lost):
    far = tmp_path / "far"
    # The nodes are on this machine; pretend that it does not see their folder.
    monkeypatch.setattr("tfos_lab.engine.tensorboard.event_files._sees", lambda _path: False)
    written = tmp_path / "written"  # an event file is there before its events are in it
    cluster = run(write_scalars, (write_events, written), restarts=1, tensorboard=True, log_dir=str(far))
    until(written.exists)
    getattr(Family.of(cluster), lost)[0].kill()
    cluster.wait(timeout_s=120)
    cluster.stop()
    far.rename(tmp_path / "gone")
    try:
        unix_server = runtime_of(cluster).publisher.tensorboard_socket
        fetch_until(unix_server, "/data/plugin/scalars/tags", b"chief-0-restart-1")
        shown = {}
        for generation in ("chief-0", "chief-0-restart-1"):
            points = fetch_until(unix_server, f"/data/plugin/scalars/scalars?tag=loss&run={generation}", b"[")
            shown[generation] = [(step, value) for _, step, value in json.loads(points)]
        assert shown == {"chief-0": [(0, 3.0), (1, 2.0), (2, 1.0)], "chief-0-restart-1": [(0, 0.5), (1, 0.25)]}
    finally:
        runtime_of(cluster).publisher.close()


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
