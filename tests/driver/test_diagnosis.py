"""Why training is as slow as it is: verdicts from figures, right where they allow one and silent where they do not."""

from __future__ import annotations

import contextlib
import dataclasses
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
            nodes.listener.deliver(identity_of(rank), m.Reserve(rank, host, f"{host}:{rank}", 1, "e", []))
        cluster.wait_until_running()
        for number, feed in enumerate(feeds):
            progress = {"rows": {}, "partitions": 1, "size_bytes": 1, "complete": False, **feed}
            cluster.bus.publish(FeedProgressed(time_s=time.time(), feed=number, **progress))
        for _ in range(updates):
            for rank in ranks:
                if activities[rank] is not None:
                    nodes.send(m.Activity(rank, m.NodeActivity(**activities[rank])))
                nodes.settle(rank)
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


def words_of(verdict):
    return len(re.sub(r" (?=%)", "", verdict).split())


# ---- each kind ------------------------------------------------------------------------------------------------------


def test_slow_spark(verdict_on):
    verdict = verdict_on(activity(waits_rows=0.64, rows_s=2100), activity(waits_rows=0.60, rows_s=2040), feeds=[{}])
    assert verdict.kind == "rows"
    assert verdict.verdict == "Waits for rows 62 % of the time: Spark delivers 4,100 rows/s. Use more partitions."


def test_a_table_of_many_partitions_is_better_cached(verdict_on):
    verdict = verdict_on(activity(waits_rows=0.6), feeds=[{"total_partitions": 64}])
    assert verdict.verdict == "Waits for rows 60 % of the time. Cache the DataFrame."


def test_a_slow_map_in_tf_data(verdict_on):
    verdict = verdict_on(activity(0.2, waits_data=0.7), activity(0.2, waits_data=0.5))
    assert verdict.kind == "tf.data"
    assert verdict.verdict == (
        "Waits for its tf.data pipeline 60 % of the time. Try num_parallel_calls=tf.data.AUTOTUNE."
    )
    busy = verdict_on(activity(0.2, waits_data=0.6, host_cpu=0.97))
    assert busy.verdict == "Waits for its tf.data pipeline 60 % of the time, on busy cores. Try cache()."


def test_slow_steps(verdict_on):
    steps = activity(0.21, computes=0.93, python=0.07)
    verdict = verdict_on(steps, steps)
    assert verdict.kind == "compute"
    assert verdict.verdict == "Compute bound: 93 % of each step of 210 ms. More nodes would help."
    busy = verdict_on({**steps, "host_cpu": 0.99})
    assert busy.verdict == "Compute bound: 93 % of each step of 210 ms, on busy cores."


def test_a_straggler(verdict_on):
    fast = activity(waits_peers=0.525, host_cpu=0.4)
    slow = activity(waits_peers=0.0, host_cpu=0.98)
    verdict = verdict_on(fast, fast, fast, slow, hosts=["h1", "h1", "h1", "h2"])
    assert verdict.kind == "straggler"
    assert verdict.verdict == "worker:3 is 2.1× slower: its host h2 is at 98 % CPU."


def test_a_straggler_is_not_explained_by_a_host_that_all_nodes_share(verdict_on):
    fast = activity(waits_peers=0.5, host_cpu=0.4)
    slow = activity(python=0.9, where="step, train.py, line 7", host_cpu=0.98)
    assert "in Python (step, train.py, line 7)" in verdict_on(fast, slow).verdict
    elsewhere = verdict_on(fast, fast, slow, hosts=["h1", "h2", "h2"])
    assert "its host h2 is at 98 % CPU" in elsewhere.verdict


def test_waiting_for_peers(verdict_on):
    verdict = verdict_on(activity(0.04, 100, waits_peers=0.5), activity(0.04, 100, waits_peers=0.45))
    assert verdict.kind == "peers"
    assert verdict.verdict == "The nodes wait for one another 48 % of the time. Try larger batches."


def crowded(count, cores=2, **figures):
    """Nodes in lock-step that keep the cores of their hosts busy."""
    return [activity(0.037, 200, waits_peers=0.65, host_cpu=0.98, host_cores=cores, cpu=0.5, **figures)] * count


