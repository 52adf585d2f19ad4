"""`TFCluster`: what a program sees of its cluster, when its calls return, and what they raise."""

import argparse
import inspect
import json
import logging
import os
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.fake_gpus import fake_gpus
from tests.support.quick import QUICK_ENV
from tfos_lab.compat import TFCluster, TFParallel
from tfos_lab.errors import (
    ConfigError,
    FeedTimeout,
    NodeFailed,
    NoSession,
    NotAllAtOnce,
    ParallelFailed,
    ShutdownTimeout,
)

SPARK, TENSORFLOW = TFCluster.InputMode.SPARK, TFCluster.InputMode.TENSORFLOW


@pytest.fixture(autouse=True)
def _runs_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))


@pytest.fixture
def run(spark):
    """``TFCluster.run`` of two nodes; clusters that still run at the end of the test are stopped."""
    clusters = []

    def start(map_fun, args=None, num_executors=2, num_ps=0, **options):
        clusters.append(TFCluster.run(spark.sparkContext, map_fun, args, num_executors, num_ps, **options))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster._cluster.stop(grace=0.0)
        cluster.server.stop()


# ---- what is refused before anything starts -------------------------------------------------------------------------


def start_none(num_executors=2, num_ps=0, **options):
    TFCluster.run(None, print, None, num_executors, num_ps, **options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"num_executors": 2, "num_ps": 3}, "num_ps=3, .* need 3 nodes, but num_executors=2, which counts all nodes"),
        ({"num_executors": 2, "num_ps": 2}, "leave no node to train of num_executors=2: at least one worker or master"),
        ({"num_executors": 2, "num_ps": 1, "eval_node": True}, "leave no node to train"),
    ],
)
def test_roles_that_do_not_add_up_are_refused(options, sentence):
    with pytest.raises(AssertionError, match=sentence):
        start_none(**options)


@pytest.mark.parametrize("option", ["driver_ps_nodes", "eval_node"])
def test_nodes_that_take_no_rows_are_refused_when_spark_feeds(option):
    with pytest.raises(Exception, match=f"{option}=True is only supported in InputMode.TENSORFLOW"):
        start_none(3, 1, input_mode=SPARK, **{option: True})


def test_a_spark_context_is_needed_that_runs():
    from pyspark import SparkContext

    with pytest.raises(ConfigError, match="sc=NoneType: a SparkContext is needed"):
        start_none()
    with pytest.raises(ConfigError, match="sc=str: a SparkContext is needed"):
        TFParallel.run("local[2]", print, argparse.Namespace(), 1)
    context = SparkContext.__new__(SparkContext)
    context._jsc = None
    with pytest.raises(NoSession, match="the SparkContext was stopped"):
        TFCluster.run(context, print, None, 1, 0)


def test_signatures_are_tensorflow_on_sparks():
    def names(function):
        return [
            name if value.default is value.empty else f"{name}={value.default!r}"
            for name, value in inspect.signature(function).parameters.items()
        ]

    assert names(TFCluster.run) == [
        *("sc", "map_fun", "tf_args", "num_executors", "num_ps", "tensorboard=False", "input_mode=0", "log_dir=None"),
        *("driver_ps_nodes=False", "master_node=None", "reservation_timeout=600"),
        *("queues=['input', 'output', 'error']", "eval_node=False", "release_port=True"),
    ]
    cluster = TFCluster.TFCluster
    assert names(cluster.train) == ["self", "dataRDD", "num_epochs=0", "feed_timeout=600", "qname='input'"]
    assert names(cluster.inference) == ["self", "dataRDD", "feed_timeout=600", "qname='input'"]
    assert names(cluster.shutdown) == ["self", "ssc=None", "grace_secs=0", "timeout=259200"]


# ---- roles, and what is known of a cluster --------------------------------------------------------------------------


