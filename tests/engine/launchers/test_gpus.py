"""Which of this machine's GPUs each node gets."""

from __future__ import annotations

import pytest

from tfos_lab.engine.launchers.gpus import share_out_gpus, visible_gpus
from tfos_lab.errors import ConfigError


@pytest.mark.parametrize(("variable", "gpus"), [("0,2", ["0", "2"]), ("", []), ("-1", []), (" 1 , 3", ["1", "3"])])
def test_visible_gpus_are_those_of_the_environment(monkeypatch, variable, gpus):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == gpus


def test_by_default_all_nodes_see_all_gpus():
    assert share_out_gpus(None, 3) == [None, None, None]


def test_a_cluster_can_ask_for_no_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert share_out_gpus(0, 2) == [[], []]


def test_each_node_gets_gpus_of_its_own(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7,8")
    assert share_out_gpus(2, 2) == [["4", "5"], ["6", "7"]]


def test_too_few_gpus_are_refused_with_a_number_that_works(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with pytest.raises(ConfigError) as error:
        share_out_gpus(2, 3)
    assert str(error.value) == (
        "gpus=2 for 3 nodes needs 6 GPUs, and this machine has 3; ask for gpus=1, or leave the option out to share them"
    )
