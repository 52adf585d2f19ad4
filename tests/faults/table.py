"""Each fault, declared once: how it is done, what is seen, and its row of docs/when-something-fails.md.

`tests.faults.test_table` does them to real clusters, `tests.faults.write` writes the page, and `make soak` draws from
those that may happen to any cluster. What does not fit a row has a test of its own, in ``test_<topic>.py`` here.
"""
# ruff: noqa: T201, E501 - functions print what is looked for; a row of the page is one line

import contextlib
import itertools
import os
import re
import signal
import socket
import sys
import threading
import time
import venv
from pathlib import Path

import psutil
import pytest

from tests.faults.declare import CONNECT, HERE, LOCAL, STANDALONE, elsewhere, fails, fault, goes_on, heading, raises
from tests.faults.scene import executors, processes_of_spark, wait_forever, waits_for
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tests.support.spark import wait_for_slots
from tfos_lab.errors import (
    ClusterEnded,
    ConfigError,
    ExecutorMismatch,
    FeedError,
    FeedTimeout,
    NodeFailed,
    NoSession,
    NotEnoughRoom,
    NotEnoughSlots,
    PayloadError,
    PythonWorkerKilled,
    RecordError,
)

# So little fits the spool that rows have to be taken before more can be stored: failures come in the middle of a feed.
SMALL_BYTES = 200_000
# Longer than a busy machine holds a node back.
HANG = {"hang_timeout": 5.0, "on_hang": "fail", "grace": 0.2}
ON_SPARK = (HERE, STANDALONE)


# ---- what functions do ----------------------------------------------------------------------------------------------


def wait_in_user_code():
    threading.Event().wait()


def hang_at_step_3(how, ctx):
    """Sleep, or hold the interpreter's lock, on the worker; the chief goes on."""
    for step in itertools.count(1):
        ctx.report(step=step)
        if step == 3 and not ctx.is_chief:
            wait_in_user_code() if how == "sleep" else sum(itertools.repeat(0))
        time.sleep(0.1)


def read_all(feeds, ctx):
    """Return the rows of so many feeds, as TensorFlow sees them."""

    def real(batch):
        weights = batch["sample_weight"].numpy()
        return batch["x"].numpy().reshape(len(weights), -1)[weights > 0, 0].tolist()

    return [[row for batch in ctx.dataset(8) for row in real(batch)] for _ in range(feeds)]


def read_plainly(pause_s, ctx):
    """Read all rows, and pause after some."""
    feed = ctx.data_feed()
    while not feed.should_stop():
        feed.next_batch(100)
        time.sleep(pause_s)


def many_rows(spark):
    return spark.range(0, 20_000, 1, 40).selectExpr("id as x", "cast(repeat('x', 100) as binary) as filler")


# ---------------------------------------------------------------------------------------------------------------------
heading("Processes and hosts", "fault", "you see", "after", "left")


@fault(
    "the function raises",
    fails("worker:0", "ValueError", 'the forty-second row is odd … raise ValueError("the forty-second row is odd")'),
    page="`ValueError` with the node's traceback and your lines; what it caused elsewhere in one line | 0.3 s | output of all nodes, other clusters",
    on=(HERE, STANDALONE),
    chaos=True,
    chaos_options={"raises": True},
)
def the_function_raises(scene):
    def raise_an_error(args, ctx):
        if ctx.is_chief:
            wait_forever(args, ctx)
        raise ValueError("the forty-second row is odd")

    scene.run(raise_an_error)


@fault(
    'a metric is NaN, with `on_nan="stop"`',
    fails("worker:0", "FloatingPointError", 'loss is NaN since step 3, and on_nan="stop" ends the run'),
    page="`FloatingPointError` with the node, the metric and the step; without the option, the cell says since which step, and the run goes on | at once | as if it had raised",
)
def a_metric_is_nan(scene):
    def diverge(args, ctx):
        if ctx.is_chief:
            wait_forever(args, ctx)
        for step in itertools.count(1):
            ctx.report(step, loss=float("nan") if step == 3 else 0.5)

    scene.run(diverge, on_nan="stop")


@fault("it raises because another node has gone", fails("chief:0", "Exited", "exited with code 7"))
def the_function_raises_as_its_peer_has_gone(scene):
    def meet(path, ctx):
        if ctx.is_chief:
            os.open(path, os.O_WRONLY)
            os._exit(7)
        with open(path) as meeting_point:  # noqa: PTH123
            meeting_point.read()  # until the chief has gone

        class UnavailableError(Exception):
            """Like TensorFlow's error when a peer has gone."""

        raise UnavailableError("Collective ops is aborted by: connection reset by peer")

    os.mkfifo(scene.folder / "fifo")
    scene.run(meet, str(scene.folder / "fifo"))


@fault(
    "a node's process is killed",
    fails("worker:0", "Exited", "the process was killed (SIGKILL); the host may have run out of memory"),
    page="`worker:0: Exited: the process was killed (SIGKILL); the host may have run out of memory` | 0.3 s | the session, the fork servers; the next cell starts at once",
    on=(HERE, STANDALONE),
    chaos=True,
)
def a_process_is_killed(scene):
    scene.run()
    scene.child("worker:0").kill()


@fault(
    "it exits without a word",
    fails("chief:0", "Exited", "exited with code 0 before the function returned"),
    page="the exit code |  | as above",
)
def it_exits_silently(scene):
    scene.run(lambda: os._exit(0), cluster_size=1)