def look(args, ctx):
    """Write what this node knows; only those that train return."""
    host, port = ctx.cluster_spec[ctx.job_name][ctx.task_index].split(":")
    with socket.socket() as sock:
        sock.bind((host, int(port)))  # it was released
    seen = [ctx.executor_id, ctx.num_workers, ctx.absolute_path("x"), json.loads(os.environ["TF_CONFIG"])]
    written = Path(args.folder, f"{ctx.job_name}-{ctx.task_index}.partial")
    written.write_text(json.dumps(seen))
    written.rename(written.with_suffix(""))
    while ctx.job_name in ("ps", "evaluator"):
        time.sleep(1)
    for helper in ("ps-0", "evaluator-0"):  # they end with those that train
        while not Path(args.folder, helper).exists():
            time.sleep(0.05)


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_a_cluster_has_its_roles_and_ends_with_those_that_train(run, spark, tmp_path):
    args = argparse.Namespace(folder=str(tmp_path), num_gpus=0)
    cluster = run(look, args, 4, 1, master_node="chief", eval_node=True)
    jobs = [(node["executor_id"], node["job_name"], node["task_index"]) for node in cluster.cluster_info]
    assert jobs == [(0, "ps", 0), (1, "chief", 0), (2, "evaluator", 0), (3, "worker", 0)]
    keys = {"executor_id", "host", "job_name", "task_index", "port", "tb_pid", "tb_port", "addr", "authkey"}
    assert all(set(node) == keys and node["port"] > 0 and node["host"] for node in cluster.cluster_info)
    assert cluster.cluster_meta["cluster_template"] == {"ps": [0], "chief": [1], "evaluator": [2], "worker": [3]}
    assert (cluster.num_executors, cluster.input_mode, cluster.tensorboard_url()) == (4, TENSORFLOW, None)
    assert cluster.sc is spark.sparkContext
    assert cluster.meta is cluster.cluster_meta
    assert cluster.server.reservations.get() == cluster.cluster_info
    cluster.shutdown()
    cluster.shutdown()
    assert cluster.server.done
    for rank, job, _ in jobs:
        *seen, config = json.loads((tmp_path / f"{job}-0").read_text())
        assert seen == [rank, 2, f"file://{Path.cwd()}/x"]
        # With parameter servers the evaluator is left out: the chief would wait for its server, and it has none.
        assert config["task"] == {"type": job, "index": 0}
        assert set(config["cluster"]) == {"ps", "chief", "worker"}
    assert cluster.nodeRDD.collect() == [0, 1, 2, 3]


def test_arguments_may_say_how_many_gpus_a_node_has(run, monkeypatch, tmp_path):
    for name, value in fake_gpus(tmp_path / "host", 1).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for args in ({"num_gpus": 3}, argparse.Namespace(num_gpus=3)):
        with pytest.raises(ConfigError, match=r"gpus=3 .* this machine has 1"):
            run(print, args, 1)


def write_events(args, ctx):
    import tensorflow as tf

    with tf.summary.create_file_writer(args).as_default():
        tf.summary.scalar("x", 1.0, step=0)
    time.sleep(600)


def test_tensorboards_address_is_logged_and_answers(run, caplog, tmp_path):
    caplog.set_level(logging.INFO)
    logs = str(tmp_path / "logs")
    cluster = run(write_events, logs, 1, tensorboard=True, log_dir=logs)
    url = cluster.tensorboard_url()
    assert f"TensorBoard running at:       {url}" in caplog.text
    assert [node["tb_port"] for node in cluster.cluster_info] == [int(url.split(":")[2].split("/")[0])]
    assert eventually(lambda: answers(url))


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status == 200
    except urllib.error.HTTPError:  # it asks to try again
        return False


# ---- feeding --------------------------------------------------------------------------------------------------------


def record(args, ctx):
    """Append each row of a batch to this node's file, when the next one is asked for."""
    import numpy as np

    feed = ctx.get_data_feed()
    with open(f"{args}/rows-{ctx.executor_id}", "a") as file:  # noqa: PTH123 - one line at a time
        while not feed.should_stop():
            for row in feed.next_batch(np.int64(7)):
                print(row, file=file, flush=True)


