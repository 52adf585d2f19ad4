"""Trains ordinary models in one cluster, and compares what nodes and one process have found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfos_lab
from tests.ordinary_models.declare import ORDINARY, TF_KERAS
from tests.ordinary_models.training import EPOCHS, ROWS, some_frame, some_rows, train_models


@dataclass(frozen=True)
class Found:
    """What each node has found, and one process, by name of a model; the rows of the global steps; the nodes' logs."""

    together: list[dict[str, Any]]
    alone: dict[str, Any]
    steps: list[list[int]]
    logs: dict[str, str]


def train_all(names: Sequence[str], keras: str, nodes: int, *, spark: Any, folder: Path, whole: bool = False) -> Found:
    """Train models one after another in one cluster, and in one process; ``whole``: all nodes have all rows."""
    names = [name for name in names if keras in ORDINARY[name].keras]
    args = {"keras": keras, "names": names, "folder": str(folder), "whole": whole}
    env = {"TF_USE_LEGACY_KERAS": "1"} if keras == TF_KERAS else {}
    options = {"env": env, "spark": spark, "name": "ordinary", "hang_timeout": 0}
    with tfos_lab.run(train_models, args, cluster_size=nodes, **options) as cluster:
        if not whole:
            cluster.train(some_frame(spark, some_rows()))
        results = list(cluster.wait(timeout=800).values())
        logs = {node.name: cluster.logs(node.name) for node in cluster.nodes}
    found = Found(
        together=[result["together"] for result in results],
        alone={name: one for result in results for name, one in result["alone"].items()},
        steps=results[0]["steps"],
        logs=logs,
    )
    assert sorted(row for step in found.steps for row in step) == list(range(ROWS))
    assert len(found.steps[-1]) < len(found.steps[0])
    return found


def assert_as_in_one_process(found: Found, name: str) -> None:
    """See that the nodes have found what one process has, to the model's tolerance, and all of them the same bits."""
    ordinary = ORDINARY[name]
    if name not in found.alone:
        pytest.skip(f"this Keras has no {ordinary.needs}")
    alone, nodes = found.alone[name], [node[name] for node in found.together]
    for one in (alone, *nodes):
        assert "error" not in one, one["error"]
    first = nodes[0]
    for other in nodes[1:]:
        assert_equal(other, first)
    if not ordinary.fit:
        assert first["iterations"] == EPOCHS * len(found.steps) // ordinary.accumulates
    assert first["iterations"] == alone["iterations"]
    assert first["history"].keys() == alone["history"].keys()
    if ordinary.by_chance:
        np.testing.assert_allclose(first["history"]["loss"], alone["history"]["loss"], rtol=0.2)
        return
    for metric, values in alone["history"].items():
        np.testing.assert_allclose(first["history"][metric], values, rtol=0, atol=ordinary.tolerance, err_msg=metric)
    for weight, expected in zip(first["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(weight, expected, rtol=0, atol=ordinary.tolerance)


def assert_equal(one: dict[str, Any], other: dict[str, Any]) -> None:
    """See that two nodes have the same bits."""
    for weight, same in zip(one["weights"], other["weights"], strict=True):
        np.testing.assert_array_equal(weight, same)
    for metric in one["history"]:
        np.testing.assert_array_equal(one["history"][metric], other["history"][metric], err_msg=metric)
