"""Nodes that wait for cells, wherever they are."""

import pytest

import tfos_lab
from tfos_lab.errors import CellFailed


@pytest.mark.back_ends("standalone")
def test_names_stay_on_the_nodes_and_an_exception_ends_only_its_cell(back_end, spark):
    with tfos_lab.start({"a": 1}, cluster_size=2, spark=spark, local=back_end.local) as cluster:
        cluster.run_cell("import tensorflow as tf\nstrategy = ctx.strategy()\nx = ctx.worker_num")
        with pytest.raises(CellFailed, match="ZeroDivisionError"):
            cluster.run_cell("x / 0", "worker:0")
        results = cluster.run_cell("print(x)\nx + args['a'], strategy.num_replicas_in_sync")
        assert dict(results) == {"chief:0": (1, 2), "worker:0": (2, 2)}
        assert results.output == {"chief:0": "0\n", "worker:0": "1\n"}
    assert tfos_lab.runs()[cluster.run_dir].code == "", "its function is none of the user's"
