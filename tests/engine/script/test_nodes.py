"""The nodes that a script is asked to run on."""

from __future__ import annotations

import pytest

from tfos_lab.engine.script.nodes import plan_nodes
from tfos_lab.errors import ConfigError


def test_nodes_are_put_in_the_order_of_ranks():
    plan = plan_nodes(
        [
            {"job_name": "worker", "params": {"lr": 1}, "task_index": 1},
            {"job_name": "evaluator", "params": {"lr": 2}},
            {"job_name": "chief", "params": {"lr": 3}},
            {"job_name": "worker", "params": {"lr": 4}, "task_index": 0},
            {"job_name": "ps"},
        ]
    )
    assert plan.options == {"cluster_size": 5, "num_ps": 1, "master_node": "chief", "eval_node": True}
    assert plan.params == ({}, {"lr": 3}, {"lr": 2}, {"lr": 4}, {"lr": 1})


def test_workers_alone_need_no_chief_and_one_worker_is_enough():
    assert plan_nodes([{}, {"params": None}]).options["master_node"] is None
    assert plan_nodes().options["cluster_size"] == 1
    assert plan_nodes([{"job_name": "master"}]).options["master_node"] == "master"


@pytest.mark.parametrize(
    ("nodes", "problem"),
    [
        ([], "nodes=[]: a list with a dict for each node is needed, such as [{'job_name': 'worker'}]"),
        ({"job_name": "worker"}, "a list with a dict for each node is needed"),
        (["worker"], "nodes[0] is a str: a dict is needed, such as {'job_name': 'worker', 'params': {…}}"),
        ([{"job_name": "wroker"}], "nodes[0]: job_name='wroker': there is no such role; did you mean 'worker'?"),
        ([{"job_name": 7}], "use ps, chief, master, evaluator or worker"),
        ([{"parms": {}}], "nodes[0]: there is no key 'parms'; did you mean 'params'?"),
        ([{"task_index": -1}], "nodes[0]: task_index=-1: a whole number from 0 on is needed"),
        ([{"params": [1]}], "nodes[0]: params is a list: a dict of names and values is needed"),
        ([{"params": {"a b": 1}}], "nodes[0]: params['a b']: a name of letters, digits and _ is needed"),
        ([{"params": {"x": {1, 2}}}], "nodes[0]: params['x']: Object of type set is not JSON serializable; numbers"),
        ([{"job_name": "chief"}, {}, {"job_name": "chief"}], "nodes[0] and nodes[2]: a cluster has one chief at most"),
        ([{"job_name": "chief"}, {"job_name": "master"}], "nodes[0] and nodes[1]: a cluster has one chief at most"),
        ([{}, {"job_name": "evaluator"}, {"job_name": "evaluator"}], "a cluster has one evaluator at most"),
        ([{"job_name": "ps"}], "nodes: none of ps trains: add a worker or a chief"),
        (
            [{"task_index": 1}, {"task_index": 1}],
            "nodes: the task_index of job_name='worker' is 1, 1: each of 0, 1 is needed once",
        ),
    ],
)
def test_nodes_that_make_no_cluster_are_refused_in_a_sentence(nodes, problem):
    with pytest.raises(ConfigError) as caught:
        plan_nodes(nodes)
    assert len(caught.value.problems) == 1
    assert problem in caught.value.problems[0]


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        plan_nodes([{"job_name": "x"}, {"params": 1}, 3])
    assert len(caught.value.problems) == 3


def test_a_plan_knows_whether_its_parameters_name_the_data():
    assert plan_nodes([{"params": {"train": "{data_dir}/*.parquet"}}]).reads_data
    assert not plan_nodes([{"params": {"train": "data_dir"}}]).reads_data
