"""Resources of Spark's task in a node's environment, and the GPUs among them that a training function uses."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from tfos_lab.errors import ConfigError
from tfos_lab.node.resources import resource_environ, task_resources
from tfos_lab.node.train_fn import TrainFnSettings, checked_gpus, run_train_fn


@pytest.fixture
def node(monkeypatch):
    """A function that runs another one on the node of an index, whose task has some GPUs."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "before")
    monkeypatch.setenv("TF_CONFIG", "")

    def run(index, gpus, **settings):
        for name, value in resource_environ({"accelerator": gpus}).items():
            monkeypatch.setenv(name, value)
        spec = {"worker": ["a:1", "b:2"]}
        ctx = SimpleNamespace(task_index=index, job_name="worker", cluster_spec=spec)
        made = TrainFnSettings(gpu_resource="accelerator", makes_strategy=False, **settings)
        return run_train_fn(lambda: (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["TF_CONFIG"]), made, {}, ctx)

    return run


def test_a_node_finds_the_resources_of_its_task(monkeypatch):
    assert task_resources() == {}
    assert resource_environ({}) == {}
    for name, value in resource_environ({"gpu": ["0", "1"], "fpga": ("f",)}).items():
        monkeypatch.setenv(name, value)
    assert task_resources() == {"gpu": ["0", "1"], "fpga": ["f"]}


def test_the_first_node_returns_and_has_tf_config(node):
    gpus, config = node(0, ["4", "5"], num_slots=3, num_tasks=2)
    assert gpus == "4,5"
    assert config == '{"cluster": {"worker": ["a:1", "b:2"]}, "task": {"type": "worker", "index": 0}}'


def test_another_one_takes_what_falls_to_it_and_returns_nothing(node):
    assert node(1, ["4", "5"], num_slots=3, num_tasks=2) is None
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "4"


def test_too_few_gpus_are_an_error(node):
    with pytest.raises(ConfigError, match="gave 1 of the resource 'accelerator' to this task, which needs 2"):
        node(0, ["4"], num_slots=3, num_tasks=2)


@pytest.mark.parametrize("address", ["00", "gpu0", "-1", ""])
def test_addresses_have_to_be_indices(address):
    with pytest.raises(ConfigError, match="without padding"):
        checked_gpus("gpu", ["0", address])