@fault(
    "it crashes in native code",
    fails("chief:0", "Exited", "ended by signal 11 … about to read address 0"),
    page="the signal, and the last lines it wrote |  | as above",
)
def it_crashes_in_native_code(scene):
    def crash(args, ctx):
        import ctypes

        print("about to read address 0")
        ctypes.string_at(0)

    scene.run(crash, cluster_size=1)


@fault(
    "a node's agent is killed",
    fails("worker:0", "Lost"),
    page="`worker:0: Lost: … its agent ended with code -9` | 0.3 s | as above; the node's process ends with it",
    on=(HERE, STANDALONE, CONNECT),
    chaos=True,
)
def an_agent_is_killed(scene):
    scene.run()
    scene.agent("worker:0").kill()


@fault(
    "a node's agent is stopped (SIGSTOP)",
    fails("worker:0", "Lost", "not heard of for"),
    page="`worker:0: Lost: … not heard of for 5 s` | 4.5 s | as above; agent and process are gone after 7 s",
    on=ON_SPARK,
    chaos=True,
)
def an_agent_is_stopped(scene):
    scene.run()
    scene.agent("worker:0").suspend()


elsewhere(
    "a node has started daemons, in sessions of their own | nothing | 1.5 s for those that ignore SIGTERM | none of them, after success, failure and stop | tests/faults/test_descendants.py::test_nothing_that_a_node_has_started_survives_the_run"
)


@fault(
    "the fork server is killed",
    fails("", "Exited", "process it was forked from has ended"),
    page="`Exited: the process it was forked from has ended` | 0.3 s | the session; the next cell starts another, which imports TensorFlow again",
    chaos=lambda scene: fork_server_of(scene.child("worker:0")).kill(),
)
def the_fork_server_is_killed(scene):
    scene.run()
    fork_server_of(scene.child("worker:0")).kill()


@fault(
    "the agents' fork server is killed",
    fails("", "Lost", "the process that its agent was forked from has ended"),
    chaos=lambda scene: fork_server_of(scene.agent("worker:0")).kill(),
)
def the_agents_fork_server_is_killed(scene):
    scene.run()
    fork_server_of(scene.agent("worker:0")).kill()


def fork_server_of(process):
    """Return the process that another came from, if that is a fork server; on an executor it may have ended."""
    parent = process.parent()
    if parent is None or "forkserver" not in " ".join(parent.cmdline()):
        raise psutil.NoSuchProcess(process.ppid())
    return parent


elsewhere(
    "many kernels, and runs that failed, leave small files in `/tmp/tfos_lab-<uid>` | nothing |  | your nodes' starts remove them, in 0.2 s each: locks and logs of fork servers after an hour, notes and temporary folders after a day | tests/node/test_forkserver.py::test_thousands_of_entries_go"
)


@fault(
    "an executor is killed",
    fails("", "Lost", "(executor "),
    page="the node that was lost, with Spark's reason where it gives one |  | the session; Spark starts another executor",
    on=(STANDALONE,),
)
def an_executor_is_killed(scene):
    await_slots(scene)
    scene.run(cluster_size=4)
    victim, _ = executors()
    victim.kill()


@fault(
    "an executor is killed, whose nodes hold no task",
    fails("", "Lost", "is gone: Spark has lost its executor: Command exited with code 137"),
    on=(STANDALONE,),
)
def an_executor_of_nodes_without_a_task_is_killed(scene):
    await_slots(scene)
    scene.run(cluster_size=4)
    scene.cluster.train(scene.spark.range(10))  # the nodes have returned their slots
    executors()[0].kill()


@fault(
    "an executor is killed together with its nodes, which hold no task",
    fails("", "Lost", "is gone: Spark has lost its executor: Command exited with code 137"),
    on=(STANDALONE,),
)
def an_executor_and_its_nodes_are_killed(scene):
    await_slots(scene)
    scene.run(cluster_size=4)
    scene.cluster.train(scene.spark.range(10))
    victim = executors()[0]
    words = victim.cmdline()
    number = words[words.index("--executor-id") + 1]
    agents = [scene.agent(node.name) for node in scene.cluster.nodes if node.executor == number]
    for process in (*agents, victim):
        process.kill()


def await_slots(scene):
    """Wait until executors that another test has killed are back, and tasks that it has left have ended."""
    eventually(lambda: scene.spark.sparkContext.defaultParallelism == 4)
    eventually(lambda: len(executors()) == 2)
    wait_for_slots(scene.spark, 4)


@fault(
    "a Python worker that holds a node's slot is killed",
    fails("", "Lost", "a Python worker process of Spark's was killed or has crashed: as a rule its host"),
    page="that node as lost: `a Python worker process of Spark's was killed or has crashed`, the likely cause, and what to do |  | the session",
    on=(STANDALONE,),
    chaos=lambda scene: scene.rng.choice(scene.python_workers()).kill(),
)
def python_workers_are_killed(scene):
    scene.run()
    for process in scene.python_workers():
        process.kill()