def test_nodes_that_share_too_few_cores_are_told_of_the_cores_and_not_of_exchanges(verdict_on):
    found = verdict_on(*crowded(4))
    assert found.kind == "cores"
    assert found.verdict == "4 nodes share 2 busy cores. cluster_size=2 would be as fast."
    assert verdict_on(*crowded(8), hosts=[*["h1"] * 4, *["h2"] * 4]).verdict == (
        "4 nodes share 2 busy cores of h1. Fewer nodes per host would be as fast."
    )


def test_nodes_that_train_models_of_their_own_are_told_what_was_forgotten(verdict_on):
    alone = activity(step=1, trains_alone=True)
    found = verdict_on(alone, alone)
    assert found.kind == "separate"
    assert found.verdict == "Each node trains a model of its own. Build it under ctx.strategy().scope()."
    assert words_of(found.verdict) <= 15
    assert verdict_on(alone).kind == verdict_on(alone, activity(step=1)).kind == "unknown"


def test_cores_that_suffice_are_unknown_or_are_others_are_not_to_blame(verdict_on):
    assert verdict_on(*crowded(2)).kind == "peers"
    assert verdict_on(*crowded(4, cores=0)).kind == "peers"
    assert verdict_on(*[{**figures, "cpu": 0.01} for figures in crowded(4)]).kind == "peers", "another program's work"
    assert verdict_on(*crowded(4, gpu=0.9)).kind == "peers"
    assert verdict_on(*crowded(4), hosts=["h1", "h2", "h3", "h4"]).kind == "peers"


def test_a_healthy_run(verdict_on):
    verdict = verdict_on(activity(waits_rows=0.1, python=0.2), activity(waits_data=0.1, python=0.2))
    assert (verdict.kind, verdict.verdict) == ("healthy", "Healthy: computes 70 % of the time.")


# ---- what is close to them ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "why"),
    [
        ({"waits_rows": 0.6}, ": it waits for rows. Repartition the DataFrame evenly."),
        ({"waits_data": 0.6}, ": it waits for its tf.data pipeline. Look at its disk."),
        (
            {"python": 0.6, "where": "step, Cell In[3], line 3"},
            ", in Python (step, Cell In[3], line 3). Try %tfos profile worker:1.",
        ),
        ({}, ": it computes longer. Give all nodes equal batches."),
    ],
)
def test_a_straggler_s_own_reason_is_told(verdict_on, figures, why):
    verdict = verdict_on(activity(waits_peers=0.6), activity(**figures))
    assert verdict.kind == "straggler"
    assert verdict.verdict == f"worker:1 is 2.5× slower{why}"
    assert words_of(verdict.verdict) <= 15


def test_nodes_that_do_not_wait_for_one_another_have_stragglers_too(verdict_on):
    figures = [activity(0.1, python=0.3), activity(0.1, python=0.3), activity(0.3, python=0.3)]
    verdict = verdict_on(*figures, hosts=["h1", "h2", "h3"])
    assert verdict.kind == "straggler"
    assert verdict.verdict == "worker:2 is 3.0× slower: it computes longer. Give all nodes equal hosts and batches."
    assert words_of(verdict.verdict) <= 15


def slower_of(diagnosis):
    return {node: activity.slower for node, activity in diagnosis.nodes.items() if activity.slower is not None}


def test_nodes_that_are_slower_are_marked_by_the_judgement_of_the_verdict(verdict_on):
    found = verdict_on(activity(waits_peers=0.5), activity(waits_peers=0.5), activity())
    assert (found.kind, slower_of(found)) == ("straggler", {"worker:2": pytest.approx(2.0)})
    several = verdict_on(*[activity(waits_peers=0.6)] * 3, activity(), activity())
    assert several.kind == "straggler"
    assert slower_of(several) == {"worker:3": pytest.approx(2.5), "worker:4": pytest.approx(2.5)}


