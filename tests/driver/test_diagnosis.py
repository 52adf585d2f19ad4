"""Why training is as slow as it is: verdicts from figures, right where they allow one and silent where they do not."""

import contextlib
import dataclasses
import itertools
import math
import re
import time

import pytest

import tfos_lab
from tests.support.clusters import running_clusters
from tests.support.eventually import eventually
from tests.support.fake_nodes import identity_of
from tests.support.quick import QUICK_ENV
from tfos_lab.core import messages as m
from tfos_lab.driver.diagnosis.diagnosis import Assessor
from tfos_lab.driver.state.events import FeedProgressed


@pytest.fixture
def training(start, nodes):
    """A cluster whose nodes train, and have measured this; None for a node that has measured nothing."""

    def training(*activities, hosts=None, feeds=(), updates=3):
        ranks = range(len(activities))
        nodes.missing = set(ranks)
        cluster = start(cluster_size=len(activities), master_node=None)
        for rank, host in zip(ranks, hosts or ["h"] * len(activities), strict=True):
            nodes.listener.deliver(identity_of(rank), m.Reserve(host, f"{host}:{rank}", 1, "e", [], rank=rank))
        cluster.wait_until_running()
        for number, feed in enumerate(feeds):
            progress = {"rows": {}, "partitions": 1, "size_bytes": 1, "complete": False, **feed}
            cluster.bus.publish(FeedProgressed(time_s=time.time(), feed=number, **progress))
        for _ in range(updates):
            for rank in ranks:
                if activities[rank] is not None:
                    nodes.send(m.Activity(m.NodeActivity(**activities[rank]), rank=rank))
                nodes.settle()
            cluster.view()
        return cluster

    return training


@pytest.fixture
def verdict_on(training):
    return lambda *activities, **how: training(*activities, **how).diagnose()


def activity(step_s=0.1, step=50, **figures):
    known = ("waits_rows", "waits_data", "waits_peers", "computes", "python")
    rest = 1.0 - sum(figures.get(name, 0.0) for name in known)
    return {"step": step, "step_s": step_s, "computes": max(0.0, rest), **figures}


# ---- verdicts -------------------------------------------------------------------------------------------------------

FAST, SLOW = activity(waits_peers=0.525, host_cpu=0.4), activity(waits_peers=0.0, host_cpu=0.98)
IN_PYTHON = activity(python=0.9, where="train.py, line 7, in step", host_cpu=0.98)
COMPUTES, LONG = activity(0.21, computes=0.93, python=0.07), activity(0.1, python=0.3)


def crowded(count, cores=2, **figures):
    """Nodes in lock-step that keep the cores of their hosts busy."""
    return [activity(0.037, 200, waits_peers=0.65, host_cpu=0.98, host_cores=cores, cpu=0.5) | figures] * count


def behind(**figures):
    """A node that another waits for."""
    return [activity(waits_peers=0.6), activity(**figures)]


def measured(*figures, **how):
    """What nodes have measured, on which hosts, of which feeds."""
    return figures, how


