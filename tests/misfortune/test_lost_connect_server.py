"""A Spark Connect server that is stopped, goes on, and is killed while nodes run: it is the first that is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from tests.misfortune.conftest import PATIENCE_S, environment_of_a_kernel, gone
from tests.support.connect_server import connect_server
from tests.support.quick import QUICK_ENV
from tests.support.tied import tied

pytestmark = [pytest.mark.spark, pytest.mark.leaves_nothing]

# Plays the notebook's kernel, in a process of its own: pyspark asks a lost server again for minutes, on its threads.
_KERNEL = """
import json, sys, threading, time
from pyspark.sql import SparkSession
import tfos_lab

def wait_forever(args, ctx):
    import threading
    threading.Event().wait()

def tell(*what):
    print(json.dumps(what), flush=True)

def tell_error(ask, *what):
    try:
        tell("no error", ask(*what))
    except tfos_lab.errors.TfosError as error:
        tell(type(error).__name__, str(error))

def tell_note(count):
    while len(cluster.view().notes) < count:
        time.sleep(0.05)
    tell(cluster.view().notes[-1], cluster.state)

def run(size):
    return tfos_lab.run(wait_forever, cluster_size=size, spark=session, local="false", env=env, grace_s=1.0)

url, env = json.loads(sys.argv[1])
def close_when_told(rows):
    sys.stdin.readline()
    rows.close()

session = SparkSession.builder.remote(url).create()
rows = session.range(3).toLocalIterator()
next(rows)
threading.Thread(target=close_when_told, args=[rows], daemon=True).start()
cluster = run(2)
tell([node.pid for node in cluster.nodes])
tell_note(1)
tell_error(run, 1)
tell_note(2)
tell_error(cluster.wait, 120)
tell_error(run, 1)
"""
_ANOTHER = (
    "Start it again, and make another session with SparkSession.builder.remote(...).create(), "
    "or run on this machine with local=processes."
)


@pytest.fixture
def server(tmp_path):
    with connect_server(tmp_path / "server") as server:
        yield server


@pytest.fixture
def kernel(server, tmp_path):
    """The lines that the kernel tells, one by one; it ends with the test."""
    command = tied([sys.executable, "-c", _KERNEL, json.dumps([server.url, QUICK_ENV])])
    pipe, env = subprocess.PIPE, environment_of_a_kernel(tmp_path)
    process = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_server_that_is_stopped_or_killed_is_the_first_that_is_told(server, kernel):
    def told():
        return json.loads(kernel.stdout.readline())

    where = f"he Spark Connect server at {server.url} does not answer"
    silent = f"{where} (it takes connections and says nothing, as a process that is stopped or hangs)"
    (pids,) = told()
    nodes = [psutil.Process(pid) for pid in pids]
    os.kill(server.process.pid, signal.SIGSTOP)
    note = (
        f"T{silent}: nodes that run go on, but Spark does nothing else until it is back; if it ends, they end with it"
    )
    assert told() == [note, "running"]
    assert told() == ["NoSession", f"t{silent}. {_ANOTHER}"], "and the next run does not wait for it"
    os.kill(server.process.pid, signal.SIGCONT)
    assert told() == [f"The Spark Connect server at {server.url} answers again", "running"]
    os.kill(server.process.pid, signal.SIGKILL)
    # pyspark tells the server that these rows are not wanted any more, on a thread that Python waits for at its end.
    kernel.stdin.write("close\n")
    kernel.stdin.flush()
    assert told() == ["NoSession", f"t{where} (Connection refused), and its nodes have ended with it. {_ANOTHER}"]
    assert gone(nodes)
    assert told() == ["NoSession", f"t{where} (Connection refused). {_ANOTHER}"]
    assert kernel.wait(PATIENCE_S) == 0, "nothing of ours keeps a kernel"
