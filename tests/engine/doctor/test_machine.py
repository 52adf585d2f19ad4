"""The doctor's checks of GPUs and folders of this machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.support.fake_gpus import fake_gpus
from tfos_lab.engine.doctor import machine
from tfos_lab.engine.doctor.finding import Finding
from tfos_lab.node.gpus import GpuLocks


def test_a_disk_that_is_nearly_full_is_a_problem():
    assert not machine.check_scratch(lambda _path: 1024**2).ok
    assert machine.check_scratch(lambda _path: 100 * 1024**3).ok


def test_a_scratch_folder_that_others_can_open_is_a_problem(monkeypatch):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # short enough for the sockets' paths
        monkeypatch.setattr("tempfile.gettempdir", lambda: folder)
        (Path(folder) / f"tfos_lab-{os.getuid()}").mkdir(mode=0o755)
        finding = machine.check_scratch()
    assert not finding.ok
    assert "can be opened by others" in finding.found


def test_shared_memory_that_is_full_is_a_problem_with_two_cures():
    finding = machine.check_shared_memory(lambda _path: 3 * 1024**2)
    assert (finding.ok, finding.found) == (False, "/dev/shm is full: 3 MiB are left")
    assert "remove what ended processes have left" in finding.advice
    assert "--shm-size" in finding.advice
    assert machine.check_shared_memory(lambda _path: 64 * 1024**2).found == "/dev/shm, 64 MiB free"


def test_a_system_without_shared_memory_is_fine(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "SHARED_MEMORY", tmp_path / "none")
    assert machine.check_shared_memory().ok


def test_the_run_folder_is_named():
    assert machine.check_runs({"TFOS_LAB_RUNS": "/tmp/some/runs"}) == Finding(
        "run folder", ok=True, found="/tmp/some/runs"
    )


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no file system that is read-only even for root")
def test_a_run_folder_that_is_read_only_even_for_root_is_a_problem():
    finding = machine.check_runs({"TFOS_LAB_RUNS": "/proc/self/runs"})
    assert not finding.ok
    assert finding.found.startswith("/proc/self cannot be written to (")
    assert finding.advice.startswith("name a folder of your own with TFOS_LAB_RUNS; until then, logs go to ")


def test_a_look_at_the_run_folder_leaves_nothing(tmp_path):
    assert machine.check_runs({"TFOS_LAB_RUNS": str(tmp_path)}).ok
    assert list(tmp_path.iterdir()) == []


def test_gpus_of_this_machine_are_counted_with_those_that_are_free(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in fake_gpus(tmp_path / "host", 3).items():
        monkeypatch.setenv(name, value)
    locks = GpuLocks(os.environ)
    locks.claim(2, ["0", "1", "2"])
    assert machine.check_gpus().found == "0, 1, 2; 1 of 3 free"
    locks.close()
    assert machine.check_gpus().found == "0, 1, 2; 3 of 3 free"
