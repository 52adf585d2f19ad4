"""Which GPUs a host has, and which of them are held: by locks that end with the processes that hold them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.support.fake_gpus import fake_gpus
from tfos_lab.node.gpus import GpuLocks, NodeGpus, devices_in, equal_share, free_gpus, visible_gpus

HOLDER = """
import os, sys
from tfos_lab.node.gpus import GpuLocks
locks = GpuLocks(os.environ)
print(*locks.claim(int(sys.argv[1]), ["0", "1", "2"]), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def host(monkeypatch, tmp_path):
    """Three GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in fake_gpus(tmp_path / "host", 3).items():
        monkeypatch.setenv(name, value)
    return os.environ


@pytest.fixture
def holder():
    """A function that starts a process that takes GPUs, and returns it with those that it got."""
    running = []

    def start(count):
        command = [sys.executable, "-c", HOLDER, str(count)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process, process.stdout.readline().split()

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("variable", "gpus"),
    [
        ("0,2", ["0", "2"]),
        ("", []),
        ("-1", []),
        (" 1 , 3", ["1", "3"]),
        ("0,-1,2", ["0"]),
        ("GPU-a,GPU-b", ["GPU-a", "GPU-b"]),
    ],
)
def test_visible_gpus_are_those_of_the_environment(variable, gpus):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": variable}) == gpus


def test_without_the_driver_s_program_its_folder_is_counted(tmp_path):
    assert visible_gpus({"PATH": ""}, tmp_path) == []
    for name in ("0000:3b:00.0", "0000:5e:00.0"):
        (tmp_path / "proc/driver/nvidia/gpus" / name).mkdir(parents=True)
    assert visible_gpus({"PATH": ""}, tmp_path) == ["0", "1"]


def test_a_driver_that_does_not_answer_has_none(tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    program.chmod(0o755)
    assert visible_gpus({"PATH": str(tmp_path)}, tmp_path) == []


def test_equal_shares_give_no_gpu_twice_and_a_device_that_is_named_twice_is_one():
    assert [equal_share(gpus, nodes) for gpus, nodes in ((4, 2), (5, 2), (1, 2), (0, 2), (4, 0))] == [2, 2, 0, 0, 0]
    assert devices_in("1,1,2") == ["1"], "as CUDA reads it"
    assert visible_gpus() == ["0", "1", "2"], "else they are those that the driver lists"


def test_no_gpu_is_given_to_two_processes(holder):
    taken = [holder(1)[1] for _ in range(3)]
    assert sorted(gpu for gpus in taken for gpu in gpus) == ["0", "1", "2"]
    assert free_gpus(["0", "1", "2"]) == []
    assert GpuLocks(os.environ).claim(1, ["0", "1", "2"]) == []


def test_they_are_free_when_their_process_is_killed(holder):
    process, gpus = holder(2)
    assert gpus == ["0", "1"]
    assert free_gpus(["0", "1", "2"]) == ["2"]
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert free_gpus(["0", "1", "2"]) == ["0", "1", "2"]


def test_fewer_than_wanted_are_what_is_there(holder):
    holder(2)
    assert GpuLocks(os.environ).claim(2, ["0", "1", "2"]) == ["2"]


def test_a_gpu_is_the_same_by_its_number_and_by_what_others_call_it(holder, tmp_path):
    holder(1)
    assert (tmp_path / "host/locks/GPU-host-0.lock").exists()
    assert GpuLocks(os.environ).claim(1, ["GPU-host-0"]) == []


def test_what_was_assigned_by_others_may_be_shared_but_is_not_dealt():
    first, second = NodeGpus(["0"], None, os.environ), NodeGpus(["0"], None, os.environ)
    dealt = NodeGpus(None, 3, os.environ)
    assert (first.own, second.own, dealt.own) == (["0"], ["0"], ["1", "2"])
    for node in (first, second, dealt):
        node.close()
    assert free_gpus(["0", "1", "2"]) == ["0", "1", "2"]


def test_a_node_that_leaves_the_choice_to_its_environment_keeps_others_from_what_it_sees():
    node = NodeGpus(None, None, {**os.environ, "CUDA_VISIBLE_DEVICES": "1"})
    assert (node.own, node.count) == (None, 1)
    assert free_gpus(["0", "1", "2"]) == ["0", "2"]
    node.close()


def test_all_users_may_lock_a_gpu_whatever_the_umask_of_the_first(tmp_path):
    before = os.umask(0o077)
    try:
        locks = GpuLocks(os.environ)
        assert locks.claim(1, ["0"]) == ["0"]
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "host/locks").glob("*.lock")} == {0o644}
    locks.close()


def test_a_folder_for_locks_that_cannot_be_made_keeps_nobody_out(tmp_path):
    (tmp_path / "file").write_text("")
    locks = GpuLocks({**os.environ, "TFOS_LAB_GPU_LOCKS": str(tmp_path / "file" / "locks")})
    assert locks.claim(1, ["0"]) == ["0"]
    locks.close()
