"""Nodes on Spark under settings that change how tasks are run."""

from __future__ import annotations

import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV

pytestmark = pytest.mark.leaves_nothing

# Spark starts a second copy of a task that takes longer than others; a node's task must stay the only one.
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
}


def test_nodes_take_several_cores_each_and_are_not_started_twice(new_spark, standalone, tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))

    def stay(folder, ctx):
        import os
        import time
        from pathlib import Path

        (Path(folder) / f"{ctx.node}-{os.getpid()}").touch()
        time.sleep(0.1 if ctx.is_chief else 2.0)
        return os.getpid()

    session = new_spark(standalone, conf={**_SPECULATION, "spark.task.cpus": "2"})
    options = {"spark": session, "cluster_size": 2, "env": QUICK_ENV, "grace_s": 2.0}
    begun = tmp_path / "begun"
    begun.mkdir()
    with tfos_lab.run(stay, str(begun), **options) as cluster:
        results = cluster.wait(timeout_s=60)
    assert {path.name for path in begun.iterdir()} == {f"{node}-{pid}" for node, pid in results.items()}
    with pytest.raises(tfos_lab.errors.NotEnoughSlots, match="Spark has 2 free task slots of 2"):
        tfos_lab.run(stay, str(begun), **{**options, "cluster_size": 3})
