"""`gpu_info`: which GPUs are free, as a stand-in for ``nvidia-smi`` says."""

from __future__ import annotations

import os
import subprocess

import pytest

from tfos_lab.compat import gpu_info
from tfos_lab.node.gpus import GpuLocks

GPUS = b"""\
GPU 0: Tesla V100-SXM2-16GB (UUID: GPU-aa)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bb)
  MIG 1g.10gb Device 0: (UUID: MIG-cc)
GPU 2: Tesla K80 (UUID: GPU-dd)
"""


@pytest.fixture
def nvidia_smi(monkeypatch, tmp_path):
    """Has three GPUs; a list of what is busy each time that it is asked."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("TFOS_LAB_GPU_LOCKS", str(tmp_path / "locks"))
    busy = []

    def check_output(command):
        assert command[0] == "nvidia-smi"
        if "--list-gpus" in command:
            return GPUS
        if "--format=csv" in command:
            return b"uuid, pid\nGPU-aa, 12\n"
        return b"\n".join(busy.pop(0) if busy else [])

    monkeypatch.setattr(subprocess, "check_output", check_output)
    waits = []
    monkeypatch.setattr("time.sleep", waits.append)
    return busy, waits


def test_without_a_driver_there_are_none(monkeypatch):
    def missing(_command):
        raise FileNotFoundError

    monkeypatch.setattr(subprocess, "check_output", missing)
    assert not gpu_info.is_gpu_available()


def test_with_a_driver_there_are_some(nvidia_smi):
    assert gpu_info.is_gpu_available()


@pytest.mark.parametrize(
    ("count", "index", "expected"),
    [(1, 0, ["0"]), (1, 2, ["2"]), (2, 0, ["0", "1"]), (1, 3, ["0"]), (2, 1, ["2", "0"])],
)
def test_nodes_of_a_host_get_different_ones(nvidia_smi, count, index, expected):
    assert gpu_info.get_gpus(count, index, gpu_info.AS_LIST) == expected
    assert gpu_info.get_gpus(count, index) == ",".join(expected)


def test_without_an_index_they_are_chosen_at_random(nvidia_smi):
    assert sorted(gpu_info.get_gpus(3, format=gpu_info.AS_LIST)) == ["0", "1", "2"]


def test_busy_ones_are_left_alone(nvidia_smi):
    nvidia_smi[0].append([b"GPU-aa", b"GPU-bb"])
    assert gpu_info.get_gpus() == "2"


def test_it_looks_again_while_too_few_are_free(nvidia_smi):
    busy, waits = nvidia_smi
    busy += [[b"GPU-aa", b"GPU-bb", b"GPU-dd"], [b"GPU-bb"]]
    assert gpu_info.get_gpus(2, 0) == "0,2"
    assert len(waits) == 1


def test_too_few_are_an_error_that_names_what_is_busy(nvidia_smi):
    busy, waits = nvidia_smi
    busy += [[b"GPU-aa", b"GPU-bb"]] * gpu_info.MAX_RETRIES
    with pytest.raises(Exception, match=r"Unable to find 2 free GPU\(s\) of 3(.|\n)*GPU-aa, 12"):
        gpu_info.get_gpus(2)
    assert len(waits) == gpu_info.MAX_RETRIES - 1


def test_an_unknown_format_is_refused():
    with pytest.raises(Exception, match="Unknown GPU format 'text'"):
        gpu_info.get_gpus(format="text")


def test_a_node_keeps_to_its_own(nvidia_smi, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,GPU-dd")
    assert gpu_info.get_gpus(2, 0) == "1,2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    with pytest.raises(Exception, match=r"Unable to find 1 free GPU\(s\) of 0"):
        gpu_info.get_gpus()


def test_those_that_nodes_of_others_hold_are_not_free(nvidia_smi):
    locks = GpuLocks(os.environ)
    locks.claim(2, ["0", "1", "2"])
    assert gpu_info.get_gpus() == "2"
    shared = GpuLocks(os.environ)
    shared.share(["2"])
    assert gpu_info.get_gpus() == "2", "all runs of a call of TFParallel see all, and choose among them"
    shared.close()
    locks.close()