@pytest.mark.parametrize(
    ("step_ms", "waits", "host_cpu"),
    [
        ((37, 37, 37, 38), (0.65, 0.66, 0.64, 0.52), 0.99),
        ((24, 25, 26, 27), (0.62, 0.61, 0.65, 0.40), 0.98),
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


def test_a_node_is_called_slower_only_after_some_updates(training):
    figures = [activity(waits_peers=0.6), activity()]
    assert slower_of(training(*figures, updates=2).diagnose()) == {}
    assert slower_of(training(*figures, updates=3).diagnose()) == {"worker:1": pytest.approx(2.5)}


def test_rows_that_have_all_arrived_are_not_spark_s_fault(verdict_on):
    verdict = verdict_on(activity(waits_rows=0.5, rows_s=50), feeds=[{"complete": True}])
    assert verdict.kind == "rows"
    assert verdict.verdict == "Waits for rows 50 % of the time, though all have arrived. Raise batch_size."
    assert words_of(verdict.verdict) <= 15


def test_a_stream_is_waited_for_by_nature(verdict_on):
    verdict = verdict_on(activity(waits_rows=0.8), feeds=[{"stream": True}])
    assert verdict.kind == "healthy"
    assert verdict.verdict == "Keeps up with the stream: waits for its rows 80 % of the time."


def test_python_is_told_from_tensorflow(verdict_on):
    slow = verdict_on(activity(0.5, python=0.9, where="step, Cell In[3], line 12"))
    assert slow.kind == "python"
    assert slow.verdict == "Spends 90 % of its time in Python (step, Cell In[3], line 12). Try tf.function."
    assert words_of(slow.verdict) <= 15


def test_short_steps_are_healthy_whatever_they_do(verdict_on):
    assert verdict_on(activity(0.003, 2000)).verdict == "Healthy: steps of 3.0 ms."
    quick = verdict_on(activity(0.003, 2000, python=0.9))
    assert quick.kind == "healthy"
    assert quick.verdict == "Healthy: steps of 3.0 ms, mostly Python. Larger batches take more rows per second."


def test_a_busy_gpu_is_named(verdict_on):
    busy, idle = activity(gpu=0.97), activity(gpu=0.1)
    assert verdict_on(busy).verdict == "Compute bound: 100 % of each step of 100 ms, GPUs at 97 %. More would help."
    assert verdict_on(idle).kind != "compute"


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
    ],
)
def test_it_is_silent_where_it_does_not_know(verdict_on, what):
    verdict = verdict_on(*what)
    assert (verdict.kind, verdict.verdict) == ("unknown", "")


# ---- progress, the time that is left, and the end -------------------------------------------------------------------


def test_progress_is_in_steps_of_those_who_report_how_many_there_will_be(training, nodes):
    cluster = training(None, None)
    nodes.send(m.Reported(0, 30, None, {}, 1.0))
    nodes.settle(0)
    assert cluster.diagnose().progress is None, "nobody knows of how many"
    nodes.send(m.Reported(0, 30, 60, {}, 1.0))
    nodes.send(m.Reported(1, 20, 80, {}, 1.0))
    nodes.settle()
    assert cluster.diagnose().progress == pytest.approx((0.5 + 0.25) / 2)


def test_rows_of_all_epochs_say_how_much_is_done_once_all_have_arrived(training, nodes):
    feed = {"rows": {"worker:0": 100, "worker:1": 100}, "complete": True, "epochs": 2}
    for feeds, done in [([feed], 0.5), ([{**feed, "complete": False}], None)]:
        cluster = training(None, None, feeds=feeds)
        nodes.send(m.RowsTaken(0, 150, 1))
        nodes.send(m.RowsTaken(1, 50, 0))
        nodes.settle()
        assert cluster.diagnose().progress == done


def test_the_time_left_follows_the_speed_of_the_last_half_minute(training, nodes, monkeypatch):
    cluster = training(None)
    begun_s = time.time()

    def left_s(step, at_s):
        nodes.send(m.Reported(0, step, 1000, {}, begun_s))
        nodes.settle(0)
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda: begun_s + at_s)
            return cluster.diagnose().seconds_left

    assert left_s(0, 0.0) is None, "too soon"
    for second in range(60):  # a slow start
        left_s(0, float(second))
    for second in range(41):
        seconds = left_s(10 * second, 60.0 + second)
    assert seconds == pytest.approx(60.0, abs=2.0)


def test_no_time_is_left_while_a_node_hangs(training):
    cluster, assessor = training(None), Assessor()
    (node,) = cluster.view().nodes

    def left_s(step, at_s, hung=""):
        seen = dataclasses.replace(node, step=step, total_steps=100, hung=hung)
        return assessor.assess(dataclasses.replace(cluster.view(), nodes=(seen,)), at_s).seconds_left

    assert left_s(0, 0.0) is None
    assert left_s(50, 10.0) == pytest.approx(10.0)
    assert left_s(50, 20.0, hung="no step for 60 s") is None