# The verdict, after its kind, for what nodes have measured.
VERDICTS = {
    "rows: Waits for rows 62 % of the time: Spark delivers 4,100 rows/s. Use more partitions.": measured(
        activity(waits_rows=0.64, rows_s=2100), activity(waits_rows=0.60, rows_s=2040), feeds=[{}]
    ),
    "rows: Waits for rows 60 % of the time. Cache the DataFrame.": measured(
        activity(waits_rows=0.6), feeds=[{"total_partitions": 64}]
    ),
    "rows: Waits for rows 50 % of the time, though all have arrived. Raise batch_size.": measured(
        activity(waits_rows=0.5, rows_s=50), feeds=[{"complete": True}]
    ),
    "healthy: Keeps up with the stream: waits for its rows 80 % of the time.": measured(
        activity(waits_rows=0.8), feeds=[{"stream": True}]
    ),
    "tf.data: Waits for its tf.data pipeline 60 % of the time. Try num_parallel_calls=tf.data.AUTOTUNE.": measured(
        activity(0.2, waits_data=0.7), activity(0.2, waits_data=0.5)
    ),
    "tf.data: Waits for its tf.data pipeline 60 % of the time, on busy cores. Try cache().": measured(
        activity(0.2, waits_data=0.6, host_cpu=0.97)
    ),
    "compute: Compute bound: 93 % of each step of 210 ms. More nodes would help.": measured(*[COMPUTES] * 2),
    "compute: Compute bound: 93 % of each step of 210 ms, on busy cores.": measured(COMPUTES | {"host_cpu": 0.99}),
    "compute: Compute bound: 100 % of each step of 100 ms, GPUs at 97 %. More would help.": measured(
        activity(gpu=0.97)
    ),
    "straggler: worker:3 is 2.1× slower: its host h2 is at 98 % CPU.": measured(
        FAST, FAST, FAST, SLOW, hosts=["h1", "h1", "h1", "h2"]
    ),
    "straggler: worker:1 is 2.1× slower, in Python (train.py, line 7, in step). Try %tfos profile worker:1.": measured(
        FAST, IN_PYTHON
    ),
    "straggler: worker:2 is 2.1× slower: its host h2 is at 98 % CPU.": measured(
        FAST, FAST, IN_PYTHON, hosts=["h1", "h2", "h2"]
    ),
    "straggler: worker:1 is 2.5× slower: it waits for rows. Repartition the DataFrame evenly.": measured(
        *behind(waits_rows=0.6)
    ),
    "straggler: worker:1 is 2.5× slower: it waits for its tf.data pipeline. Look at its disk.": measured(
        *behind(waits_data=0.6)
    ),
    "straggler: worker:1 is 2.5× slower: it computes longer. Give all nodes equal batches.": measured(*behind()),
    "straggler: worker:2 is 3.0× slower: it computes longer. Give all nodes equal hosts and batches.": measured(
        LONG, LONG, LONG | {"step_s": 0.3}, hosts=["h1", "h2", "h3"]
    ),
    "peers: The nodes wait for one another 48 % of the time. Try larger batches.": measured(
        activity(0.04, 100, waits_peers=0.5), activity(0.04, 100, waits_peers=0.45)
    ),
    "cores: 4 nodes share 2 busy cores. cluster_size=2 would be as fast.": measured(*crowded(4)),
    "cores: 4 nodes share 2 busy cores of h1. Fewer nodes per host would be as fast.": measured(
        *crowded(8), hosts=[*["h1"] * 4, *["h2"] * 4]
    ),
    "separate: Each node trains a model of its own. Build it under ctx.strategy().scope().": measured(
        *[activity(step=1, trains_alone=True)] * 2
    ),
    "separate: Learning rates differ (worker:0 0.5, worker:2 0.01). Give all nodes the same callbacks.": measured(
        *[activity(step=1, epochs=3, learning_rate=rate) for rate in (0.5, 0.25, 0.01)]
    ),
    "python: Spends 90 % of its time in Python (Cell In[3], line 12, in step). Try tf.function.": measured(
        activity(0.5, python=0.9, where="Cell In[3], line 12, in step", cpu=0.9)
    ),
    "python: Spends 90 % of its time in Python (Cell In[3], line 7, in read), mostly waiting.": measured(
        activity(0.5, python=0.9, where="Cell In[3], line 7, in read", cpu=0.4)
    ),
    "python: Spends 80 % of its time in Python. Try tf.function.": measured(
        activity(0.5, python=0.8, cpu=0.3, host_cpu=0.95)
    ),
    "healthy: Healthy: computes 70 % of the time.": measured(
        activity(waits_rows=0.1, python=0.2), activity(waits_data=0.1, python=0.2)
    ),
    "healthy: Healthy: steps of 3.0 ms.": measured(activity(0.003, 2000)),
    "healthy: Healthy: steps of 3.0 ms, mostly Python. Larger batches take more rows per second.": measured(
        activity(0.003, 2000, python=0.9)
    ),
}
# Nodes in lock-step whose cores suffice, are not known, or are kept busy by others.
PEERS = [
    measured(*crowded(2)),
    measured(*crowded(4, cores=0)),
    measured(*crowded(4, cpu=0.01)),
    measured(*crowded(4, gpu=0.9)),
    measured(*crowded(4), hosts=["h1", "h2", "h3", "h4"]),
]


@pytest.mark.parametrize("told", VERDICTS)
def test_each_verdict_has_its_kind_and_a_short_sentence(verdict_on, told):
    figures, how = VERDICTS[told]
    found = verdict_on(*figures, **how)
    assert f"{found.kind}: {found.verdict}" == told
    assert len(re.sub(r" (?=%)", "", found.verdict).split()) <= 16


