"""Metrics that are not numbers: since when, and the sentence that displays show. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tfos_lab.engine.state.events import NodeView


def nan_since(
    before: Mapping[str, int | None], step: int | None, metrics: Mapping[str, float]
) -> dict[str, int | None]:
    """Return which metrics are NaN, and since which step, after a report."""
    since = {name: at for name, at in before.items() if name not in metrics}
    for name, value in metrics.items():
        if math.isnan(value):
            since[name] = before.get(name, step)
    return since


def nan_text(nodes: Sequence[NodeView]) -> str:
    """Return a sentence on the loss that is NaN, or another metric: ``"loss is NaN since step 12"``; or nothing."""
    names = dict.fromkeys(name for node in nodes for name in node.nan_since)
    if not names:
        return ""
    name = min(names, key=lambda name: (name.startswith("val_"), "loss" not in name))
    bad = [node for node in nodes if name in node.nan_since]
    steps = [step for node in bad if (step := node.nan_since[name]) is not None]
    since = f" since step {min(steps):,}" if steps else ""
    reporting = sum(name in node.metrics for node in nodes)
    whose = "" if len(bad) == reporting else f" of {bad[0].node}" if len(bad) == 1 else f" of {len(bad)} nodes"
    return f"{name}{whose} is NaN{since}"
