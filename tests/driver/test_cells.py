"""`tfos_lab.start` and `run_cell`: the Python side of interactive clusters, on real nodes."""

import threading

import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import CellFailed, ClusterEnded, ConfigError, PayloadError, WaitTimeout


def test_code_and_functions_run_on_nodes_that_keep_their_names():
    with tfos_lab.start({"a": 1}, cluster_size=2, local="processes", env=QUICK_ENV, grace=0.0) as cluster:
        assert cluster.run_cell("x = ctx.worker_num\nprint('made', x)").output == {
            "chief:0": "made 0\n",
            "worker:0": "made 1\n",
        }
        assert dict(cluster.run_cell("x + k", "worker", names={"k": 10})) == {"worker:0": 11}
        # What a cell has made on a node stays; other names are the notebook's, as they are now.
        assert dict(cluster.run_cell("x, k", "worker", names={"x": 5, "k": 20})) == {"worker:0": (1, 20)}
        assert dict(cluster.run_cell(lambda args, ctx: (args["a"], ctx.node), ["chief:0"])) == {
            "chief:0": (1, "chief:0")
        }
        with pytest.raises(CellFailed) as failed:
            cluster.run_cell("def fail():\n    raise ValueError('no')\nfail()")
        assert failed.value.also == ["worker:0"]
        assert "raise ValueError('no')" in failed.value.traceback
        with pytest.raises(PayloadError, match=r"'lock' .lock. cannot be sent"):
            cluster.run_cell("lock", names={"lock": threading.Lock()})
        with pytest.raises(SyntaxError):
            cluster.run_cell("return 1")
        with pytest.raises(WaitTimeout):
            cluster.run_cell("import threading\nthreading.Event().wait()", "worker:0", timeout=0)
        with pytest.raises(ConfigError, match="worker:0 still runs an earlier cell"):
            cluster.run_cell("x")
        assert dict(cluster.run_cell("x", "chief:0")) == {"chief:0": 0}
        with pytest.raises(ConfigError, match="wait for cells until they are stopped: call stop"):
            cluster.wait()
        cluster.shutdown()
        with pytest.raises(ClusterEnded):
            cluster.run_cell("x")