@pytest.mark.parametrize(("figures", "how"), PEERS)
def test_busy_cores_are_to_blame_only_if_the_nodes_share_too_few(verdict_on, figures, how):
    assert verdict_on(*figures, **how).kind == "peers"


def slower_of(diagnosis):
    return {node: activity.slower for node, activity in diagnosis.nodes.items() if activity.slower is not None}


def test_nodes_that_are_slower_are_marked_after_some_updates(training):
    figures = [*[activity(waits_peers=0.6)] * 3, activity(), activity()]
    assert slower_of(training(*figures, updates=2).diagnose()) == {}
    several = training(*figures, updates=3).diagnose()
    assert several.kind == "straggler"
    assert slower_of(several) == {"worker:3": pytest.approx(2.5), "worker:4": pytest.approx(2.5)}


@pytest.mark.parametrize(
    ("step_ms", "waits", "host_cpu"),
    [
        ((22, 22, 22, 21), (0.70, 0.66, 0.64, 0.33), 0.97),
        ((0.30, 0.30, 0.42), (0.0, 0.0, 0.0), 0.3),
        ((100, 100, 130), (0.0, 0.0, 0.0), 0.3),
    ],
)
def test_nodes_that_differ_as_figures_do_from_moment_to_moment_are_not_called_slower(
    verdict_on, step_ms, waits, host_cpu
):
    found = verdict_on(
        *[
            activity(step / 1000, 20_000, waits_peers=share, host_cpu=host_cpu)
            for step, share in zip(step_ms, waits, strict=True)
        ]
    )
    assert (slower_of(found), found.kind == "straggler") == ({}, False)


# ---- silence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what",
    [
        pytest.param([None], id="no figures"),
        pytest.param([activity(), None], id="figures of one node only"),
        pytest.param([{"step": 50, "step_s": 0.1}], id="no shares"),
        pytest.param([activity(step=2)], id="too few steps"),
        pytest.param([activity(0.01, 70, waits_rows=0.9)], id="a run of 0.7 s"),
        pytest.param([activity(step_s=None, waits_rows=0.9)], id="no steps"),
        pytest.param([activity(idle_s=30.0)], id="may be hung"),
        pytest.param([activity(waits_rows=0.2, waits_data=0.2, python=0.3)], id="a bit of everything"),
        pytest.param([activity(has_gpu_peers=True, gpu=1.0)] * 2, id="GPUs that may wait for one another"),
        pytest.param([activity(step=1, trains_alone=True)], id="one node trains by itself"),
        pytest.param([activity(step=1, trains_alone=True), activity(step=1)], id="so does one of two"),
        pytest.param(
            [activity(step=1, epochs=1, learning_rate=0.5), activity(step=1, epochs=2, learning_rate=0.25)],
            id="rates of different epochs",
        ),
    ],
)
def test_it_is_silent_where_it_does_not_know(verdict_on, what):
    verdict = verdict_on(*what)
    assert (verdict.kind, verdict.verdict) == ("unknown", "")


# ---- progress, the time that is left, and the end -------------------------------------------------------------------


def test_progress_is_in_steps_of_those_who_report_how_many_there_will_be(training, nodes):
    cluster = training(None, None)
    nodes.send(m.Reported(30, None, {}, 1.0, rank=0))
    nodes.settle()
    assert cluster.diagnose().progress is None, "nobody knows of how many"
    nodes.send(m.Reported(30, 60, {}, 1.0, rank=0))
    nodes.send(m.Reported(20, 80, {}, 1.0, rank=1))
    nodes.settle()
    assert cluster.diagnose().progress == pytest.approx((0.5 + 0.25) / 2)


def test_rows_of_all_epochs_say_how_much_is_done_once_all_have_arrived(training, nodes):
    feed = {"rows": {"worker:0": 100, "worker:1": 100}, "complete": True, "epochs": 2}
    for feeds, done in [([feed], 0.5), ([{**feed, "complete": False}], None)]:
        cluster = training(None, None, feeds=[{**feed, "split": "validation", "epochs": 1}, *feeds])
        nodes.send(m.RowsTaken(150, rank=0))
        nodes.send(m.RowsTaken(50, rank=1))
        nodes.settle()
        assert cluster.diagnose().progress == done