def rows_in(folder):
    return sorted(int(line) for path in folder.glob("rows-*") for line in path.read_text().split())


def test_train_returns_when_the_rows_were_taken(run, spark, tmp_path):
    cluster = run(record, str(tmp_path), input_mode=SPARK)
    rdd = spark.sparkContext.parallelize(range(50), 4)
    cluster.train(rdd)
    # All but the last batch of a node was asked for, and therefore written, when the one before was.
    assert len(rows_in(tmp_path)) > 500 - 2 * 7 - 1
    cluster.train(rdd, num_epochs=1)
    cluster.shutdown()
    assert rows_in(tmp_path) == sorted([*range(50)] * 11)  # 10 epochs by default, and one


def test_a_feed_needs_the_input_mode_a_known_queue_and_epochs(run):
    cluster = run(lambda args, ctx: None)
    with pytest.raises(AssertionError, match=r"TFCluster.train\(\) requires InputMode.SPARK"):
        cluster.train(None)
    with pytest.raises(AssertionError, match=r"TFCluster.inference\(\) requires InputMode.SPARK"):
        cluster.inference(None)
    cluster.input_mode = SPARK
    with pytest.raises(AssertionError, match="Unknown queue: 'images'"):
        cluster.train(None, qname="images")
    with pytest.raises(AssertionError, match="num_epochs=-1 cannot be negative"):
        cluster.train(None, num_epochs=-1)
    cluster.shutdown()


def manage(args, ctx):
    """Use the node's manager as programs do: values, queues, the state that ends the feed."""
    from tfos_lab.compat import TFNode

    assert "TF_CONFIG" not in os.environ, "no node leads by its name"
    assert str(ctx.mgr.get("state")) == "'running'"
    ctx.mgr.set("count", 3)
    assert ctx.mgr.get("count")._getvalue() == ctx.mgr.get("count") == 3
    assert ctx.mgr.get_queue("images") is None
    with pytest.raises(ConfigError, match=r"qname_in='images': this cluster has no such queue; name it in TFCluster"):
        TFNode.DataFeed(ctx.mgr, qname_in="images")
    with pytest.raises(AttributeError):
        _ = ctx.nothing
    assert ctx.node == "worker:0", "what the native context has"
    queue = ctx.mgr.get_queue("input")
    Path(args, "taken").write_text(json.dumps([queue.get(), queue.empty(), queue.get()]))
    queue.task_done()
    ctx.mgr.set("state", "terminating")


def test_a_manager_has_values_and_rows_one_by_one_and_its_state_ends_the_feed(run, spark, tmp_path):
    cluster = run(manage, str(tmp_path), 1, input_mode=SPARK)
    cluster.train(spark.sparkContext.parallelize(range(1000), 1), 1)
    cluster.shutdown()
    assert json.loads((tmp_path / "taken").read_text()) == [0, False, 1]


def read_nothing(args, ctx):
    feed = ctx.get_data_feed()
    feed.next_batch(1)
    time.sleep(600)


def test_a_queue_that_nobody_reads_fails_the_feed(run, spark):
    cluster = run(read_nothing, input_mode=SPARK, queues=["input", "images"])
    rows = spark.sparkContext.parallelize(range(10), 2)
    # On a busy machine, it may be that Spark's job moves nothing for that long, either.
    sentence = r"(worker:0, worker:1 took no row|nothing has moved) for 3 s"
    with pytest.raises(FeedTimeout, match=sentence):
        cluster.train(rows, 1, feed_timeout=3, qname="images")
    with pytest.raises(NodeFailed, match=sentence):
        cluster.shutdown()


def take_one(args, ctx):
    feed = ctx.get_data_feed()
    feed.next_batch(1)
    feed.terminate()


def test_rows_after_terminate_are_skipped(run, spark):
    cluster = run(take_one, input_mode=SPARK)
    rows = spark.sparkContext.parallelize(range(10), 2)
    for _ in range(3):
        cluster.train(rows, 1)
    cluster._cluster.wait()
    cluster.train(rows, 1)
    cluster.shutdown()


