"""Acted clusters with figures as real ones have them: bound by input or compute, a straggler, a hung node, 40 nodes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.support.fake_cluster import FakeCluster
from tfos_lab.core.messages import NodeActivity
from tfos_lab.driver.state.events import FeedView, MetricsReported

_STEPS, _TOTAL, _STEPS_OF_EPOCH = 60, 96, 12


@dataclass(frozen=True)
class Staged:
    """What a cluster shows: shares of the time (rows, tf.data, peers, compute, Python), and a verdict."""

    shares: tuple[float, float, float, float, float]
    verdict: str
    step_s: float = 0.25
    nodes: int = 4
    metrics: tuple[str, ...] = ("loss", "accuracy", "val_loss", "val_accuracy", "learning_rate")


INPUT = Staged(
    (0.62, 0.0, 0.03, 0.3, 0.05), "Waits for rows 62 % of the time: Spark delivers 4,100 rows/s. Use more partitions."
)
COMPUTE = Staged(
    (0.01, 0.02, 0.04, 0.91, 0.02), "Compute bound: 91 % of each step of 310 ms. More nodes would help.", 0.31
)
HUNG = Staged((0.05, 0.0, 0.1, 0.83, 0.02), "")
FORTY = Staged(
    (0.08, 0.0, 0.22, 0.68, 0.02), "Compute bound: 68 % of each step of 250 ms. More nodes would help.", nodes=40
)


def staged_cluster(staged: Staged) -> FakeCluster:
    """Return a cluster that is in the midst of training."""
    cluster = FakeCluster(nodes=staged.nodes)
    started_s = time.time() - 48
    timings = {"launched": 0.4, "reserved": 2.3, "released": 2.4, "imported": 3.1, "running": 4.0}
    feed = FeedView(
        started_s=4.2,
        rows=dict.fromkeys(cluster.nodes, 3840),
        partitions=10,
        total_partitions=16,
        size_bytes=48_000_000,
        epochs=2,
    )
    left_s = 31.0
    cluster.alter(
        state="running",
        started_s=started_s,
        timings=timings,
        feeds=(feed,),
        progress=_STEPS / _TOTAL,
        seconds_left=left_s,
        verdict=staged.verdict,
    )
    for index, node in enumerate(cluster.nodes):
        cluster.change(
            node,
            state="running",
            host=f"exec-{index // 4 + 1}",
            executor=str(index // 4),
            address=f"10.0.0.{index // 4 + 11}:{39001 + index}",
            pid=41200 + index * 17,
            step=_STEPS,
            total_steps=_TOTAL,
            rows=_STEPS * 64,
            metrics=dict(_of_epoch(staged.metrics, index, _STEPS)),
            activity=_activity(staged, index),
        )
    return cluster


def reports_of(cluster: FakeCluster, staged: Staged) -> Iterator[MetricsReported]:
    """Return what the nodes have reported so far."""
    started_s = cluster.view().started_s
    for step in range(_STEPS + 1):
        for index, node in enumerate(cluster.nodes):
            time_s = started_s + 4 + step * staged.step_s
            metrics = {name: _value(name, index, step) for name in staged.metrics if not name.startswith("val_")}
            yield MetricsReported(time_s=time_s, node=node, step=step, total_steps=_TOTAL, metrics=metrics)
            if step and step % _STEPS_OF_EPOCH == 0:
                metrics = dict(_of_epoch(staged.metrics, index, step))
                yield MetricsReported(time_s=time_s, node=node, step=step, total_steps=_TOTAL, metrics=metrics)


def _of_epoch(names: Sequence[str], index: int, step: int) -> Iterator[tuple[str, float]]:
    """Yield what a node reports at the end of an epoch: means of it, and of validation, which is alike on all nodes."""
    steps = range(step - _STEPS_OF_EPOCH, step)
    for name in names:
        if name.startswith("val_"):
            overfit = 0.1 + 0.3 * (step / _TOTAL) ** 2
            yield name, _value(name, 0, step) + (overfit if "loss" in name else -overfit / 4)
        else:
            yield name, sum(_value(name, index, one) for one in steps) / len(steps)
    yield "epoch", step // _STEPS_OF_EPOCH


def make_straggle(cluster: FakeCluster, node: str) -> None:
    """Make a node slower than its peers."""
    activity = NodeActivity(
        step=_STEPS, step_s=0.25, waits_rows=0.02, waits_peers=0.02, computes=0.94, python=0.02, cpu=0.9,
        memory_bytes=1_310_000_000, host_cpu=0.98, host_memory=0.71, last_sign="step 60", slower=2.13,
    )  # fmt: skip
    cluster.change(node, activity=activity)


def make_hang(cluster: FakeCluster, node: str) -> None:
    """Let a node give no sign for a minute."""
    activity = NodeActivity(
        step=41, step_s=0.25, computes=0.0, waits_peers=1.0, cpu=0.0, memory_bytes=1_310_000_000, host_cpu=0.12,
        host_memory=0.4, idle_s=64.0, last_sign="step 41", where="Cell In[5], line 12, in fit",
    )  # fmt: skip
    cluster.change(
        node, step=41, activity=activity, hung="no step for 64 s; last: step 41, in Cell In[5], line 12, in fit"
    )


def _activity(staged: Staged, index: int) -> NodeActivity:
    rows, data, peers, computes, python = staged.shares
    shift = 0.04 * math.sin(index)
    # Of all nodes together, the shares are those that are staged.
    apart = shift / 2 - sum(0.02 * math.sin(one) for one in range(staged.nodes)) / staged.nodes
    return NodeActivity(
        step=_STEPS,
        step_s=staged.step_s * (1 + shift),
        waits_rows=rows,
        waits_data=data,
        waits_peers=peers + apart,
        computes=computes - apart,
        python=python,
        rows_s=1020.0,
        where="Cell In[5], line 12, in fit",
        cpu=1.4 + shift,
        memory_bytes=1_240_000_000 + index * 3_000_000,
        host_cpu=0.44,
        host_memory=0.37,
        last_sign=f"step {_STEPS}",
    )


def _value(name: str, index: int, step: int) -> float:
    noise = 0.02 * math.sin(step * 1.7 + index * 2.1)
    if name == "learning_rate":
        return 0.001 * 0.97**step
    if "loss" in name:
        return 2.3 * math.exp(-step / 30) + 0.02 * index % 0.5 + noise + 0.1
    return 1 - math.exp(-step / (15 + index % 7)) + noise / 4
