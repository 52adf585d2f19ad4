"""Kernels that are killed or stopped, played by processes of their own; and a Spark Connect server below one."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.faults.scene import PATIENCE_S, Family, environment_of_a_kernel, wait_forever
from tests.support.connect_server import connect_server
from tests.support.eventually import eventually
from tests.support.processes import gone
from tests.support.tied import tied

pytestmark = pytest.mark.leaves_nothing


class Kernel:
    """A process that plays the kernel, and tells its test what it sees in lines of JSON."""

    def __init__(self, process):
        self.process = process
        self.send_signal, self.kill, self.wait = process.send_signal, process.kill, process.wait

    def told(self):
        return json.loads(self.process.stdout.readline())

    def tell(self):
        self.process.stdin.write("go on\n")
        self.process.stdin.flush()


@contextmanager
def kernel(code, folder, *arguments):
    """Run code as a kernel; it ends with the block."""
    command, pipe = tied([sys.executable, "-c", _START + code, *map(str, arguments)]), subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment_of_a_kernel(folder)) as process:
        try:
            yield Kernel(process)
        finally:
            process.kill()


_START = """
import json, os, signal, sys, threading, time
from pathlib import Path
import tfos_lab
from tests.support.clusters import run
from tests.support.quick import QUICK_ENV
from tests.support.spark import spark_session

def tell(*what):
    print(json.dumps(what), flush=True)

def tell_of(*clusters):
    tell(*((cluster.id, [node.pid for node in cluster.nodes]) for cluster in clusters))

def ignore_sigterm(args, ctx):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    threading.Event().wait()

def work(seconds, ctx):
    time.sleep(seconds)
    return 9

options = {"cluster_size": 2, "env": QUICK_ENV}
"""

_LOCAL = """
tell_of(tfos_lab.run(ignore_sigterm, local="processes", **options))
threading.Event().wait()
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_when_the_kernel_is_killed_everything_ends_with_it(tmp_path, how):
    with kernel(_LOCAL, tmp_path) as process:
        [family] = (Family(*each) for each in process.told())
        process.send_signal(how)
        process.wait()
    assert gone(family.all)


_SHORT = """
cluster = tfos_lab.run(work, 7, local="processes", **options)
tell_of(cluster)
results = cluster.wait(timeout=120)
tell(cluster.state, dict(results))
"""


def test_a_kernel_that_was_stopped_for_a_while_loses_nobody(tmp_path):
    with kernel(_SHORT, tmp_path) as process:
        process.told()
        process.send_signal(signal.SIGSTOP)
        time.sleep(6.0)  # longer than nodes may be silent
        process.send_signal(signal.SIGCONT)
        assert process.told() == ["done", {"chief:0": 9, "worker:0": 9}]


_ON_EXECUTORS = """
with spark_session(sys.argv[1], Path(sys.argv[2])) as spark:
    slotless = tfos_lab.run(ignore_sigterm, spark=spark, **{**options, "cluster_size": 4})
    slotless.train(spark.range(10))  # no slot is free: they return theirs
    running = run(ignore_sigterm, spark=spark, **{**options, "cluster_size": 3}, num_ps=1, driver_ps=True)
    tell_of(slotless, running)
    threading.Event().wait()
"""


def test_when_the_kernel_is_killed_everything_on_the_executors_ends(spark_sessions, standalone, tmp_path):
    spark_sessions.close()  # its session holds the executors
    with kernel(_ON_EXECUTORS, tmp_path, standalone, tmp_path) as process:
        families = [Family(*each) for each in process.told()]
        process.kill()
    assert gone([one for family in families for one in family.nodes])
    assert gone([families[0].fork_server, families[0].plain_fork_server])


# ---- a stream, whose next driver goes on ----------------------------------------------------------------------------

FILES, ROWS = 6, 5
# A row in the middle of the fourth micro-batch, which holds one file.
FATAL_ROW = 3 * ROWS + 2


def keep(args, ctx):
    """Write each row to a file of this node; stand still at the fatal one."""
    path, fatal_row = args
    with Path(f"{path}-{ctx.worker_num}").open("a") as kept:
        feed = ctx.data_feed()
        while not feed.should_stop():
            for (row,) in feed.next_batch(1):
                kept.write(f"{row}\n")
                kept.flush()
                if row == fatal_row:
                    wait_forever(args, ctx)


def feed_files(cluster, spark, folder):
    rows = spark.readStream.schema("x long").option("maxFilesPerTrigger", 1).json(str(folder / "files"))
    return cluster.train(rows, checkpoint=str(folder / "checkpoint"))