def test_the_time_left_follows_the_speed_of_the_last_half_minute(training, nodes):
    cluster, assessor = training(None), Assessor()

    def left_s(step, at_s):
        nodes.send(m.Reported(step, 1000, {}, 1.0, rank=0))
        nodes.settle()
        return assessor.assess(cluster.view(), at_s).seconds_left

    assert left_s(0, 0.0) is None, "too soon"
    for second in range(60):  # a slow start
        left_s(0, float(second))
    for second in range(41):
        seconds = left_s(10 * second, 60.0 + second)
    assert seconds == pytest.approx(60.0, abs=2.0)
    nodes.send(m.Activity(m.NodeActivity(step=400, idle_s=300.0, last_sign="step 400"), rank=0))
    wanted = eventually(lambda: [one for _, one in nodes.listener.sent if isinstance(one, m.StacksWanted)])
    nodes.send(m.Stacks(wanted[0].request, m.Condition.STOPPED, "", rank=0))
    assert left_s(400, 101.0) is None, "nobody knows while a node hangs"


def test_what_nodes_use_is_kept_moment_by_moment_and_less_often_in_a_long_run(training, nodes):
    assessor = Assessor()
    cluster = training(*[activity(cpu=cpu, memory_bytes=10**9) for cpu in (0.5, 1.5, 0.75, 1.0)], updates=1)

    def used(at_s):
        return assessor.assess(dataclasses.replace(cluster.view(), started_s=0.0), at_s).usage

    assert (used(0.0)[0].cpu, used(0.2)[0].gpu) == ((1.5, 0.88, 0.5), ()), "the most, the middle and the least"
    assert len(used(0.9)) == 1
    for second in range(1, 1000):
        moments = used(float(second))
    assert 30 <= len(moments) <= 60
    between = {round(after.time_s - before.time_s) for before, after in itertools.pairwise(moments)}
    assert between == {32}
    for rank in range(4):
        nodes.end(rank)
    cluster.wait(timeout=60)
    assert used(2000.0) == moments, "nothing is used by then"


def test_what_each_of_two_nodes_uses_is_kept(training, nodes):
    cluster = training(activity(cpu=0.5, memory_bytes=10**9), activity(cpu=1.5, memory_bytes=10**9), updates=1)
    assert cluster.view().usage[0].cpu == (0.5, 1.5), "in the order of the nodes"


def test_a_node_that_was_slower_is_marked_in_what_is_kept_of_the_run(training, nodes):
    cluster = training(activity(waits_peers=0.6), activity())
    assert cluster.diagnose().kind == "straggler"
    for rank in range(2):
        nodes.send(m.Activity(m.NodeActivity(**activity()), rank=rank))
        nodes.end(rank)
    cluster.wait(timeout=60)
    found = cluster.diagnose()
    assert (found.kind, list(slower_of(found))) == ("straggler", ["worker:1"])
    assert found.nodes["worker:0"].waits_peers == 0.6, "the figures beside a verdict are those that it was made from"


# ---- metrics that are not numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("last_s", "kept"), [(0.4, True), (0.01, False)])
def test_what_the_first_slow_steps_told_is_dropped_at_the_end_where_the_others_were_short(
    training, nodes, last_s, kept
):
    cluster = training(*[activity(0.5, step=12, host_cpu=0.98)] * 2)
    assert cluster.diagnose().kind == "compute"
    for rank in (0, 1):
        nodes.send(m.Activity(m.NodeActivity(**activity(last_s, step=26)), rank=rank))
        nodes.end(rank)
    cluster.wait(timeout=60)
    view = cluster.view()
    assert ("Compute bound" in view.verdict) == kept
    assert [(node.activity.step, node.activity.step_s) for node in view.nodes] == [(26, 0.5 if kept else last_s)] * 2


def test_a_metric_that_is_nan_is_told_with_its_step_until_it_is_a_number_again(training, nodes):
    cluster = training(None, None)

    def alarm(rank, step, **metrics):
        nodes.send(m.Reported(step, None, metrics, 1.0, rank=rank))
        nodes.settle()
        return cluster.view().alarm

    assert alarm(0, 11, loss=2.5, val_loss=math.nan) == "val_loss is NaN since step 11"
    assert alarm(0, 12, loss=math.nan) == "loss is NaN since step 12"
    assert alarm(1, 12, loss=math.nan) == "loss is NaN since step 12"
    assert alarm(0, 13, loss=math.nan, val_loss=0.5) == "loss is NaN since step 12"
    assert alarm(1, 14, loss=2.0) == "loss of worker:0 is NaN since step 12"
    assert alarm(0, 15, accuracy=0.5) == "loss of worker:0 is NaN since step 12"
    assert alarm(0, 16, loss=2.0) == ""


