"""The doctor: its findings and its advice."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.fake_gpus import fake_gpus
from tests.support.fork_servers import wait_until_warm
from tfos_lab.core.environments import Environment
from tfos_lab.engine import doctor
from tfos_lab.engine.doctor import Finding
from tfos_lab.node.forkserver.client import ForkServerSpec
from tfos_lab.node.gpus import GpuLocks

MINE = f"{sys.version_info.major}.{sys.version_info.minor}"


def program(folder, name, script):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_findings_are_shown_as_a_table_with_advice_below_the_problems():
    findings = [Finding("Python", ok=True, found="3.11"), Finding("Java", ok=False, found="none", advice="install it")]
    assert doctor.render_text(findings) == "✓ Python  3.11\n✗ Java    none\n          → install it\n\n1 problem: Java."


def test_a_summary_without_problems():
    assert doctor.sum_up([Finding("Python", ok=True, found="3.11")]) == "All is well."


def test_an_old_python_is_a_problem():
    assert not doctor.check_python((3, 10, 2)).ok
    assert doctor.check_python((3, 12, 0)).ok


@pytest.mark.parametrize(
    ("said", "ok"), [('openjdk version "21.0.1" 2023-10-17', True), ('java version "1.8.0_412"', False)]
)
def test_the_java_that_spark_would_start_is_asked_for_its_version(said, ok, tmp_path):
    program(tmp_path, "bin/java", f"echo '{said}' >&2")
    assert doctor.check_java({"JAVA_HOME": str(tmp_path)}).ok is ok


def test_a_missing_java_is_named_with_what_to_install(tmp_path):
    finding = doctor.check_java({"PATH": str(tmp_path)})
    assert not finding.ok
    assert finding.sentence == (
        "Java: none on PATH, and JAVA_HOME is not set; Spark needs Java 17 or newer: "
        "apt-get install openjdk-17-jre-headless, or point JAVA_HOME at one"
    )


def test_packages_are_found_without_importing_them():
    finding = doctor.check_package("TensorFlow", ("tensorflow",), (2, 21))
    assert finding.ok
    assert finding.found.startswith("2.")


def test_an_old_package_is_a_problem_and_a_missing_one_too():
    old = doctor.check_package("pyspark", ("pyspark",), (99, 0))
    assert (old.ok, old.advice) == (False, "pip install 'pyspark>=99.0'")
    missing = doctor.check_package("Nothing", ("tfos-lab-nothing",))
    assert (missing.ok, missing.found) == (False, "not installed")


def test_sparks_python_must_be_like_this_one(tmp_path):
    assert doctor.check_spark_python({**os.environ, "PYSPARK_PYTHON": sys.executable}).ok
    other = program(tmp_path, "other", "echo 3.4")
    assert "is Python 3.4, and this is" in doctor.check_spark_python({"PYSPARK_PYTHON": str(other)}).found
    bare = program(tmp_path, "bare", "echo \"ModuleNotFoundError: No module named 'pyarrow'\" >&2; exit 1")
    assert doctor.check_spark_python({"PYSPARK_PYTHON": str(bare)}).found.endswith("lacks pyarrow")
    assert doctor.check_spark_python({"PYSPARK_PYTHON": "no-such-python"}).found == "no-such-python does not run"


def test_a_disk_that_is_nearly_full_is_a_problem():
    assert not doctor.check_scratch(lambda _path: 1024**2).ok
    assert doctor.check_scratch(lambda _path: 100 * 1024**3).ok


def test_a_scratch_folder_that_others_can_open_is_a_problem(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # short enough for the sockets' paths
        monkeypatch.setattr("tempfile.gettempdir", lambda: folder)
        (Path(folder) / f"tfos_lab-{os.getuid()}").mkdir(mode=0o755)
        finding = doctor.check_scratch()
    assert not finding.ok
    assert "can be opened by others" in finding.found


def test_the_run_folder_is_named():
    assert doctor.check_runs({"TFOS_LAB_RUNS": "/tmp/some/runs"}) == Finding(
        "run folder", ok=True, found="/tmp/some/runs"
    )


def test_without_fork_servers_the_first_cell_starts_them(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "scratch_root", lambda: tmp_path)
    assert doctor.check_fork_servers().found == "none yet: the first cell starts them"


def test_a_fork_server_that_has_gone_is_not_counted(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "scratch_root", lambda: tmp_path)
    (tmp_path / "owner").mkdir()
    (tmp_path / "owner" / "plain-1.sock").touch()
    assert doctor.check_fork_servers().found == "none yet: the first cell starts them"


@pytest.mark.parametrize(
    ("answers", "ok", "found"),
    [
        (["warm", "warm"], True, "2 plain warm"),
        (["importing", "gone"], True, "1 plain importing"),
        (["warm", "ImportError: no keras"], False, "cannot import: ImportError: no keras"),
    ],
)
def test_fork_servers_are_counted_by_state(answers, ok, found, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "scratch_root", lambda: tmp_path)
    (tmp_path / "owner").mkdir()
    for number in range(len(answers)):
        (tmp_path / "owner" / f"plain-{number}.sock").touch()
    said = iter(answers)
    monkeypatch.setattr(doctor, "ask_fork_server", lambda _path: next(said))
    finding = doctor.check_fork_servers()
    assert (finding.ok, finding.found) == (ok, found)


def test_a_real_fork_server_answers_that_it_is_warm():
    fork_server = ForkServerSpec.plain("test-doctor", os.environ, os.getpid())
    wait_until_warm(fork_server)
    assert doctor.ask_fork_server(fork_server.socket_path) == "warm"


def test_without_a_session_nodes_would_run_here():
    [finding] = doctor.check_session(None)
    assert finding.ok
    assert "on this machine" in finding.found


def test_a_local_session_runs_nodes_on_this_machine(spark):
    [finding] = doctor.check_session(spark)
    assert finding.found == "local[2]: nodes run as processes of this machine"


@pytest.mark.parametrize("spark_mode", ["standalone"])
def test_the_executors_of_a_cluster_are_checked(spark):
    session, *executors = doctor.check_session(spark)
    assert "task slots free" in session.found
    assert executors
    assert all(finding.ok and "all packages" in finding.found for finding in executors)


def test_an_executor_that_lacks_something_is_named_with_its_host():
    finding = doctor.judge_executor({"host": "node-7", "executor": "3", "python": "3.4", "missing": "tensorflow"})
    assert not finding.ok
    assert finding.what == "executor 3"
    assert finding.found.startswith("node-7: lacks tensorflow; its Python is 3.4")


def test_the_gpus_of_executors_are_shown_by_host():
    fact = {"host": "node-7", "executor": "3", "python": MINE, "missing": "", "gpus": "0, 1"}
    assert doctor.judge_executor(fact).found == f"node-7: Python {MINE}, all packages, GPUs 0, 1"


def test_an_executor_with_another_environment_than_the_notebook_s_is_named(monkeypatch):
    packed = Environment(digest="old", python="3.1.4", platform="linux-x86_64", packages={})
    fact = {"host": "node-7", "executor": "3", "python": MINE, "missing": "", "platform": "linux-x86_64"}
    finding = doctor.judge_executor({**fact, "environment": packed.to_json()})
    assert not finding.ok
    assert finding.found.startswith("node-7: its environment is stale: it has Python 3.1.4, and this is ")
    assert finding.advice.endswith("(or tfos-lab pack) makes the archive, and shows the settings")
    foreign = doctor.judge_executor({**fact, "environment": packed.to_json(), "platform": "linux-aarch64"})
    assert "its environment was packed for linux-x86_64, and executors are linux-aarch64" in foreign.found


def test_a_python_from_an_archive_is_not_looked_for_on_this_machine():
    finding = doctor.check_spark_python({"PYSPARK_PYTHON": "./environment/bin/python"})
    assert (finding.ok, finding.found) == (
        True,
        "./environment/bin/python, from an archive that Spark unpacks on executors",
    )


def test_an_archive_that_is_missing_is_a_problem(spark, monkeypatch):
    assert doctor.check_archive(spark) == []
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    [finding] = doctor.check_archive(spark)
    assert finding.sentence == (
        "environment: executors are to run ./environment/bin/python, and spark.archives names no archive #environment "
        "that holds it; ship this environment: %tfos pack (or tfos-lab pack) makes the archive, and shows the settings"
    )


def test_gpus_of_this_machine_are_counted_with_those_that_are_free(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in fake_gpus(tmp_path / "host", 3).items():
        monkeypatch.setenv(name, value)
    locks = GpuLocks(os.environ)
    locks.claim(2, ["0", "1", "2"])
    assert doctor.check_gpus().found == "0, 1, 2; 1 of 3 free"
    locks.close()
    assert doctor.check_gpus().found == "0, 1, 2; 3 of 3 free"


def test_each_check_runs_once():
    names = [finding.what for finding in doctor.examine()]
    assert names[:3] == ["Python", "Java", "pyspark"]
    assert len(names) == len(set(names))
