"""Why training is as slow as it is, in words, from what the nodes have measured. Pure: figures go in.

Where the figures allow no certain answer, there is none. The order of the rules is that of what helps most: one slow
node explains the waiting of all others, and waiting explains why nodes compute little.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from tfos_lab.engine.diagnosis.figures import BUSY_HOST, Figures
from tfos_lab.engine.state.events import NodeView

# Waiting for less than this share of the time is not worth a word, and for less than the first one no verdict.
_MUCH = 0.3
_LITTLE = 0.2
_MOSTLY = 0.5
_NEARLY_ALWAYS = 0.8
_BUSY_GPU = 0.8
# Nobody asks why shorter steps are slow.
_SHORT_STEP_S = 0.05


class Kind(StrEnum):
    """What limits the speed of training."""

    ROWS = "rows"
    DATA = "tf.data"
    STRAGGLER = "straggler"
    PEERS = "peers"
    COMPUTE = "compute"
    PYTHON = "python"
    HEALTHY = "healthy"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Verdict:
    """What limits training, and the same in words with what to do; unknown is silent."""

    kind: Kind
    text: str = ""


def judge(figures: Figures | None) -> Verdict:
    """Return what limits training."""
    if figures is None:
        return Verdict(Kind.UNKNOWN)
    rules: tuple[Callable[[Figures], Verdict | None], ...] = (_straggler, _rows, _data, _peers, _python, _compute)
    found = (verdict for rule in rules if (verdict := rule(figures)) is not None)
    return next(found, None) or _healthy(figures) or Verdict(Kind.UNKNOWN)


# ---- one node -------------------------------------------------------------------------------------------------------


def _straggler(figures: Figures) -> Verdict | None:
    slow = [node for node in figures.nodes if _slower(node)]
    others = [node for node in figures.nodes if not _slower(node)]
    if not slow or not others:
        return None
    slowest = max(slow, key=_slower)
    waits = statistics.median(node.activity.waits_peers for node in others if node.activity is not None)
    wait = f", which wait for it {_percent(waits)} of the time" if waits >= _LITTLE else ""
    text = f"{slowest.node} is {_slower(slowest):.1f}× slower than the others{wait}: {_why_slow(slowest, others)}"
    return Verdict(Kind.STRAGGLER, text)


def _slower(node: NodeView) -> float:
    return node.activity.slower or 0.0 if node.activity is not None else 0.0


def _has_busiest_host(node: NodeView, others: list[NodeView]) -> bool:
    """Whether a node's host is busy and those of the others are not; nodes measure one host at different moments."""
    elsewhere = [_host_cpu(other) for other in others if other.host != node.host]
    return bool(elsewhere) and _host_cpu(node) >= BUSY_HOST and statistics.median(elsewhere) < BUSY_HOST - 0.1


def _why_slow(node: NodeView, others: list[NodeView]) -> str:
    activity = node.activity
    assert activity is not None
    if _has_busiest_host(node, others):
        return f"its host {node.host} is at {_percent(activity.host_cpu)} CPU; see what else runs there"
    if activity.waits_rows >= _MUCH:
        return f"it waits for rows {_percent(activity.waits_rows)} of the time; repartition the DataFrame evenly"
    if activity.waits_data >= _MUCH:
        return (
            f"it waits for its tf.data pipeline {_percent(activity.waits_data)} of the time; look at its files and disk"
        )
    if activity.python >= _MOSTLY:
        at = f"it spends {_percent(activity.python)} of the time in Python ({activity.where})"
        return f"{at}; %tfos profile {node.node} shows more"
    return f"it computes {_percent(activity.computes)} of the time; give all nodes like hosts and equal batches"


# ---- all nodes ------------------------------------------------------------------------------------------------------


def _rows(figures: Figures) -> Verdict | None:
    waits = figures.mean("waits_rows")
    if waits < _MUCH or waits < figures.mean("waits_data"):
        return None
    feeds = [feed for feed in figures.feeds if feed.kind != "inference"]
    if feeds and feeds[-1].kind == "stream":
        return Verdict(
            Kind.HEALTHY, f"keeps up with the stream: the nodes wait for its rows {_percent(waits)} of the time"
        )
    what = f"waits for rows {_percent(waits)} of the time"
    rate, most = _number(figures.rows_s), _number(figures.rows_s / max(1.0 - waits, 0.01))
    if feeds and feeds[-1].complete:
        text = f"{what}, though all have arrived: the nodes read {rate} rows/s; raise batch_size, or prefetch more"
        return Verdict(Kind.ROWS, text)
    if figures.rows_s <= 0:
        return Verdict(Kind.ROWS, f"{what}: Spark delivers too few; use more partitions, or cache the DataFrame")
    cure = "use more partitions, or cache the DataFrame"
    return Verdict(Kind.ROWS, f"{what}: Spark delivers {rate} rows/s, the nodes could take {most}; {cure}")


