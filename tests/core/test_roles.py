"""Which node has which job, in the order of TensorFlowOnSpark."""

from hypothesis import given
from hypothesis import strategies as st

from tests.laws.random_data import fuzzed
from tfos_lab import ClusterConfig
from tfos_lab.core.config import assign_roles
from tfos_lab.core.roles import chief_of, cluster_spec, tf_cluster_spec


@fuzzed(60)
@given(st.integers(1, 6), st.integers(0, 4), st.sampled_from(["chief", "master", None]), st.booleans())
def test_each_rank_has_one_job_and_those_that_train_have_one_leader(training, num_ps, leader, evaluates):
    size = training + num_ps + evaluates
    shape = {"cluster_size": size, "num_ps": num_ps, "master_node": leader, "evaluator": evaluates}
    specs = assign_roles(ClusterConfig(**shape))
    assert [spec.rank for spec in specs] == list(range(size))
    assert len({spec.node for spec in specs}) == size
    trains = [spec.node for spec in specs if spec.role.trains]
    assert len(trains) == training
    assert chief_of(specs).node == f"{leader or 'worker'}:0"
    addresses = {spec.rank: f"h:{spec.rank}" for spec in reversed(specs)}
    tasks = cluster_spec(specs, addresses)
    assert all(tasks[spec.job_name][spec.task_index] == addresses[spec.rank] for spec in specs)
    assert set(tf_cluster_spec(tasks)) == set(tasks) - {"evaluator"}