elsewhere(
    "the master of a standalone cluster is lost | `Spark's master at spark://… does not answer (Connection refused)`, in every error that follows from it: too few slots, an executor that nobody starts again |  | what runs | tests/faults/test_spark.py::test_a_lost_master_is_told_where_something_fails_for_want_of_it",
    "the server of Spark Connect is killed | the server as the cause: `the Spark Connect server at sc://… does not answer (Connection refused), and its nodes have ended with it`, and how to make another session; the next cell says so at once |  | nothing: its executors, and nodes on them, end with it | tests/faults/test_kernels.py::test_a_connect_server_that_is_killed_is_the_first_that_is_told",
    "Spark takes an executor back | the same, with why |  | the session | tests/faults/test_spark.py::test_a_node_whose_executor_spark_takes_all_the_same_says_so_and_why",
    "a host cannot be reached | the node and its host, as lost | 5 s without a heartbeat | as above | tests/driver/test_state.py::test_a_silent_node_is_lost_and_named_with_its_host",
    "a host's link is down for a moment, such as 2 s | nothing |  | the run goes on | tests/hosts/test_two_hosts.py::test_a_link_that_is_cut_for_two_seconds_is_survived",
    "the clocks of hosts differ by minutes | nothing: what nodes report has the driver's time |  | everything | tests/driver/test_state.py::test_a_report_of_a_node_whose_clock_is_two_minutes_off_has_the_driver_s_time",
    "a firewall or routing keeps nodes apart | which nodes cannot be connected to, at which address, and what to set (`TFOS_NODE_PORTS`, `TFOS_NODE_NETWORK`) | 20 s, in `ctx.strategy()` | as above | tests/hosts/test_two_hosts.py::test_a_firewall_between_nodes_is_told_with_what_to_do",
    "the notebook's machine sleeps | nothing: nobody is lost |  | everything | tests/faults/test_kernels.py::test_a_kernel_that_was_stopped_for_a_while_loses_nobody",
    "the kernel is stopped, and goes on within ten minutes | nothing: the nodes wait for it |  | everything | tests/faults/test_kernels.py::test_a_kernel_that_was_stopped_for_a_while_loses_nobody",
    "a node hangs | its row: since when, the last sign of work, and where it is now; `on_hang=fail` ends the run with its stacks | `hang_timeout`, 60 s | the run goes on | tests/faults/test_hung.py::test_a_node_that_sleeps_in_the_user_s_code_is_marked_with_its_line",
    "a node returns without `ctx.strategy()`, and another waits in its own | the one that waits, and for which | `hang_timeout`, 60 s | the run goes on | tests/driver/test_hangs.py::test_a_node_hangs_that_waits_in_its_strategy_for_one_that_has_returned",
)


@fault(
    "a hung node, with `on_hang=fail`",
    fails(
        "worker:0",
        "Hung",
        "last: step 3; its Python does not answer: it is at faults/table.py … --- stacks of worker:0 --- … "
        "sum(itertools.repeat(0))",
    ),
    page="the node, with its stacks |  | as if it had raised",
    chaos=lambda scene: scene.child("worker:0").suspend(),
    chaos_options={"hang_timeout": 2.0},
)
def a_hung_node_fails_the_run(scene):
    scene.run(hang_at_step_3, "hold the lock", **HANG)