def test_a_run_that_is_over_keeps_what_was_known(training, nodes):
    cluster = training(activity(0.5, computes=0.95, python=0.05))
    assert cluster.diagnose().kind == "compute"
    nodes.send(m.Activity(0, m.NodeActivity(**activity(0.5, computes=0.0, python=1.0, where="save"))))
    nodes.end(0)
    cluster.wait(timeout=60)
    assert cluster.diagnose().verdict.startswith("Compute bound")


def test_the_last_figures_of_nodes_that_end_one_after_the_other_change_nothing(training, nodes):
    cluster = training(activity(0.5, computes=0.95, python=0.05), activity(0.5, computes=0.95, python=0.05))
    verdict = cluster.diagnose().verdict
    nodes.end(0)
    nodes.send(m.Activity(1, m.NodeActivity(**activity(0.5, computes=0.1, waits_peers=0.9))))
    nodes.settle(1)
    assert cluster.diagnose().verdict == cluster.view().verdict == verdict


def test_a_node_that_was_slower_is_marked_in_what_is_kept_of_the_run(training, nodes):
    cluster = training(activity(waits_peers=0.6), activity())
    assert cluster.diagnose().kind == "straggler"
    for rank in range(2):
        nodes.send(m.Activity(rank, m.NodeActivity(**activity())))
        nodes.end(rank)
    cluster.wait(timeout=60)
    found = cluster.diagnose()
    assert (found.kind, list(slower_of(found))) == ("straggler", ["worker:1"])


# ---- metrics that are not numbers ------------------------------------------------------------------------------------


def test_a_metric_that_is_nan_is_told_with_its_step_until_it_is_a_number_again(training, nodes):
    cluster = training(None, None)

    def alarm(rank, step, **metrics):
        nodes.send(m.Reported(rank, step, None, metrics, 1.0))
        nodes.settle(rank)
        return cluster.view().alarm

    assert alarm(0, 11, loss=2.5, val_loss=math.nan) == "val_loss is NaN since step 11"
    assert alarm(0, 12, loss=math.nan) == "loss is NaN since step 12"
    assert alarm(1, 12, loss=math.nan) == "loss is NaN since step 12"
    assert alarm(0, 13, loss=math.nan, val_loss=0.5) == "loss is NaN since step 12"
    assert alarm(1, 14, loss=2.0) == "loss of worker:0 is NaN since step 12"
    assert alarm(0, 15, accuracy=0.5) == "loss of worker:0 is NaN since step 12"
    assert alarm(0, 16, loss=2.0) == ""


def test_what_was_nan_at_the_end_is_in_the_record_of_the_run(run):
    def diverge(args, ctx):
        for step in range(1, 6):
            ctx.report(step, loss=math.nan if step > 3 else 1.0)

    cluster = run(diverge, None, cluster_size=1, env=QUICK_ENV)
    cluster.wait(timeout=60)
    cluster.stop()
    record = eventually(lambda: recorded(cluster))
    assert (record.state, record.alarm) == ("done", "loss is NaN since step 4")


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
def run(tmp_path_factory):
    """``tfos_lab.run`` for two nodes on this machine."""
    with pytest.MonkeyPatch.context() as patch, running_clusters({"local": "processes", "grace": 0.5}) as start:
        patch.setenv("TFOS_LAB_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield start


# ---- with TensorFlow ------------------------------------------------------------------------------------------------


# On a busy machine one of them may be a straggler of the first stage, for the same reason.
STAGES = {"tf.data": r"Waits for its tf\.data pipeline ", "straggler": r"^worker:0 is .* in Python \(train_in_stages, "}


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


def fit_for_a_moment(share, ctx):
    import keras
    import numpy as np

    with ctx.strategy().scope() if share else contextlib.nullcontext():
        model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
    model.fit(np.ones((64, 1)), np.ones((64, 1)), batch_size=32, verbose=0)


@pytest.mark.tensorflow
def test_a_strategy_that_was_forgotten_is_told_even_after_a_moment(run):
    for share, kind in ((False, "separate"), (True, "unknown")):
        cluster = run(fit_for_a_moment, share)
        cluster.wait(timeout=120)
        assert cluster.diagnose().kind == kind


@pytest.mark.tensorflow
def test_what_limits_training_is_told_stage_by_stage(run, tmp_path):
    cluster = run(train_in_stages, str(tmp_path))
    for stage, says in STAGES.items():
        wait_for(cluster, says)
        (tmp_path / stage).touch()
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
    slow = wait_for(cluster, r"Spends .* in Python \(.*train_in_python")
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