# ---- failures -------------------------------------------------------------------------------------------------------


def fail(args, ctx):
    raise ValueError("FAKE: as soon as it is called")


def test_a_function_that_fails_at_once_fails_train_and_each_shutdown(run, spark):
    cluster = run(fail, input_mode=SPARK)
    with pytest.raises(NodeFailed, match="FAKE"):
        cluster.train(spark.sparkContext.parallelize(range(10), 2), 1)
    for _ in range(2):
        with pytest.raises(NodeFailed, match="FAKE"):
            cluster.shutdown()
    assert "FAKE" in TFCluster.tf_status["error"]
    assert spark.sparkContext.parallelize(range(3), 1).count() == 3


def test_nodes_that_hang_are_stopped_after_the_timeout(run, spark):
    cluster = run(lambda args, ctx: time.sleep(600))
    for _ in range(2):
        with pytest.raises(ShutdownTimeout, match="after 1 s still running, and therefore stopped: worker:0, worker:1"):
            cluster.shutdown(timeout=1)
    assert cluster._cluster.ended
    assert spark.sparkContext.parallelize(range(3), 1).count() == 3


def evaluate(args, ctx):
    # Without parameter servers, the evaluator is one of the cluster's tasks.
    assert set(json.loads(os.environ["TF_CONFIG"])["cluster"]) == {"chief", "evaluator"}
    if ctx.job_name == "evaluator":
        time.sleep(0.5)
        Path(args, "evaluated").touch()


def test_an_evaluator_may_finish_within_the_grace_time(run, tmp_path):
    run(evaluate, str(tmp_path), master_node="chief", eval_node=True).shutdown(grace_secs=60)
    assert (tmp_path / "evaluated").exists()


def test_what_a_thread_reports_as_an_error_is_raised(run):
    with pytest.raises(NodeFailed, match="FAKE: of a thread"):
        run(lambda args, ctx: ctx.mgr.get_queue("error").put("FAKE: of a thread")).shutdown()


# ---- TFParallel ------------------------------------------------------------------------------------------------------


def tell(args, ctx):
    """Write what the context says."""
    facts = (ctx.worker_num, ctx.executor_id, ctx.num_workers, ctx.defaultFS, ctx.absolute_path("/x"))
    Path(args.folder, str(ctx.worker_num)).write_text(repr((*facts, os.environ["CUDA_VISIBLE_DEVICES"])))
    return object()  # what it returns need not be sendable


@pytest.fixture
def _quick(monkeypatch):
    for name, value in QUICK_ENV.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize(("count", "barrier"), [(2, True), (5, False)])
def test_each_instance_has_its_number(spark, tmp_path, count, barrier):
    TFParallel.run(spark.sparkContext, tell, argparse.Namespace(folder=str(tmp_path)), count, use_barrier=barrier)
    told = [(tmp_path / str(number)).read_text() for number in range(count)]
    assert told == [repr((number, number, count, "file://", "file:///x", "")) for number in range(count)]


@pytest.mark.usefixtures("_quick")
def test_instances_that_fail_or_find_no_slot_are_told(spark):
    def fail(args, ctx):
        if ctx.worker_num == 1:
            raise ValueError("FAKE exception")

    context, args = spark.sparkContext, argparse.Namespace()
    for barrier in (True, False):
        with pytest.raises(ParallelFailed, match=r"(?s)1 of 2 runs failed.*FAKE exception.*Traceback"):
            TFParallel.run(context, fail, args, 2, use_barrier=barrier)
    with pytest.raises(NotAllAtOnce, match=r"3 instances are to run at once .* 2 free task slots of 2"):
        TFParallel.run(context, tell, args, 3)
    for count in (0, "2", None):
        with pytest.raises(ConfigError, match="num_executors="):
            TFParallel.run(context, tell, args, count)
