"""A standalone cluster whose master is killed: what runs goes on, and all that suffers from it says so."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace

import pytest

import tfos_lab
from tests.misfortune.conftest import PATIENCE_S, failure_of, gone, wait_forever
from tests.misfortune.test_on_spark import _executors_of
from tests.support.quick import QUICK_ENV
from tests.support.standalone import standalone_cluster as run_standalone_cluster
from tfos_lab.engine.spark.servers import ServerWatch, lost_server
from tfos_lab.errors import NotEnoughSlots

pytestmark = pytest.mark.leaves_nothing

TEXT = " does not answer (Connection refused): what runs goes on, but Spark starts no executor until the master is back"


@pytest.fixture
def doomed(tmp_path):
    """A standalone cluster of this test's own."""
    with run_standalone_cluster(tmp_path / "doomed", workers=1) as cluster:
        yield cluster


def notes_of(cluster):
    deadline = time.monotonic() + PATIENCE_S
    while not cluster.view().notes:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return cluster.view().notes


STOPPED = (
    " does not answer (it takes connections and says nothing, as a process that is stopped or hangs): "
    "what runs goes on, but Spark starts no executor until the master is back"
)


@pytest.fixture
def lonely(tmp_path):
    """A master without workers."""
    with run_standalone_cluster(tmp_path / "lonely", workers=0) as cluster:
        yield cluster


def test_a_master_that_is_stopped_is_told_and_so_is_that_it_answers_again(lonely, tmp_path):
    notes, session = [], SimpleNamespace(sparkContext=SimpleNamespace(master=lonely.master_url))
    watch = ServerWatch("stopped", session, notes.append)
    assert lost_server(session) == ""
    watch.start()
    try:
        os.kill(lonely.master.pid, signal.SIGSTOP)
        assert soon(lambda: notes) == [f"Spark's master at {lonely.master_url}{STOPPED}"]
        os.kill(lonely.master.pid, signal.SIGCONT)
        assert soon(lambda: notes[1:]) == [f"Spark's master at {lonely.master_url} answers again"]
    finally:
        os.kill(lonely.master.pid, signal.SIGCONT)
        watch.close()
        watch.join()
    assert "files/none" not in (tmp_path / "lonely" / "master.log").read_text(), "it does not log our questions"


def soon(find):
    deadline = time.monotonic() + 3 * PATIENCE_S
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_a_lost_master_is_told_where_the_cluster_goes_on_and_where_it_fails(new_spark, doomed):
    session = new_spark(doomed.master_url)
    options = {"spark": session, "env": QUICK_ENV, "grace_s": 1.0}
    with tfos_lab.run(wait_forever, cluster_size=1, **options) as cluster:
        os.kill(doomed.master.pid, signal.SIGKILL)
        text = f"Spark's master at {doomed.master_url}{TEXT}"
        assert notes_of(cluster) == (text,)
        assert cluster.state == "running"
        with pytest.raises(NotEnoughSlots, match="Spark has 1 free task slots of 2: Spark's master at spark://"):
            tfos_lab.run(wait_forever, cluster_size=2, **options)
        executors = _executors_of(doomed)
        for executor in executors:
            executor.kill()
        error = failure_of(cluster)
        assert (error.node, error.kind) == ("chief:0", "Lost")
        assert error.message.endswith(text)
        assert gone(executors)
