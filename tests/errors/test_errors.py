"""The message of every error, as a user reads it; and fields, which survive pickling."""

from __future__ import annotations

import pickle
import re

import pytest

from tfos_lab import errors

EXAMPLES = [
    (
        errors.CellFailed(node="worker:1", kind="ValueError", message="too small", traceback="ValueError: too small"),
        RuntimeError,
        "worker:1: ValueError: too small\n--- traceback of worker:1 ---\nValueError: too small",
    ),
    (
        errors.ConfigError(["cluster_size=0: at least one node is needed", "num_ps=-1: cannot be negative"]),
        ValueError,
        "cluster_size=0: at least one node is needed; num_ps=-1: cannot be negative",
    ),
    (
        errors.ParamError(["batchSize='ten': a whole number is needed"]),
        TypeError,
        "batchSize='ten': a whole number is needed",
    ),
    (
        errors.ShutdownTimeout(waited_s=60, still_running=["worker:0", "worker:1"]),
        TimeoutError,
        (
            "after 60 s still running, and therefore stopped: worker:0, worker:1. "
            "Allow more time with shutdown(timeout=...), or -1 for no limit."
        ),
    ),
    (
        errors.NoSession(reason="the SparkSession was stopped"),
        RuntimeError,
        (
            "the SparkSession was stopped. Make one with SparkSession.builder.getOrCreate() (or pass spark=...), "
            "or run on this machine with local=processes."
        ),
    ),
    (
        errors.NotEnoughSlots(wanted=8, free=3, total=4),
        RuntimeError,
        (
            "cluster_size=8, but Spark has 3 free task slots of 4. Ask for cluster_size=3, add executors or cores "
            "(spark.executor.instances, spark.executor.cores, spark.cores.max), or run on this machine with "
            "local=processes."
        ),
    ),
    (
        errors.NotEnoughSlots(wanted=2, free=0, total=4),
        RuntimeError,
        (
            "cluster_size=2, but Spark has 0 free task slots of 4. Stop what holds the slots (%tfos stop all), add "
            "executors or cores (spark.executor.instances, spark.executor.cores, spark.cores.max), "
            "or run on this machine with local=processes."
        ),
    ),
    (
        errors.NotEnoughSlots(wanted=3, free=2, total=2, pending="1 executor pod is pending: app-exec-3 (no room)"),
        RuntimeError,
        (
            "cluster_size=3, but Spark has 2 free task slots of 2: 1 executor pod is pending: app-exec-3 (no room). "
            "Ask for cluster_size=2, add executors or cores (spark.executor.instances, spark.executor.cores, "
            "spark.cores.max), or run on this machine with local=processes."
        ),
    ),
    (
        errors.NotEnoughSlots(wanted=7, free=4, total=4, elsewhere=2),
        RuntimeError,
        (
            "cluster_size=9, but Spark has 4 free task slots of 4 for the 7 nodes that are not parameter servers. Ask "
            "for cluster_size=6, add executors or cores (spark.executor.instances, spark.executor.cores, "
            "spark.cores.max), or run on this machine with local=processes."
        ),
    ),
    (
        errors.NotAllAtOnce(wanted=4, free=2, total=3),
        RuntimeError,
        (
            "4 instances are to run at once (use_barrier=True), but there are 2 free task slots of 3. Ask for 2, add "
            "executors or cores, or give use_barrier=False, so that instances wait for free slots."
        ),
    ),
    (
        errors.RunFailed(run=3, argument="lr=0.1", kind="lost", message="killed", tries=2, log_tail="the last line\n"),
        RuntimeError,
        "run 3 (lr=0.1), after 2 tries: lost: killed\n--- last lines of run 3 ---\nthe last line",
    ),
    (
        errors.ParallelFailed(failed=[errors.RunFailed(run=1, kind="exited", message="3")], results=[None, None]),
        RuntimeError,
        "1 of 2 runs failed (1 exited); .results has the values of the others\n  run 1: exited: 3",
    ),
    (
        errors.NotEnoughGpus(wanted=2, hosts={"a": [2, 4, 3], "b": [1, 1, 1]}),
        RuntimeError,
        (
            "gpus=2, but a has 4 GPUs for 2 nodes, 1 of them taken by others; b has 1 GPU for 1 node. Ask for fewer "
            "GPUs, for fewer nodes on a host, or for gpus=all to let them share, or wait until others have ended."
        ),
    ),
    (
        errors.SearchFailed(
            failed=[errors.RunFailed(run=0, kind="raised", error="KeyError", message="'lr'", noun="trial")],
            results=[None],
        ),
        RuntimeError,
        (
            "the only trial failed (1 raised), so none is the best; .results.table has a row for each\n"
            "  trial 0: KeyError: 'lr'"
        ),
    ),
    (
        errors.NotEnoughRoom(wanted=4000, fits=120, limit="a node takes 110 MB, and 13.2 GB are free"),
        RuntimeError,
        (
            "cluster_size=4000, but this machine has room for 120 nodes: a node takes 110 MB, and 13.2 GB are free. "
            "Ask for cluster_size=120 or fewer, or run on the executors of a Spark cluster."
        ),
    ),
    (
        errors.ExecutorMismatch(problems={"b": "runs Python 3.12, the notebook runs 3.11", "a": "lacks tensorflow"}),
        RuntimeError,
        (
            "executors cannot run a node (a: lacks tensorflow; b: runs Python 3.12, the notebook runs 3.11). Give the "
            "executors the driver's environment: install the packages there, ship them (tfos-lab pack), or point "
            "spark.pyspark.python / PYSPARK_PYTHON at a Python that has them."
        ),
    ),
    (
        errors.PayloadError(name="df", type_name="DataFrame", reason="its rows live in Spark", advice="Pass data=df."),
        TypeError,
        "'df' (DataFrame) cannot be sent to the nodes: its rows live in Spark. Pass data=df.",
    ),
    (
        errors.ReservationTimeout(reserved=2, wanted=4, waited_s=30.0, missing=["worker:1", "worker:2"]),
        TimeoutError,
        (
            "2 of 4 nodes reserved within 30 s; missing: worker:1, worker:2. Ask for fewer nodes, or raise "
            "reservation_timeout."
        ),
    ),
    (
        errors.ReservationTimeout(reserved=0, wanted=1, waited_s=0.5, missing=["chief:0"], hint="Spark has 0 slots"),
        TimeoutError,
        "0 of 1 nodes reserved within 0.5 s; missing: chief:0. Spark has 0 slots.",
    ),
    (
        errors.ReservationTimeout(
            reserved=0, wanted=4096, waited_s=600.0, missing=[str(rank) for rank in range(4096)], hint="Look there"
        ),
        TimeoutError,
        (
            "0 of 4096 nodes reserved within 600 s; missing: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 4,084 more. "
            "Look there."
        ),
    ),
    (
        errors.NoKeyboard(asked="input()"),
        EOFError,
        (
            "input() waits for somebody to type, and a node has no keyboard: run the cell with local=inline, "
            "which runs it in the notebook's kernel"
        ),
    ),
    (errors.LaunchFailed(reason="Spark ended the nodes' job"), RuntimeError, "Spark ended the nodes' job"),
    (
        errors.NodeFailed(node="worker:1", kind="ValueError", message="boom"),
        RuntimeError,
        "worker:1: ValueError: boom",
    ),
    (
        errors.NodeFailed(
            node="worker:1",
            kind="ValueError",
            message="boom",
            traceback='  File "Cell In[5], line 3\n',
            also=["worker:2"],
            consequences={"ps:0": "gone", "chief:0": "gone"},
            log_tail="not shown beside a traceback",
        ),
        RuntimeError,
        (
            'worker:1 (and worker:2): ValueError: boom\n--- traceback of worker:1 ---\n  File "Cell In[5], line 3\n'
            "chief:0, ps:0 then failed too, because worker:1 was gone."
        ),
    ),
    (
        errors.NodeFailed(node="chief:0", kind="Exited", message="signal 11", log_tail="last\nwords\n"),
        RuntimeError,
        "chief:0: Exited: signal 11\n--- last lines of chief:0 ---\nlast\nwords",
    ),
    (
        errors.ClusterEnded(cluster="mnist", state="stopped", asked="feed rows"),
        RuntimeError,
        "cannot feed rows: cluster 'mnist' is stopped. Start another with tfos_lab.run(...).",
    ),
    (
        errors.ProfileFailed(node="worker:0", reason="its process 7 is stopped"),
        RuntimeError,
        "worker:0 cannot be profiled: its process 7 is stopped",
    ),
    (
        errors.NodeFailed(
            node="worker:0",
            kind="Hung",
            message="no step for 64 s",
            traceback="main thread",
            consequences={"chief:0": "UnavailableError"},
        ),
        RuntimeError,
        (
            "worker:0: Hung: no step for 64 s\n--- stacks of worker:0 ---\nmain thread\n"
            "chief:0 then failed too, because worker:0 hung."
        ),
    ),
    (errors.NoModel(reason="'mnist' is running"), RuntimeError, "'mnist' is running"),
    (
        errors.WaitTimeout(waited_s=2.5, still_running=["chief:0", "worker:0"]),
        TimeoutError,
        "after 2.5 s still running: chief:0, worker:0. The cluster goes on; wait again, or end it with stop().",
    ),
    (errors.RecordError(reason="a-file was cut off"), ValueError, "a-file was cut off"),
    (errors.FeedError(reason="division by zero"), RuntimeError, "division by zero"),
    (errors.FeedTimeout(reason="no partition was stored for 5 s"), TimeoutError, "no partition was stored for 5 s"),
    (errors.NodeUnreachable(reason="no way to the node"), ConnectionError, "no way to the node"),
    (
        errors.PythonWorkerKilled(host="10.0.0.7", executor="3", times=4),
        RuntimeError,
        (
            "a Python worker process of Spark's on 10.0.0.7 (executor 3) was killed or has crashed, 4 times for the "
            "same rows: as a rule its host or container has run out of memory (dmesg there, and the executor's stderr, "
            "tell). Give executors more memory beside the JVM (spark.executor.memoryOverhead), let fewer tasks run at "
            "once (spark.executor.cores), or use more and smaller partitions"
        ),
    ),
    (
        errors.ResultNotSendable(path="result['lock']", type_name="lock", reason="locks stay"),
        TypeError,
        (
            "result['lock'] (lock) cannot be returned to the notebook: locks stay. Return plain data (numbers, text, "
            "arrays, data frames, lists and dicts of them), or save it under ctx.log_dir and return the path."
        ),
    ),
    (
        errors.ResultNotStored(place="/runs/mnist on home", reason="it takes 3.0 MB, and there is room for 2.0 MB"),
        OSError,
        (
            "the result cannot be stored in /runs/mnist on home: it takes 3.0 MB, and there is room for 2.0 MB. Free "
            "some space there, or save it where there is some, and return the path."
        ),
    ),
    (
        errors.ResultTooLarge(path="result[0]", type_name="bytes", size_bytes=3_000_000, limit_bytes=2_000_000),
        ValueError,
        (
            "the result is too large to return: result[0] (bytes) takes 3.0 MB, and all of it may take 2.0 MB. Save it "
            "under ctx.log_dir and return the path."
        ),
    ),
    (
        errors.ResultUnreadable(reason="it is nested too deep"),
        ValueError,
        "a node sent a result that cannot be read: it is nested too deep",
    ),
]
_NAMES = [type(error).__name__ for error, _, _ in EXAMPLES]


