"""Which node has which job, in the order of TensorFlowOnSpark."""

from __future__ import annotations

import pytest

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import (
    NodeSpec,
    Role,
    assign_roles,
    chief_of,
    cluster_spec,
    count_training,
    role_of,
    tf_cluster_spec,
)


def nodes(**options):
    return [spec.node for spec in assign_roles(ClusterConfig(**options))]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["chief:0"]),
        ({"cluster_size": 3}, ["chief:0", "worker:0", "worker:1"]),
        ({"cluster_size": 4, "num_ps": 1, "eval_node": True}, ["ps:0", "chief:0", "evaluator:0", "worker:0"]),
        ({"cluster_size": 4, "num_ps": 2}, ["ps:0", "ps:1", "chief:0", "worker:0"]),
        ({"cluster_size": 2, "master_node": "master"}, ["master:0", "worker:0"]),
        ({"cluster_size": 2, "master_node": None}, ["worker:0", "worker:1"]),
        ({"cluster_size": 3, "master_node": None, "eval_node": True}, ["evaluator:0", "worker:0", "worker:1"]),
    ],
)
def test_ranks_go_to_ps_chief_evaluator_and_workers_in_this_order(options, expected):
    assert nodes(**options) == expected


def test_ranks_are_numbered_in_launch_order():
    assert [spec.rank for spec in assign_roles(ClusterConfig(cluster_size=3, num_ps=1))] == [0, 1, 2]


@pytest.mark.parametrize(
    ("options", "leader"),
    [
        ({"cluster_size": 3, "num_ps": 1}, "chief:0"),
        ({"cluster_size": 2, "master_node": "master"}, "master:0"),
        ({"cluster_size": 3, "master_node": None, "num_ps": 1}, "worker:0"),
    ],
)
def test_the_leader_is_the_chief_the_master_or_the_first_worker(options, leader):
    assert chief_of(assign_roles(ClusterConfig(**options))).node == leader


def test_a_cluster_without_training_nodes_has_no_chief():
    with pytest.raises(LookupError, match="no chief"):
        chief_of([NodeSpec(0, "ps", 0)])


def test_the_run_waits_for_training_nodes_only():
    node_specs = assign_roles(ClusterConfig(cluster_size=4, num_ps=1, eval_node=True))
    assert [spec.node for spec in node_specs if spec.role.trains] == ["chief:0", "worker:0"]


def test_the_cluster_spec_lists_addresses_in_task_order():
    node_specs = assign_roles(ClusterConfig(cluster_size=3))
    assert cluster_spec(node_specs, {0: "a:1", 2: "c:3", 1: "b:2"}) == {"chief": ["a:1"], "worker": ["b:2", "c:3"]}


def test_roles_have_these_traits():
    def named(trait):
        return [str(role) for role in Role if getattr(role, trait)]

    assert named("trains") == named("is_fed") == ["chief", "master", "worker"]
    assert named("leads") == ["chief", "master"]
    assert named("serves") == ["ps"]
    assert named("in_tf_cluster") == ["ps", "chief", "master", "worker"]


def test_tensorflow_s_cluster_spec_lacks_the_evaluator_and_parameter_servers_do_not_train():
    spec = {"ps": ["a:1"], "chief": ["b:1"], "evaluator": ["c:1"], "worker": ["d:1", "e:1"]}
    assert list(tf_cluster_spec(spec)) == ["ps", "chief", "worker"]
    assert count_training(spec) == 3


def test_a_node_s_name_tells_its_role():
    assert role_of("worker:12") is Role.WORKER
