"""Which GPUs of its host a node reserves: none that others hold, until these end."""

import os

import pytest

from tests.support.fake_gpus import fake_gpus
from tfos_lab.core import messages as m


@pytest.fixture(autouse=True)
def host(monkeypatch, tmp_path):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in fake_gpus(tmp_path / "host", 3).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def reserve(launch):
    """A function that launches a node, and returns it with its GPUs: ``reserve(**spec)``."""

    def reserve(**spec):
        node = launch(**spec)
        return node, node.wait_for(m.Reserve).gpus

    return reserve


@pytest.mark.parametrize(
    ("variable", "gpus"),
    [
        ("0,2", ["0", "2"]),
        ("", []),
        ("-1", []),
        (" 1 , 2", ["1", "2"]),
        ("0,-1,2", ["0"]),
        ("1,1,2", ["1"]),  # as CUDA reads it
        ("GPU-host-2", ["GPU-host-2"]),
        (None, ["0", "1", "2"]),
    ],
)
def test_a_node_reserves_of_those_that_it_sees(reserve, monkeypatch, variable, gpus):
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert reserve(gpus_wanted=3)[1] == gpus


def test_a_gpu_is_the_same_by_its_number_and_by_what_others_call_it(reserve, monkeypatch):
    reserve(gpus_wanted=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-host-0")
    assert reserve(gpus_wanted=1)[1] == []


def test_what_was_assigned_by_others_may_be_shared_but_is_not_dealt(reserve):
    assert [reserve(gpus=["0"])[1] for _ in range(2)] == [["0"], ["0"]]
    assert reserve(gpus_wanted=2)[1] == ["1", "2"]


def test_a_node_that_leaves_the_choice_to_its_environment_keeps_others_from_what_it_sees(reserve, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "1")
        node, gpus = reserve()
    assert (gpus, node.wait_for(m.Reserve).gpu_count) == ([], 1)
    assert reserve(gpus_wanted=2)[1] == ["0", "2"]


def test_all_users_may_lock_a_gpu_and_a_folder_for_locks_that_cannot_be_made_keeps_nobody_out(
    reserve, monkeypatch, tmp_path
):
    before = os.umask(0o077)
    try:
        assert reserve(gpus_wanted=1)[1] == ["0"]
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "host/locks").glob("*.lock")} == {0o644}
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TFOS_LAB_GPU_LOCKS", str(tmp_path / "file" / "locks"))
    assert reserve(gpus_wanted=1)[1] == ["0"]


def test_a_driver_that_does_not_answer_has_none(reserve, monkeypatch, tmp_path):
    program = tmp_path / "host" / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    assert reserve(gpus_wanted=1)[1] == []
