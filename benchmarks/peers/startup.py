"""Clusters of four on four executors, after the first in a session, compared with those of the peers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import tfos_lab
from benchmarks.measure import Row, median, not_measured
from benchmarks.peers.peer import PeerFailed
from benchmarks.peers.rig import Rig, take_turns

_NODES = 4
_ROUNDS = 3


def measure(rig: Rig) -> Iterator[Row]:
    """Start empty functions with all three."""
    # The first one imports TensorFlow.
    _start(rig)
    yield from _compare(rig, "TensorFlowOnSpark", "start")
    yield from _compare(rig, "spark-tensorflow-distributor", "start_mirrored")


def _compare(rig: Rig, peer: str, request: str) -> Iterator[Row]:
    goals = {
        "running_s": (f"second cluster of 4, 4 executors: call to first user line ({peer})", 1.0),
        "whole_s": (f"run and wait of an empty function, 4 executors ({peer})", 1.5),
    }
    try:
        rig.peer.ask(request, nodes=_NODES)
        _start(rig)
        both = take_turns(_ROUNDS, lambda: _start(rig), lambda: rig.peer.ask(request, nodes=_NODES))
    except PeerFailed as why:
        yield from (not_measured(what, why) for what, _ in goals.values())
        return
    for key, (what, at_most_s) in goals.items():
        ours, theirs = (median([times[key] for times in side]) for side in both)
        yield Row(what, "s", ours, theirs, f"≤ {at_most_s} s", ours <= at_most_s, _ROUNDS)


def _start(rig: Rig) -> dict[str, float]:
    """Run a cluster of an empty map_fun; return the seconds until its first line runs everywhere, and until the end."""
    started = time.perf_counter()
    cluster = tfos_lab.run(_nothing, spark=rig.spark, cluster_size=_NODES, local="off")
    cluster.wait()
    return {"running_s": cluster.timings["running"], "whole_s": time.perf_counter() - started}


def _nothing(args: object, ctx: object) -> None:
    """An empty map_fun."""