@fault(
    "a worker stands still in Keras' `fit`",
    fails(
        "worker:0",
        "Hung",
        "its process is stopped (SIGSTOP) … is stopped (SIGSTOP, or a debugger) … "
        "chief:0 then failed too, because worker:0 hung",
    ),
    page="that worker as `Hung`, with its stacks or `its process is stopped (SIGSTOP)`; the healthy chief in one line. `fit` fails because TensorFlow misses the worker, and what TensorFlow says of it is used | when TensorFlow misses it, about 9 s | as if it had raised",
    tensorflow=True,
)
def a_worker_stands_still_in_fit(scene):
    def fit(args, ctx):
        import numpy as np
        import tensorflow as tf

        class Slow(tf.keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                time.sleep(0.05)

        with ctx.strategy().scope():
            model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
            model.compile("sgd", "mse")
        rows = np.zeros((100_000, 4), "float32")
        dataset = tf.data.Dataset.from_tensor_slices((rows, rows[:, :1])).batch(8)
        model.fit(dataset, verbose=0, callbacks=[Slow()])

    scene.run(fit)
    eventually(
        lambda: all(view.activity and (view.activity.step or 0) > 3 for view in scene.cluster.nodes), patience_s=200
    )
    scene.child("worker:0").suspend()


@fault(
    "a node hangs on an executor",
    fails("worker:0", "Hung", "; last: step 3; it is at … in wait_in_user_code … threading.Event().wait()"),
    page="as on this machine | `hang_timeout` | as if it had raised",
    on=(STANDALONE,),
)
def a_node_hangs_on_an_executor(scene):
    scene.run(hang_at_step_3, "sleep", **HANG)


elsewhere(
    'a run of `parallel` hangs, with `on_hang="fail"` | that run as `hung`, with its stacks | `hang_timeout` | the other runs | tests/faults/test_hung.py::test_a_run_that_hangs_fails_with_its_stacks_and_the_others_return',
    'a trial of `search` hangs, with `on_hang="fail"` | its row as failed, `hung: no step, row or log line for …`, with its stacks in `failures` | `hang_timeout` | the other trials | tests/faults/test_hung.py::test_a_trial_that_hangs_is_a_failed_row_with_its_stacks_and_the_others_count',
    "a script of `run_script` hangs | the same | `hang_timeout` | as if it had raised | tests/faults/test_hung.py::test_a_script_that_hangs_has_failed",
)


def train_beside(args, ctx):
    """Fail or wait on the evaluator; train on the chief until the evaluator has ended."""
    how, until = args
    if ctx.job_name == "evaluator":
        if how == "raise":
            raise ValueError("no checkpoint is there")
        wait_forever(args, ctx)
    waits_for(until)
    return "trained"


def lose_the_evaluator(scene, how):
    until = scene.folder / "enough"
    scene.run(train_beside, (how, str(until)), evaluator=True)
    if how == "kill":
        scene.child("evaluator:0").kill()
    eventually(lambda: scene.view("evaluator:0").state.ended)
    assert scene.cluster.state == "running"
    until.touch()


@fault(
    "the evaluator fails or is killed",
    goes_on(
        {"chief:0": "trained"},
        note=(
            "evaluator:0 failed, and training goes on without it: ValueError: no checkpoint is there (see cluster.logs"
        ),
    ),
    page="`evaluator:0 failed, and training goes on without it`, with why, beside the table and in `run.json`; its traceback in its log | at once | training, and its result",
)
def the_evaluator_fails(scene):
    lose_the_evaluator(scene, "raise")
    view = scene.view("evaluator:0")
    assert (view.state, view.detail) == ("failed", "ValueError: no checkpoint is there")
    assert 'raise ValueError("no checkpoint is there")' in scene.cluster.logs("evaluator:0")


@fault(
    "the evaluator is killed",
    goes_on({"chief:0": "trained"}, note="goes on without it: Exited: the process was killed (SIGKILL)"),
)
def the_evaluator_is_killed(scene):
    lose_the_evaluator(scene, "kill")


elsewhere(
    "a process is stopped (SIGSTOP), or holds Python's lock | `%tfos stacks` says so, or shows the stacks all the same | at once | the process, as it was | tests/node/test_stacks.py::test_a_child_that_is_stopped_says_so_at_once",
    "the kernel is killed | the view says that the kernel is gone |  | no node; fork servers for ten idle minutes, unless `TFOS_LAB_FORK_SERVER=kernel` | tests/faults/test_kernels.py::test_when_the_kernel_is_killed_everything_ends_with_it",
    "the session is stopped | the cluster ends |  | no process | tests/faults/test_spark.py::test_nodes_outlive_the_parents_of_spark_s_python_workers_and_end_with_the_session",
)

# ---------------------------------------------------------------------------------------------------------------------
heading("With `restarts`", "fault", "you see", "left")

elsewhere(
    "a node is killed | `restarting`, then all nodes again, fed the same rows | files of the earlier nodes, Keras' last whole epoch | tests/faults/test_restarts.py::test_nodes_that_were_killed_start_again",
    "a worker that serves a chief is killed | that worker again, alone | training goes on | tests/faults/test_restarts.py::test_a_killed_worker_is_started_again_alone_while_training_goes_on",
    "a parameter server is killed | all nodes again | the last backup | tests/faults/test_restarts.py::test_a_killed_parameter_server_restarts_all_from_the_backup",
)


@fault(
    "no restart is left",
    fails("", "Exited", "the process was killed (SIGKILL)", note="restart 1 of 1"),
    page="the failure, as without `restarts` | as there",
)
def no_restart_is_left(scene):
    scene.run(lambda: os.kill(os.getpid(), signal.SIGKILL), restarts=1)


@fault("you stop the cluster", raises(ClusterEnded, "is stopped"), page="`stopped`: it does not come back | output")
def a_stopped_cluster_does_not_restart(scene):
    scene.run(restarts=5)
    scene.child("chief:0").kill()
    scene.cluster.stop(grace=0.0)


# ---------------------------------------------------------------------------------------------------------------------
heading("Rows and files", "fault", "you see", "after", "left")


@fault(
    "a value fits no tensor",
    raises((FeedError, NodeFailed), "column 'x' … null"),
    page="its column, and what to do |  | the session",
    on=(LOCAL,),
    tensorflow=True,
)
def a_value_fits_no_tensor(scene):
    scene.run(read_all, 1)
    scene.feed(scene.spark.range(0, 40, 1, 4).selectExpr("if(id = 33, null, id) as x"))


@fault(
    "the DataFrame has no rows",
    raises(FeedError, "data: the DataFrame has no rows"),
    page="that it has none |  | the session",
    on=(LOCAL,),
)
def there_are_no_rows(scene):
    scene.run(data=scene.spark.range(0))


@fault("rows are of several lengths", raises((FeedError, NodeFailed), "column 'x'"), on=(LOCAL,), tensorflow=True)
def rows_are_ragged(scene):
    scene.run(read_all, 1)
    scene.feed(scene.spark.range(0, 40, 1, 4).selectExpr("if(id = 33, array(id), array(id, id)) as x"))


# What Keras says then, of batches whose rows are known or are not; `tests/node/test_outcomes.py` has what is added to it.
ONE_VALUE = "expected min_ndim=2, found ndim=1. Full shape received: ({},)"


def fit_without_label(args, ctx):
    """Fit models to a feed's batches, which are dicts: with a step of its own, and with Keras', which needs a label.

    Before that, fit one that takes more values than a row has, and one that does not say what it takes.
    """
    import keras

    wide = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    wide.compile("sgd", "mse")
    with pytest.raises(ConfigError, match="takes rows of 2 values, and the column that it is given has one value"):
        wide.fit(ctx.dataset(4, features="y", label="y"), verbose=0)

    open_ended = keras.Sequential([keras.layers.Dense(1)])
    open_ended.compile("sgd", "mse")
    with pytest.raises(ValueError, match=re.escape(ONE_VALUE).replace(r"\{\}", "(None|4)")):
        open_ended.fit(ctx.dataset(4, features="y", label="y"), verbose=0)

    class Own(keras.Sequential):
        def train_step(self, data):
            return {"loss": keras.ops.sum(self(data["x"]))}

    for kind in (Own, keras.Sequential):
        model = kind([keras.Input((1,)), keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        model.fit(ctx.dataset(4), verbose=0)
        assert kind is Own


@fault(
    "the label is forgotten, as in `model.fit(ctx.dataset(64))`",
    raises(NodeFailed, "ConfigError: the model has a loss, and its rows (x, y) have no label: … label='y')"),
    page="which columns there are, and what to write; a model's own `train_step` takes batches as it likes |  | the session",
    on=(LOCAL,),
    tensorflow=True,
)
def the_label_is_forgotten(scene):
    scene.run(fit_without_label)
    scene.cluster.train(scene.spark.range(8).selectExpr("array(id / 8d) as x", "id / 4d as y"), epochs=2)


@fault(
    "no row moves",
    raises(FeedTimeout, "nothing has moved for 2.5 s: … see whether map_fun reads its rows, or raise"),
    page="`FeedTimeout` after `feed_timeout`, and who waits for whom |  | the session",
    on=(LOCAL,),
)
def no_row_moves(scene):
    scene.run()
    scene.cluster.train(many_rows(scene.spark), timeout=2.5, spool_bytes=SMALL_BYTES)


@fault(
    "a node stands still in the middle of a feed",
    raises(
        FeedTimeout,
        "nothing has moved for 10 s … worker:0 (has taken … worker:0 takes none: its process is stopped (SIGSTOP)",
        then="worker:0: FeedTimeout: ",
    ),
    page="`FeedTimeout`: how many rows each node that leaves some has taken, and which one is stuck and where; `wait` names that node, with its stacks | `feed_timeout`, and 2 s at most for the stacks | the session",
    on=(LOCAL,),
)
def a_node_stands_still_in_a_feed(scene):
    scene.run(read_plainly, 0.01)
    scene.cluster.train(many_rows(scene.spark).limit(100))  # Spark has started its Python by then
    eventually(lambda: sum(view.rows for view in scene.cluster.nodes) == 100)
    taken = scene.view("worker:0").rows
    scene.child("worker:0").suspend()
    with pytest.raises(FeedTimeout) as caught:
        scene.cluster.train(many_rows(scene.spark), timeout=10.0, spool_bytes=SMALL_BYTES)
    assert f"worker:0 (has taken {taken})" in str(caught.value)
    raise caught.value


@fault(
    "a node never reads its rows, which fit the spool",
    fails(
        "worker:0",
        "FeedTimeout",
        "it has taken none of its 50 rows for … in wait_in_user_code … --- stacks of worker:0 ---",
        note="worker:0 has taken none of its 50 rows, which had all come ",
    ),
    page="a note that it has taken none; then `FeedTimeout` with its rows and stacks, unless it gives signs of other work (`hang_timeout=0`: never) | note: `hang_timeout` or half of `feed_timeout`; error: `feed_timeout` | the session",
)
def a_node_never_reads_its_rows(scene):
    def ignore_rows(args, ctx):
        if not ctx.is_chief:
            wait_in_user_code()
        read_plainly(0, ctx)

    from tests.support.data_files import rows, write_parquet

    scene.run(ignore_rows, hang_timeout=30.0)
    scene.feed(write_parquet(scene.folder / "rows.parquet", rows(0, 100), group=100), timeout=5.0)


@fault(
    "a Python worker of Spark's is killed in a feed",
    raises(
        PythonWorkerKilled,
        "a Python worker process of Spark's on 127.0.0.1 (executor … was killed … as a rule its host or container has "
        "run out of memory … spark.executor.memoryOverhead",
        then="a Python worker process of Spark's",
    ),
    page="its host and executor, that memory is the likely cause, and what to do; Spark tries the rows again first (`spark.task.maxFailures`) |  | the session",
    on=(STANDALONE,),
)
def a_python_worker_is_killed_in_a_feed(scene):
    def work(batches):
        for batch in batches:
            if 33 in batch.column("x").to_pylist():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    scene.run(read_plainly, 0)
    scene.feed(scene.spark.range(0, 40, 1, 4).selectExpr("id as x").mapInArrow(work, "x long"))


elsewhere(
    "rows move slowly | progress; no time-out |  | everything | tests/faults/test_feeds.py::test_a_feed_that_is_slow_is_not_taken_for_one_that_is_stuck"
)


@fault(
    "a node dies while it is fed",
    fails("worker:0", "Exited", "the process was killed (SIGKILL)"),
    page="that node's failure, not Spark's |  | the session",
    on=(LOCAL, STANDALONE),
)
def a_node_dies_in_a_feed(scene):
    def die(args, ctx):
        feed, step = ctx.data_feed(), 0
        while not feed.should_stop():
            feed.next_batch(50)
            step += 1
            if step == 3 and not ctx.is_chief:
                os.kill(os.getpid(), signal.SIGKILL)

    scene.run(die)
    scene.feed(many_rows(scene.spark), spool_bytes=SMALL_BYTES)


@fault(
    "the disk under the spool is full",
    raises(FeedError, "the node's spool in … cannot be written: File too large"),
    page="the disk, by host and folder |  | the session",
    on=(LOCAL,),
)
def the_disk_under_the_spool_is_full(scene):
    scene.run(read_plainly, 0)
    scene.cluster.train(many_rows(scene.spark).limit(40))  # Spark has started its Python by then
    # A limit on the size of files looks like a full disk to the tasks, which write on the nodes' host.
    unlimited = psutil.Process().rlimit(psutil.RLIMIT_FSIZE)
    limit_files((20_000, unlimited[1]))
    try:
        scene.feed(many_rows(scene.spark))
    finally:
        limit_files(unlimited)


def limit_files(limits):
    for process in processes_of_spark("pyspark.daemon"):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.rlimit(psutil.RLIMIT_FSIZE, limits)


elsewhere(
    "several nodes on one host need more disk than it has | nothing: each fills most of it, and waits until rows were read |  | everything | tests/node/test_spool.py::test_nodes_on_one_small_disk_store_more_than_it_holds_without_filling_it",
    "a row takes hundreds of megabytes | nothing: a task holds it two to three times, a node on another host some times more while it receives it |  | everything | tests/node/test_feed_wire.py::test_a_large_row_is_not_held_in_memory_many_times_over",
    "rows that are read twice, or shuffled, do not fit there | how much does, in which folder, and what to do |  | the session | tests/node/test_spool.py::test_without_a_limit_rows_take_most_of_what_the_disk_has_free",
    "a partition exceeds what the disk has left | the host, how much that is, and to cut the rows into more partitions |  | the session | tests/node/test_spool.py::test_a_partition_that_the_disk_cannot_hold_is_refused_before_it_is_full",
)


@fault(
    "the disk under the logs is full",
    goes_on({"chief:0": "done", "worker:0": "done"}, note="worker-0.log (No space left on device): nodes go on"),
    page="training goes on |  | what was logged before",
)
def the_disk_under_the_logs_is_full(scene):
    def print_later(go, ctx):
        waits_for(go)
        print("shown")
        return "done"

    scene.run(print_later, str(scene.folder / "go"))
    (scene.cluster.run_dir / "worker-0.log").symlink_to("/dev/full")
    (scene.folder / "go").touch()
    scene.cluster.wait(timeout=120)
    assert (scene.cluster.run_dir / "chief-0.log").read_text() == "shown\n"


elsewhere(
    "a log outgrows the disk | training goes on; a note. The file has the beginning, how much is missing, and the end |  | 1 GiB of the disk, or 5 % of a small one | tests/driver/test_logs.py::test_part_of_the_disk_stays_free",
    "the disk of a node's host is full of its log | training goes on; the log says how much it lacks |  | what was logged before | tests/node/test_logs.py::test_lines_that_the_disk_has_no_room_for_are_lost_whole_and_told_once",
    "`ctx.report` is called more than 1,000 times a second | the newest reports at each time, and the last; the log says so once |  | the first thousand reports | tests/faults/test_output.py::test_a_flood_of_reports_is_thinned_on_the_node_and_told_once",
)


def read_one_and_wait(folder, ctx):
    """Read one row, wait for a file that says to go on, then read the others."""
    feed = ctx.data_feed()
    taken = [row[0] for row in feed.next_batch(1)]
    Path(folder, f"began-{ctx.job_name}-{ctx.restart}").touch()
    waits_for(f"{folder}/go-on")
    if ctx.restart == 0 and Path(folder, "fail").exists() and ctx.is_chief:
        os.kill(os.getpid(), signal.SIGKILL)
    while not feed.should_stop():
        taken += [row[0] for row in feed.next_batch(3)]
    return sorted(taken)


def feed_files(scene, change):
    """Feed four files, and change one when the first rows have been read."""
    from tests.support.data_files import rows, write_parquet

    paths = [write_parquet(scene.folder / f"{number}.parquet", rows(number * 4, number * 4 + 4)) for number in range(4)]
    scene.run(read_one_and_wait, str(scene.folder))
    scene.cluster.train(f"{scene.folder}/*.parquet", timeout=100)
    eventually(lambda: len(list(scene.folder.glob("began-*"))) == 2)
    change(paths)
    (scene.folder / "go-on").touch()


@fault(
    "a file vanishes in mid-epoch",
    fails("worker:0", "FeedError", f"3.parquet: the driver saw this file, and {os.uname().nodename} does not find it"),
    page="the file and the node |  | other files, the session",
)
def a_file_vanishes(scene):
    feed_files(scene, lambda paths: Path(paths[3]).unlink())


@fault(
    "a file is cut off in mid-epoch",
    fails("", "FeedError", "1.parquet: it had … bytes when the driver looked at it, and has 100 now"),
)
def a_file_is_cut_off(scene):
    feed_files(scene, lambda paths: os.truncate(paths[1], 100))


@fault(
    "a TFRecord is damaged",
    raises((FeedError, ConfigError), "a.tfrecord: the record at byte … it was cut off"),
    page="file, node and host |  | as above",
)
def a_record_is_damaged(scene):
    from tests.support.data_files import rows, write_records

    path = write_records(scene.folder / "a.tfrecord", rows(0, 40))
    os.truncate(path, os.path.getsize(path) - 3)  # noqa: PTH202
    scene.run(read_plainly, 0)
    scene.cluster.train(f"{scene.folder}/*.tfrecord")


@fault(
    "a TFRecord that Spark reads is damaged",
    raises(RecordError, "the record at byte … was cut off", then="was cut off"),
    on=(LOCAL,),
)
def a_record_that_spark_reads_is_damaged(scene):
    from tfos_lab.data import read_tfrecords, write_tfrecords

    records = str(scene.folder / "records")
    write_tfrecords(scene.spark.range(100).coalesce(1), records)
    rows = read_tfrecords(scene.spark, records, "id long")
    (file,) = Path(records).glob("part-*")
    file.write_bytes(file.read_bytes()[:-1])
    scene.run(read_plainly, 0)
    scene.cluster.train(rows)


elsewhere(
    "a result is large (2 GiB at most) | nothing: it comes as a file of the run's folder and is mapped, so that arrays take memory where they are looked at |  | everything | tests/faults/test_output.py::test_a_large_result_comes_in_pieces_where_the_run_s_folder_is_on_another_disk"
)


@fault(
    "a result is too large, or cannot be sent",
    fails(
        "chief:0",
        "ResultTooLarge",
        "weights … takes 3,221.2 MB, and all of it may take 2,147.5 MB … Save it under ctx.log_dir and return the path",
    ),
    page="its size or the reason, and what to do |  | the run's files",
)
def a_result_is_too_large(scene):
    def return_much(args, ctx):
        import numpy as np

        return {"weights": np.zeros(3 << 30, np.uint8)}

    scene.run(return_much, cluster_size=1)


@fault("a result cannot be sent", fails("chief:0", "ResultNotSendable", "guard … lock … Return plain data"))
def a_result_cannot_be_sent(scene):
    scene.run(lambda: {"guard": [threading.Lock()]}, cluster_size=1)


elsewhere(
    "the results of many nodes are large | as above: each may take 2 GiB, and all of them 16 GiB |  | the run's files | tests/node/test_outcomes.py::test_results_of_many_nodes_may_take_less_each",
    "the disk of a node's host, or of the notebook's machine, has no space for a large result | `ResultNotStored`: the folder and host, the size, the room there is, and what to do |  | the run's files | tests/driver/test_files.py::test_a_result_that_the_disk_has_no_space_for_is_refused_with_both_numbers",
    "the arguments are large (1 GiB at most) | nothing: they are sent piece by piece, to each node |  |  | tests/faults/test_output.py::test_large_arguments_arrive_whole_and_leave_no_file",
    "a host has no disk for them | their size, the folder, and what to do |  | other clusters | tests/node/test_agent.py::test_a_full_disk_is_named_with_the_size",
)


@fault(
    "the function asks for somebody to type",
    fails("chief:0", "NoKeyboard", "breakpoint() waits for somebody to type, and a node has no keyboard: run the cell"),
)
def a_breakpoint_is_reached(scene):
    with pytest.raises(NodeFailed) as caught:
        scene.run(lambda: breakpoint(), cluster_size=1).wait(timeout=120)  # noqa: T100, PLW0108
    assert "tfos_lab/" not in caught.value.traceback, "it shows the user's lines only"
    raise caught.value


@fault("the function reads from the keyboard", fails("chief:0", "NoKeyboard", "input() waits for somebody to type"))
def the_keyboard_is_read(scene):
    scene.run(lambda: input("name? "), cluster_size=1)


@fault("the function starts the debugger", fails("chief:0", "NoKeyboard", "the debugger waits for somebody to type"))
def the_debugger_is_started(scene):
    def debug(args, ctx):
        import pdb  # noqa: T100

        pdb.set_trace()  # noqa: T100
        ctx.report(1)

    scene.run(debug, cluster_size=1)


# ---------------------------------------------------------------------------------------------------------------------
heading("Before anything starts", "fault", "you see")


@fault(
    "impossible options",
    raises(
        ConfigError,
        "master_node='boss': not a job name that can lead; use 'chief' or 'master' … "
        "num_ps=2: leaves no node to train in a cluster of 2; ask for cluster_size=3 or more",
    ),
    page="all of them, in one error, with what is allowed",
)
def options_are_impossible(scene):
    scene.run(num_ps=2, master_node="boss")


@fault("something that is no function", raises(PayloadError, "it is not a function"))
def it_is_no_function(scene):
    scene.run("not a function")


@fault(
    "more GPUs than there are",
    raises(ConfigError, "gpus=1 for 2 nodes needs 2 GPUs, and this machine has 1; ask for gpus=0"),
)
def there_are_too_few_gpus(scene):
    scene.monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    scene.run(gpus=1)


@fault(
    "too few slots",
    raises(NotEnoughSlots, "cluster_size=9, but Spark has 4 free task slots of 4. Ask for cluster_size=4"),
    page="how many there are, and what to ask for",
    on=(STANDALONE,),
)
def there_are_too_few_slots(scene):
    await_slots(scene)
    scene.run(cluster_size=9)


@fault(
    "too few slots beside parameter servers of the driver's machine",
    raises(
        NotEnoughSlots,
        "cluster_size=7, but Spark has 4 free task slots of 4 for the 5 nodes that are not parameter servers. "
        "Ask for cluster_size=6",
    ),
    on=(STANDALONE,),
)
def there_are_too_few_slots_beside_parameter_servers(scene):
    await_slots(scene)
    scene.run(cluster_size=7, num_ps=2, driver_ps=True)


@fault(
    "another cluster holds the slots",
    raises(NotEnoughSlots, "cluster_size=2, but Spark has 1 free task slot of 4"),
    on=(STANDALONE,),
)
def another_cluster_holds_the_slots(scene):
    await_slots(scene)
    with scene.run(cluster_size=3):
        scene.run(cluster_size=2)


@fault(
    "more nodes than this machine holds",
    raises(NotEnoughRoom, "cluster_size=400000, but this machine has room for"),
    page="how many fit",
)
def the_machine_is_too_small(scene):
    scene.run(cluster_size=400_000)


elsewhere(
    "nodes do not reserve in time | which | tests/driver/test_driver.py::test_nodes_that_do_not_reserve_or_run_in_time_are_named",
    "a dead session | that it is, and how to make another | tests/faults/test_spark.py::test_nodes_outlive_the_parents_of_spark_s_python_workers_and_end_with_the_session",
)


@fault("no session", raises(NoSession, "there is no SparkSession. Make one with SparkSession.builder"))
def there_is_no_session(scene):
    scene.close_sessions()
    scene.run(local="off")


def lean_python(folder, lacking):
    """Make a Python with no package, or with all packages of this one except some."""
    venv.create(folder, with_pip=False)
    (theirs,) = folder.glob("lib/python*/site-packages")
    for package in Path(psutil.__file__).parents[1].iterdir() if lacking else ():
        if not package.name.startswith(lacking):
            (theirs / package.name).symlink_to(package)
    return str(folder / "bin" / "python")


def run_with(scene, python, look):
    """Run a cluster on executors with another Python, which are looked at anew."""
    scene.monkeypatch.setattr(scene.spark.sparkContext, "pythonExec", python)
    scene.run(env={**QUICK_ENV, "TFOS_TEST": look})


@fault(
    "executors lack TensorFlow",
    raises(ExecutorMismatch, f"{socket.gethostname()}: lacks tensorflow"),
    page="which host lacks what",
    on=(STANDALONE,),
)
def executors_lack_tensorflow(scene):
    run_with(scene, lean_python(scene.folder / "lean", "tensorflow"), "first look")


@fault(
    "executors lack what Spark's own tasks need", raises(ExecutorMismatch, "127.0.0.1: lacks pyarrow"), on=(STANDALONE,)
)
def executors_lack_pyarrow(scene):
    run_with(scene, lean_python(scene.folder / "bare", ""), "second look")


@fault(
    "executors change after they were looked at", raises(ExecutorMismatch, "127.0.0.1: lacks pyarrow"), on=(STANDALONE,)
)
def executors_change(scene):
    with scene.run(lambda: None) as first:
        first.wait(timeout=120)
    scene.cluster = None
    scene.monkeypatch.setattr(scene.spark.sparkContext, "pythonExec", lean_python(scene.folder / "bare", ""))
    scene.run()


@fault("executors have no such Python", raises(ExecutorMismatch, "127.0.0.1: has no /no/such/python"), on=(STANDALONE,))
def executors_have_no_such_python(scene):
    run_with(scene, "/no/such/python", "one more look")


@fault(
    "executors run another Python",
    raises(ExecutorMismatch, "127.0.0.1: … runs Python 3. … the notebook runs"),
    page="both versions, by host",
    on=(STANDALONE,),
)
def executors_run_another_python(scene):
    mine = f"3.{sys.version_info.minor}"
    folders = [*Path.home().glob(".pyenv/versions/3.*/bin"), Path("/usr/bin"), Path("/usr/local/bin")]
    others = [str(path) for folder in folders for path in folder.glob("python3.1[0-9]") if path.name[6:] != mine]
    if not others:
        # Pretend that the notebook has another one: Spark compares this with the executor's version.
        scene.monkeypatch.setattr(scene.spark.sparkContext, "pythonVer", "3.99")
    run_with(scene, others[0] if others else scene.spark.sparkContext.pythonExec, "another look")


@fault(
    "a captured object cannot be pickled",
    raises(PayloadError, "'guard' (lock) cannot be sent to the nodes: locks and threads"),
    page="its name, and what to do",
)
def a_captured_object_cannot_be_pickled(scene):
    guard = threading.Lock()
    scene.run(lambda args, ctx: guard.acquire())


# ---------------------------------------------------------------------------------------------------------------------
heading("Stopping", "you do", "you see", "after")


def interrupt(_scene):
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


@fault(
    "`cluster.stop()`, and the function ignores SIGTERM",
    raises(ClusterEnded, "is stopped"),
    page="it is killed after `grace` | `grace` and 0.3 s",
    chaos=lambda scene: scene.cluster.stop(),
)
def you_stop_a_function_that_ignores_it(scene):
    def ignore_signals(args, ctx):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        ctx.report(1)
        wait_forever(args, ctx)

    scene.run(ignore_signals)
    eventually(lambda: all(node.step for node in scene.cluster.nodes))
    scene.cluster.stop(grace=0.3)


@fault(
    "you interrupt a feed (■)",
    raises(KeyboardInterrupt, then="FeedError: cluster.train was interrupted before all rows had come"),
    on=(LOCAL,),
    chaos=interrupt,
)
def you_interrupt_a_feed(scene):
    def interrupt_when_fed():
        eventually(lambda: sum(node.rows for node in scene.cluster.nodes))
        interrupt(scene)

    scene.run(read_plainly, 0.1)
    thread = threading.Thread(target=interrupt_when_fed)
    thread.start()
    try:
        scene.feed(many_rows(scene.spark), spool_bytes=SMALL_BYTES)
    finally:
        thread.join()


elsewhere(
    "stop while files are sent | the files that were written before |  | tests/faults/test_output.py::test_files_from_before_a_stop_are_here_when_stop_returns",
    "stop a second time | it does not wait for files |  | tests/faults/test_output.py::test_a_second_stop_does_not_wait_for_files",
)
