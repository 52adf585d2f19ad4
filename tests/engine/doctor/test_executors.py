"""What the doctor says of executors: of acted reports, and of real executors with planted faults."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.support.bare_python import make_bare_python
from tfos_lab.core.environments import Environment
from tfos_lab.core.package_versions import compared_versions
from tfos_lab.engine.doctor import executors, session
from tfos_lab.engine.doctor.facts import HostFacts, decode_facts
from tfos_lab.engine.doctor.finding import dotted
from tfos_lab.engine.doctor.network import Callback
from tfos_lab.errors import ExecutorMismatch

MINE = dotted(executors.sys.version_info[:2])
CALLBACK = Callback("driver", 9990, "token")


def facts(**others):
    given = {"host": "node-7", "executor": "3", "python": MINE, "clock_s": 100.0, "platform": "linux-x86_64"}
    return HostFacts(**{**given, **others})


def judged(*reports, called_s=99.0, answered_s=101.0):
    findings = executors.judge(reports, called_s, answered_s, CALLBACK, "/home/me/runs/.probe")
    return {finding.what: finding for finding in findings}


def test_executors_without_a_fault_are_fine():
    findings = judged(facts(shared_memory_bytes=2**30, versions=compared_versions()))
    assert all(finding.ok for finding in findings.values())
    assert findings["executor 3"].found == f"node-7: Python {MINE}, all packages"


def test_an_executor_without_tensorflow_is_named_with_its_host():
    finding = judged(facts(python="3.4", missing="tensorflow"))["executor 3"]
    assert not finding.ok
    assert finding.found == f"node-7: lacks tensorflow; its Python is 3.4, and this is {MINE}"
    assert finding.advice.startswith("give it the packages, point spark.pyspark.python at a Python that has them")


def test_versions_that_differ_are_named():
    finding = judged(facts(versions={**compared_versions(), "tensorflow": "2.19.1"}))["executor 3"]
    assert not finding.ok
    assert "its tensorflow is 2.19.1, and this is 2.21" in finding.found


def test_the_gpus_of_executors_are_shown_by_host():
    assert judged(facts(gpus="0, 1"))["executor 3"].found == f"node-7: Python {MINE}, all packages, GPUs 0, 1"


def test_an_executor_with_another_environment_than_the_notebook_s_is_named():
    packed = Environment(digest="old", python="3.1.4", platform="linux-x86_64", packages={})
    finding = judged(facts(environment=packed.to_json()))["executor 3"]
    assert not finding.ok
    assert finding.found.startswith("node-7: its environment is stale: it has Python 3.1.4, and this is ")
    assert finding.advice.endswith("(or tfos-lab pack) makes the archive, and shows the settings")
    foreign = judged(facts(environment=packed.to_json(), platform="linux-aarch64"))["executor 3"]
    assert "its environment was packed for linux-x86_64, and executors are linux-aarch64" in foreign.found


@pytest.mark.parametrize(("clock_s", "how"), [(161.0, "at least 60 s ahead"), (39.0, "at least 60 s behind")])
def test_a_clock_that_is_off_by_a_minute_is_found(clock_s, how):
    finding = judged(facts(clock_s=clock_s))["clocks"]
    assert (finding.ok, finding.found) == (False, f"node-7 is {how}")
    assert "NTP" in finding.advice


def test_a_slow_job_says_nothing_of_clocks():
    assert judged(facts(clock_s=100.0), called_s=90.0, answered_s=103.0)["clocks"].ok


def test_full_shared_memory_of_an_executor_is_found():
    finding = judged(facts(shared_memory_bytes=1024**2), facts(host="node-8"))["shared memory there"]
    assert (finding.ok, finding.found) == (False, "node-7: /dev/shm is full: 1 MiB are left")
    assert "--shm-size" in finding.advice


def test_a_blocked_port_is_found_with_who_cannot_pass():
    finding = judged(facts(unreachable="timed out"), facts(host="node-8"))["way back"]
    assert (finding.ok, finding.found) == (False, "node-7 cannot connect to driver:9990 (timed out)")
    assert "open the port in the firewall" in finding.advice
    assert "TFOS_SERVER_HOST (now driver)" in finding.advice


def test_a_run_folder_that_is_not_shared_is_found():
    finding = judged(facts(sees_probe=False), facts(host="node-8"))["shared folder"]
    assert (finding.ok, finding.found) == (False, "/home/me/runs: not on node-7")
    assert "point log_dir= or TFOS_LAB_RUNS at one" in finding.advice


def test_a_report_is_checked_before_it_is_believed():
    assert decode_facts('{"host": "h", "python": "3.11", "clock_s": 1}').host == "h"
    with pytest.raises(msgspec.ValidationError):
        decode_facts('{"host": 1}')


# ---- jobs that do not come back -------------------------------------------------------------------------------------


class ActedSession:
    """A session of which only its addresses are asked."""

    @staticmethod
    @contextmanager
    def played(monkeypatch, reports):
        monkeypatch.setattr(executors.spark_session, "driver_hosts", lambda _session: ("127.0.0.1", "127.0.0.1"))
        monkeypatch.setattr(executors, "_reports", reports)
        yield ActedSession()


def test_a_worker_with_another_python_is_named_as_spark_names_it(monkeypatch):
    def refuse(*_args):
        raise ExecutorMismatch(problems={"node-7": f"runs Python 3.9, the notebook runs {MINE}"})

    with ActedSession.played(monkeypatch, refuse) as acted:
        [finding] = executors.check_executors(acted)
    assert not finding.ok
    assert "node-7: runs Python 3.9" in finding.found
    assert "PYSPARK_PYTHON" in finding.found


def test_executors_that_never_answer_are_not_waited_for(monkeypatch):
    cancelled = threading.Event()
    monkeypatch.setattr(executors, "JOB_TIMEOUT_S", 0.05)
    monkeypatch.setattr(executors.spark_session, "cancel_tagged", lambda _session, _tag: cancelled.set())
    with ActedSession.played(monkeypatch, lambda *_args: cancelled.wait(30)) as acted:
        [finding] = executors.check_executors(acted)
    assert cancelled.is_set()
    assert finding.found.startswith("no report within 0.05 s")


def test_an_error_of_spark_is_the_finding(monkeypatch):
    def fail(*_args):
        raise RuntimeError("Job aborted.\njava.io.IOException: No space left on device")

    with ActedSession.played(monkeypatch, fail) as acted:
        [finding] = executors.check_executors(acted)
    assert finding.found == "RuntimeError: java.io.IOException: No space left on device"


# ---- real executors -------------------------------------------------------------------------------------------------


@pytest.fixture
def patient(monkeypatch):
    """Wait for executors of a machine that is busy with other tests."""
    monkeypatch.setattr(executors, "JOB_TIMEOUT_S", 120.0)
    monkeypatch.setattr(session, "_COMING_S", 120.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_the_executors_of_a_cluster_are_checked(spark, monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    found, *others = session.check_session(spark)
    assert "task slots free" in found.found
    assert [finding.what for finding in others if finding.what.startswith("executor ")]
    assert [finding.sentence for finding in others if not finding.ok] == []
    assert {"clocks", "way back", "shared folder"} <= {finding.what for finding in others}
    assert list(tmp_path.iterdir()) == []


OTHER_CLOCK = """
import time
_right = time.time
time.time = lambda: _right() + 600  # more than the job could take
"""


@pytest.fixture
def faulty_python(tmp_path):
    """A Python without TensorFlow, with another Keras by its records, and with a clock that is ten minutes ahead."""
    python = make_bare_python(tmp_path / "python")
    theirs = next((tmp_path / "python/lib").glob("python*/site-packages"))
    (theirs / "ours.pth").unlink()
    for package in Path(np.__file__).parents[1].iterdir():
        if not package.name.startswith(("tensorflow", "keras-")):
            (theirs / package.name).symlink_to(package)
    (theirs / "sitecustomize.py").write_text(OTHER_CLOCK)
    (theirs / "keras-3.1.0.dist-info").mkdir()
    (theirs / "keras-3.1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: keras\nVersion: 3.1.0\n")
    return python


@pytest.mark.usefixtures("patient")
def test_faults_of_real_executors_are_found(faulty_python, standalone, new_spark, monkeypatch, tmp_path):
    spark = new_spark(standalone, python=faulty_python)
    monkeypatch.setenv("TFOS_SERVER_HOST", "127.0.0.2")  # the driver listens on 127.0.0.1 only
    monkeypatch.setenv("TFOS_LAB_RUNS", os.fspath(tmp_path / "runs"))
    findings = {finding.what: finding for finding in session.check_session(spark)}
    executor = next(finding for what, finding in findings.items() if what.startswith("executor"))
    assert "lacks tensorflow" in executor.found
    assert "its keras is 3.1.0, and this is 3.15" in executor.found
    assert "s ahead" in findings["clocks"].found
    assert "cannot connect to 127.0.0.2:" in findings["way back"].found
    assert findings["shared folder"].ok