def test_a_model_that_learns_no_more_has_no_advice_on_its_speed(training, nodes):
    cluster = training(activity(waits_rows=0.5), activity(waits_rows=0.5))
    assert "Waits for rows" in cluster.view().verdict
    nodes.send(m.Reported(60, None, {"loss": math.nan}, 1.0, rank=0))
    for rank in (0, 1):
        nodes.end(rank)
    cluster.wait(timeout=60)
    assert (cluster.view().alarm, cluster.view().verdict) == ("loss is NaN since step 60", "")


# ---- real runs ------------------------------------------------------------------------------------------------------


def wait_for(cluster, says):
    """Wait until the verdict matches a pattern, and return the diagnosis.

    Figures are of the last seconds: where one stage follows another, they are of both at first.
    """

    def fits():
        diagnosis = cluster.diagnose()
        assert re.search(says, diagnosis.verdict), f"{diagnosis}; figures: {diagnosis.nodes}"
        return diagnosis

    return eventually(fits)


def recorded(cluster):
    run = tfos_lab.runs()[cluster.run_dir]
    return not run.live and run.record.view


@pytest.fixture(scope="module")
def run():
    """``tfos_lab.run`` for two nodes on this machine."""
    with running_clusters({"local": "processes", "grace": 0.5}) as start:
        yield start


# ---- with TensorFlow ------------------------------------------------------------------------------------------------


# On a busy machine one of them may be a straggler of the first stage, for the same reason.
STAGES = {
    "tf.data": r"Waits for its tf\.data pipeline ",
    "straggler": r"^worker:0 is .* in Python \(.*, in train_in_stages\)",
}


def train_in_stages(folder, ctx):
    """Train in lock-step, in one way after another: a stage ends when the test has written its file."""
    import pathlib

    import tensorflow as tf

    strategy = ctx.strategy()

    def slowly(number):
        def sleep(number):
            time.sleep(0.1)
            return number

        return tf.ensure_shape(tf.numpy_function(sleep, [number], tf.int64), ())

    @tf.function
    def step(iterator, over):
        number = tf.cast(next(iterator), tf.float32)

        def sum_up(over):
            return tf.distribute.get_replica_context().all_reduce("sum", over + 0.0 * number)

        return strategy.run(sum_up, args=(over,))

    for stage in STAGES:
        dataset, over = tf.data.Dataset.range(10**9), 0.0
        batches = iter(dataset.map(slowly) if stage == "tf.data" else dataset)
        # All nodes end a stage with the same step.
        while not strategy.reduce("MEAN", step(batches, tf.constant(over)), axis=None):
            over = float(pathlib.Path(folder, stage).exists())
            if stage == "straggler" and ctx.rank == 1:
                time.sleep(0.1)


def fit_for_a_moment(args, ctx):
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((64, 1)), np.ones((64, 1)), batch_size=32, verbose=0)


def loop_for_a_moment(share, ctx):
    import keras

    with ctx.strategy().scope() if share else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        optimizer = keras.optimizers.SGD()
    optimizer.apply(model.trainable_variables, model.trainable_variables)  # as if these were its gradients
    ctx.report(step=1)


@pytest.mark.tensorflow
def test_a_strategy_that_was_forgotten_is_told_even_after_a_moment(run):
    ways = (
        (fit_for_a_moment, None, "separate"),
        (loop_for_a_moment, False, "separate"),
        (loop_for_a_moment, True, "unknown"),
    )
    for train, share, kind in ways:
        cluster = run(train, share)
        cluster.wait(timeout=120)
        assert cluster.diagnose().kind == kind
    told = "The optimizer gets the gradients of this node alone"
    assert [cluster.logs(node.name).count(told) for node in cluster.nodes] == [1, 1]