_STREAM = """
from tests.faults.test_kernels import feed_files, keep

folder = Path(sys.argv[1])
with spark_session("local[2]", folder / "first") as spark:
    cluster = tfos_lab.run(keep, (str(folder / "first"), int(sys.argv[2])), spark=spark, local="processes", **options)
    feed_files(cluster, spark, folder)
    tell_of(cluster)
    threading.Event().wait()
"""


def rows_kept(folder, name):
    """Return what the nodes of a kernel have read so far."""
    return sorted(int(row) for path in folder.glob(f"{name}-[01]") for row in path.read_text().split())


@pytest.mark.full
def test_no_row_of_a_stream_that_counts_is_read_again_and_none_is_lost(tmp_path, run, spark):
    (tmp_path / "files").mkdir()
    for number in range(FILES):
        path = tmp_path / "files" / f"{number}.json"
        path.write_text("".join(f'{{"x": {ROWS * number + row}}}\n' for row in range(ROWS)))
        os.utime(path, (1_700_000_000 + number,) * 2)  # the order that Spark takes files in

    with kernel(_STREAM, tmp_path, tmp_path, FATAL_ROW) as process:
        [family] = (Family(*each) for each in process.told())
        eventually(lambda: FATAL_ROW in rows_kept(tmp_path, "first"), patience_s=2 * PATIENCE_S)
        time.sleep(1.0)  # long enough for Spark to commit a micro-batch that the function has not finished
        process.kill()
    assert gone(family.all)
    # Spark's commit log shows what counts: the first three micro-batches, whose rows were all read, once.
    counted = ROWS * len([path for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdigit()])
    assert counted == 3 * ROWS
    assert [row for row in rows_kept(tmp_path, "first") if row < counted] == list(range(counted))

    cluster = run(keep, (str(tmp_path / "second"), -1))
    feed = feed_files(cluster, spark, tmp_path)
    wanted = FILES * ROWS - counted
    eventually(lambda: len(rows_kept(tmp_path, "second")) >= wanted, patience_s=2 * PATIENCE_S)
    feed.stop()
    cluster.wait(timeout=60)
    assert rows_kept(tmp_path, "second") == list(range(counted, FILES * ROWS))


# ---- Spark Connect --------------------------------------------------------------------------------------------------

# pyspark asks a lost server again for minutes, on threads of the kernel's process.
_CONNECTED = """
from pyspark.sql import SparkSession

def tell_error(ask, *what):
    try:
        tell("no error", ask(*what))
    except tfos_lab.errors.TfosError as error:
        tell(type(error).__name__, str(error))

def run(size):
    return tfos_lab.run(ignore_sigterm, cluster_size=size, spark=session, local="off", env=QUICK_ENV, grace=1.0)

def close_when_told(rows):
    sys.stdin.readline()
    rows.close()

session = SparkSession.builder.remote(sys.argv[1]).create()
rows = session.range(3).toLocalIterator()
next(rows)
threading.Thread(target=close_when_told, args=[rows], daemon=True).start()
cluster = run(2)
tell_of(cluster)
tell_error(cluster.wait, 120)
tell_error(run, 1)
tell_error(tfos_lab.run, ignore_sigterm)
"""
_ANOTHER = (
    "Start it again, and make another session with SparkSession.builder.remote(...).create(), "
    "or run on this machine with local=processes."
)


@pytest.fixture
def server(tmp_path):
    with connect_server(tmp_path / "server") as server:
        yield server


@pytest.mark.full
@pytest.mark.spark
def test_a_connect_server_that_is_killed_is_the_first_that_is_told(server, tmp_path):
    lost = f"the Spark Connect server at {server.url} does not answer (Connection refused)"
    with kernel(_CONNECTED, tmp_path, server.url) as process:
        [[_, pids]] = process.told()
        nodes = [psutil.Process(pid) for pid in pids]
        os.kill(server.process.pid, signal.SIGKILL)
        # pyspark tells the server that these rows are not wanted, on a thread that Python waits for at its end.
        process.tell()
        assert process.told() == ["NoSession", f"{lost}, and its nodes have ended with it. {_ANOTHER}"]
        assert gone(nodes)
        assert process.told() == ["NoSession", f"{lost}. {_ANOTHER}"]
        assert process.told() == ["NoSession", f"{lost}. {_ANOTHER}"], "nor is this machine used"
        assert process.wait(PATIENCE_S) == 0, "nothing of ours keeps a kernel"