def _data(figures: Figures) -> Verdict | None:
    waits = figures.mean("waits_data")
    if waits < _MUCH:
        return None
    steps = f"a step takes {_seconds(figures.step_s)}, {_seconds(figures.step_s * waits)} of it for its batch"
    busiest = max(figures.nodes, key=_host_cpu)
    if _host_cpu(busiest) >= BUSY_HOST:
        where = f"the host {busiest.host} is at {_percent(_host_cpu(busiest))} CPU"
        cure = f"{where}, so cache() what it computes, or prepare the data before"
    else:
        cure = "use map(…, num_parallel_calls=tf.data.AUTOTUNE), cache() and prefetch(tf.data.AUTOTUNE)"
    return Verdict(Kind.DATA, f"waits for its tf.data pipeline {_percent(waits)} of the time: {steps}; {cure}")


def _peers(figures: Figures) -> Verdict | None:
    waits = figures.mean("waits_peers")
    if waits < _MUCH:
        return None
    what = f"the nodes wait for one another {_percent(waits)} of the time, and none is slower than the rest"
    cure = "larger batches need fewer exchanges; give all nodes batches of equal work"
    return Verdict(
        Kind.PEERS, f"{what}: exchanging gradients, or steps of uneven length, takes {_part(figures, waits)}; {cure}"
    )


def _part(figures: Figures, share: float) -> str:
    return f"{_seconds(figures.step_s * share)} of each step of {_seconds(figures.step_s)}"


def _python(figures: Figures) -> Verdict | None:
    share = figures.mean("python")
    if share < _MOSTLY or figures.step_s < _SHORT_STEP_S:
        return None
    where = next((activity.where for activity in figures.activities if activity.where), "")
    at = f", now at {where}" if where else ""
    what = f"spends {_percent(share)} of the time in Python, not in TensorFlow"
    cure = "%tfos profile shows which lines; tf.function runs them without Python"
    return Verdict(Kind.PYTHON, f"{what}: a step takes {_seconds(figures.step_s)}{at}; {cure}")


def _compute(figures: Figures) -> Verdict | None:
    share = figures.mean("computes")
    gpus = [activity.gpu for activity in figures.activities if activity.gpu is not None]
    # GPUs are busy while they wait for those of other nodes.
    if any(activity.has_gpu_peers for activity in figures.activities):
        return None
    if share < _NEARLY_ALWAYS or figures.step_s < _SHORT_STEP_S:
        return None
    if gpus and statistics.fmean(gpus) < _BUSY_GPU:
        return None
    what = f"compute bound: {_percent(share)} of a step of {_seconds(figures.step_s)} is spent in TensorFlow"
    if gpus:
        return Verdict(
            Kind.COMPUTE, f"{what}, with the GPUs at {_percent(statistics.fmean(gpus))}; more nodes would help"
        )
    cores = statistics.fmean(activity.cpu for activity in figures.activities)
    return Verdict(Kind.COMPUTE, f"{what}, on {cores:.1f} cores of each node; more nodes or GPUs would help")


def _healthy(figures: Figures) -> Verdict | None:
    waits, works = figures.mean("waits_rows", "waits_data", "waits_peers"), figures.mean("computes")
    is_short = figures.step_s < _SHORT_STEP_S
    if waits >= _LITTLE or any(activity.has_gpu_peers for activity in figures.activities):
        return None
    if not is_short:
        text = f"healthy: computes {_percent(works)} of the time, and waits {_percent(waits)}"
        return Verdict(Kind.HEALTHY, text) if works >= _MOSTLY else None
    text = f"healthy: steps of {_seconds(figures.step_s)} that wait {_percent(waits)} of the time"
    if figures.mean("python") < _NEARLY_ALWAYS:
        return Verdict(Kind.HEALTHY, text)
    python = _percent(figures.mean("python"))
    return Verdict(Kind.HEALTHY, f"{text}; {python} is spent in Python, so larger batches take more rows per second")


# ---- words ----------------------------------------------------------------------------------------------------------


def _host_cpu(node: NodeView) -> float:
    return node.activity.host_cpu if node.activity is not None else 0.0


def _percent(share: float) -> str:
    return f"{100 * min(share, 1.0):.0f} %"


def _number(value: float) -> str:
    """Return a number in two significant digits, as more are not measured."""
    rounded = float(f"{value:.2g}")
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"


def _seconds(value: float) -> str:
    if value >= 10:
        return f"{value:.0f} s"
    return f"{value:.2g} s" if value >= 1 else f"{1000 * value:.2g} ms" if value < 0.1 else f"{1000 * value:.0f} ms"