@pytest.mark.parametrize(("error", "builtin", "text"), EXAMPLES, ids=_NAMES)
def test_an_error_says_what_happened_and_what_to_do(error, builtin, text):
    assert str(error) == text
    assert isinstance(error, builtin)
    assert isinstance(error, errors.TfosError)


@pytest.mark.parametrize(("error", "builtin", "text"), EXAMPLES, ids=_NAMES)
def test_fields_survive_pickling(error, builtin, text):
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == text


def test_every_error_has_an_example_here():
    def below(kind):
        return {kind, *(grandchild for child in kind.__subclasses__() for grandchild in below(child))}

    ours = {kind for kind in below(errors.TfosError) if kind.__module__ == errors.__name__} - {errors.TfosError}
    assert ours == {type(error) for error, _, _ in EXAMPLES}


def test_the_tree_in_the_docstring_is_complete_and_correct():
    for error, builtin, _ in EXAMPLES:
        line = re.search(rf"^.*── {type(error).__name__} .*$", errors.__doc__, re.MULTILINE)
        assert line is not None, type(error)
        assert f"({builtin.__name__})" in line[0]


def test_tracebacks_name_the_public_path():
    for name in errors.__all__:
        assert getattr(errors, name).__module__ == "tfos_lab.errors"


@pytest.mark.parametrize("kind", [errors.FeedTimeout, errors.NodeUnreachable, errors.PythonWorkerKilled])
def test_what_goes_wrong_with_a_feed_is_a_feed_error(kind):
    assert issubclass(kind, errors.FeedError)


def test_an_interrupted_cluster_is_a_keyboard_interrupt_and_no_exception():
    error = errors.ClusterInterrupted("mnist")
    assert str(error) == "interrupted: the nodes of 'mnist' are stopped"
    assert error.cluster == "mnist"
    assert isinstance(error, KeyboardInterrupt)
    assert not isinstance(error, Exception)


def test_an_error_without_a_message_shows_its_name():
    assert str(errors.TfosError()) == "TfosError"
    assert str(errors.TfosError(reason="because")) == "because"
