"""Which GPUs of this machine each node gets, and what is said where there are too few."""

from __future__ import annotations

import os

import pytest

import tfos_lab
from tests.support.clusters import running_clusters
from tests.support.fake_gpus import fake_gpus
from tests.support.quick import QUICK_ENV
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import assign_roles
from tfos_lab.engine.launchers.gpus import check_assigned, local_shares, shortage, uneven
from tfos_lab.engine.state.events import NodeView
from tfos_lab.errors import ConfigError, NotEnoughGpus


@pytest.fixture
def host(monkeypatch, tmp_path):
    """This machine has four GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    environ = fake_gpus(tmp_path / "host", 4)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return environ


@pytest.fixture
def run(host):
    with running_clusters({"local": "processes", "env": QUICK_ENV, "grace_s": 2.0}) as start:
        yield start


def shares(**options):
    config = ClusterConfig(**options)
    return local_shares(config, assign_roles(config))


def see(args, ctx):
    """Return what this node may use."""
    if ctx.job_name == "ps":
        ctx.wait_for_training()
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH")
    return ctx.gpus, *(os.environ.get(name) for name in names)


def wait(args, ctx):
    import time

    time.sleep(600)


# ---- how many -------------------------------------------------------------------------------------------------------


def test_by_default_the_nodes_that_train_divide_the_gpus(host):
    assert shares(cluster_size=4, num_ps=1, eval_node=True) == [0, 2, 0, 2]
    assert shares(cluster_size=3) == [1, 1, 1]


def test_where_there_are_fewer_than_nodes_none_is_given_twice(host):
    assert shares(cluster_size=5) == [0] * 5


def test_without_gpus_nodes_see_what_there_is(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert shares(cluster_size=2) == [None, None]
    assert shares(cluster_size=2, gpus=0) == [0, 0]


def test_too_few_gpus_are_refused_with_a_number_that_works(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    with pytest.raises(ConfigError) as error:
        shares(cluster_size=3, gpus=2)
    assert str(error.value) == (
        "gpus=2 for 3 nodes needs 6 GPUs, and this machine has 3; ask for gpus=1, or leave the option out to divide "
        "them"
    )


def test_more_than_spark_assigns_are_refused():
    check_assigned(ClusterConfig(gpus=2), None)
    check_assigned(ClusterConfig(gpus=1), 1)
    check_assigned(ClusterConfig(), 1)
    for gpus in (2, {"worker": 2}):
        with pytest.raises(
            ConfigError, match=r"gpus=2: Spark assigns 1 to each task; ask for gpus=1, or set spark\.task"
        ):
            check_assigned(ClusterConfig(gpus=gpus), 1)


def views(*nodes):
    """Return views of nodes, from tuples of name, host, GPUs of the node, and number of GPUs of the host."""
    return [
        NodeView(node=node, job_name="", task_index=0, is_chief=False, host=host, gpus=gpus, gpu_count=count)
        for node, host, gpus, count in nodes
    ]


def test_the_number_of_each_host_is_told_where_there_are_too_few():
    config = ClusterConfig(cluster_size=4, gpus=2)
    nodes = [("chief:0", "a", ("0", "1"), 4), ("worker:0", "a", ("2",), 4)]
    nodes += [("worker:1", "b", ("0",), 1), ("worker:2", "c", ("0", "1"), 2)]
    assert str(shortage(config, assign_roles(config), views(*nodes))) == (
        "gpus=2, but a has 4 GPUs for 2 nodes, 1 of them taken by others; b has 1 GPU for 1 node; c has 2 GPUs for 1 "
        "node. Ask for fewer GPUs, for fewer nodes on a host, or for gpus=all to let them share, or wait until others "
        "have ended."
    )
    enough = [(name, host, ("0", "1"), 4) for name, host, *_ in nodes]
    assert shortage(config, assign_roles(config), views(*enough)) is None


def test_a_note_says_who_got_no_gpu_of_those_that_were_divided():
    config = ClusterConfig(cluster_size=2)
    note = uneven(config, assign_roles(config), views(("chief:0", "a", (), 1), ("worker:0", "a", (), 1)))
    assert note == (
        "no GPU was left for chief:0, worker:0 (a has 1), which compute on the CPU: ask for fewer nodes, or for "
        "gpus=all to let nodes share them"
    )
    assert uneven(config, assign_roles(config), views(("chief:0", "a", (), 0), ("worker:0", "a", (), 0))) == ""


# ---- on this machine ------------------------------------------------------------------------------------------------


def test_each_node_has_its_own_and_the_table_shows_them(run):
    cluster = run(see, cluster_size=4, num_ps=1, eval_node=True)
    found = dict(cluster.wait(timeout_s=60))
    assert found["ps:0"][:2] == found["evaluator:0"][:2] == ([], "-1")
    assert sorted([*found["chief:0"][0], *found["worker:0"][0]]) == ["0", "1", "2", "3"]
    for gpus, visible, order, growth in (found["chief:0"], found["worker:0"]):
        assert (visible, order, growth) == (",".join(gpus), "PCI_BUS_ID", "true")
    assert {node.node: list(node.gpus) for node in cluster.nodes} == {node: gpus for node, (gpus, *_) in found.items()}


def test_a_user_s_own_settings_are_left_alone(run):
    env = {**QUICK_ENV, "TF_FORCE_GPU_ALLOW_GROWTH": "false", "CUDA_VISIBLE_DEVICES": "3"}
    found = run(see, cluster_size=2, env=env).wait(timeout_s=60)
    assert list(found.values()) == [(["3"], "3", None, "false")] * 2


def test_clusters_at_the_same_time_get_different_ones(run):
    first = run(wait, cluster_size=2, gpus=1)
    second = run(see, cluster_size=2, gpus=1)
    gpus = [gpu for cluster in (first, second) for node in cluster.nodes for gpu in node.gpus]
    assert sorted(gpus) == ["0", "1", "2", "3"]
    second.wait(timeout_s=60)
    with pytest.raises(NotEnoughGpus, match=r"gpus=3, but \S+ has 4 GPUs for 1 node, 2 of them taken by others\. Ask"):
        run(see, cluster_size=1, gpus=3)
    first.stop(grace_s=0.0)
    assert run(see, cluster_size=1, gpus=4).wait(timeout_s=60)["chief:0"][0] == ["0", "1", "2", "3"]


def test_an_evaluator_gets_one_where_it_is_asked_for(run):
    found = run(see, cluster_size=3, eval_node=True, gpus={"chief": 1, "worker": 1, "evaluator": 1}).wait(timeout_s=60)
    assert sorted(gpu for gpus, *_ in found.values() for gpu in gpus) == ["0", "1", "2"]


def test_nodes_that_get_none_of_what_there_is_are_named_in_a_note(run, monkeypatch, tmp_path):
    for name, value in fake_gpus(tmp_path / "small", 1).items():
        monkeypatch.setenv(name, value)
    cluster = run(see, cluster_size=2)
    assert [gpus for gpus, *_ in cluster.wait(timeout_s=60).values()] == [[], []]
    assert any(note.startswith("no GPU was left for chief:0, worker:0 (") for note in cluster.view().notes)
    assert [gpus for gpus, visible, *_ in run(see, gpus="all").wait(timeout_s=60).values()] == [[], []]


def occupy(folder, ctx):
    """Fail if another run has one of the GPUs at the same time."""
    import time
    from pathlib import Path

    taken = [Path(folder) / gpu for gpu in ctx.gpus]
    for path in taken:
        path.mkdir()
    time.sleep(0.2)
    for path in taken:
        path.rmdir()
    return len(taken)


def test_independent_runs_take_turns_on_the_gpus(host, tmp_path):
    options = {"local": "processes", "env": QUICK_ENV}
    assert list(tfos_lab.parallel(occupy, [str(tmp_path)] * 3, gpus=2, slots=3, **options)) == [2] * 3
    assert next(iter(tfos_lab.parallel(see, [None], **options)))[:2] == ([], None), "all see all"