def test_rates_are_those_of_the_last_epoch_that_all_nodes_have_ended(training, nodes):
    cluster = training(activity(epochs=1, learning_rate=0.5), activity(epochs=1, learning_rate=0.1))
    told = "Learning rates differ (worker:0 0.5, worker:1 0.1). Give all nodes the same callbacks."
    assert cluster.view().verdict == told
    nodes.send(m.Activity(m.NodeActivity(**activity(epochs=2, learning_rate=0.2)), rank=0))
    nodes.settle()
    assert cluster.view().verdict == told, "the other one has not said what it has ended the second epoch with"
    nodes.send(m.Activity(m.NodeActivity(**activity(epochs=2, learning_rate=0.2)), rank=1))
    nodes.settle()
    assert "Learning rates" not in cluster.view().verdict


def fit_at_rates(only_chief, ctx):
    import keras
    import numpy as np

    with ctx.strategy().scope():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    slower = keras.callbacks.LearningRateScheduler(lambda epoch: 0.5 / (epoch + 1))
    callbacks = [slower] if ctx.is_chief or not only_chief else []
    model.fit(np.ones((64, 1)), np.ones((64, 1)), batch_size=32, epochs=2, callbacks=callbacks, verbose=0)


@pytest.mark.tensorflow
def test_a_callback_that_changes_the_learning_rate_of_one_node_only_is_told(run):
    for only_chief, told in ((True, "Learning rates differ (chief:0 0.25, worker:0 0.01). Give all"), (False, "")):
        cluster = run(fit_at_rates, only_chief)
        cluster.wait(timeout=120)
        assert cluster.view().verdict.startswith(told)
        assert bool(cluster.view().verdict) == only_chief


@pytest.mark.tensorflow
def test_what_limits_training_is_told_stage_by_stage(run, tmp_path):
    cluster = run(train_in_stages, str(tmp_path))
    for stage, says in STAGES.items():
        wait_for(cluster, says)
        (tmp_path / stage).touch()
    cluster.wait(timeout=60)


def fit_arrays(folder, ctx):
    """Train in epochs that take no longer than it takes to begin them."""
    import pathlib

    import keras
    import numpy as np
    import tensorflow as tf

    model = keras.Sequential([keras.Input((20,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.zeros((64, 20), np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1])).batch(32)
    while not pathlib.Path(folder, "end").exists():
        model.fit(x, x[:, :1], epochs=20, verbose=0, validation_data=data)


@pytest.mark.full
@pytest.mark.tensorflow
def test_what_keras_makes_of_arrays_is_no_pipeline_of_the_user_s(run, tmp_path):
    cluster = run(fit_arrays, str(tmp_path), cluster_size=1)
    trains = eventually(lambda: [node for node in cluster.diagnose().nodes.values() if (node.step or 0) > 500])
    assert trains[0].waits_data == 0
    assert trains[0].computes > 0
    (tmp_path / "end").touch()
    cluster.wait(timeout=60)


# ---- without ---------------------------------------------------------------------------------------------------------


def train_in_python(folder, ctx):
    """Take no step at first, and then slow ones."""
    import pathlib

    while not pathlib.Path(folder, "steps").exists():
        time.sleep(0.05)
    step = 0
    while not pathlib.Path(folder, "end").exists():
        time.sleep(0.5)  # long, so that a busy machine delays no node by as much as a straggler has
        step += 1
        ctx.report(step, total_steps=1_000_000)


def test_slow_steps_in_python_are_told_and_a_function_without_steps_gets_no_verdict(run, tmp_path):
    cluster = run(train_in_python, str(tmp_path), env=QUICK_ENV)
    eventually(lambda: len(cluster.diagnose().nodes) == 2)
    silent = cluster.diagnose()
    assert (silent.kind, silent.verdict, len(silent.nodes)) == ("unknown", "", 2)
    (tmp_path / "steps").touch()
    slow = wait_for(cluster, r"Spends .* in Python \(.*in train_in_python\), mostly waiting")
    assert slow.kind == "python"
    assert all(activity.last_sign.startswith("step ") for activity in slow.nodes.values())
    assert 0 < slow.progress < 0.01
    (tmp_path / "end").touch()
    cluster.wait(timeout=60)
    assert cluster.diagnose().kind == "python"
    assert cluster.diagnose().seconds_left is None
    cluster.stop()
    record = eventually(lambda: recorded(cluster))
    assert record.verdict == cluster.diagnose().verdict
    assert all(node.activity.step > 0 for node in record.nodes)
