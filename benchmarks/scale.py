"""Hundreds and thousands of acted nodes on one real driver: what they cost it, phase by phase (`make scale`)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Row, not_measured

_SIZES = (512, 4096)
_TIMEOUT_S = 900.0
_REPOSITORY = Path(__file__).parent.parent
_PHASES = {
    "reservation": "reservation",
    "beats": "heartbeats alone",
    "more work": "5 reports and 25 log lines a second each",
    "feed": "the same, and a feed of 1,000 partitions",
}


def measure() -> Iterator[Row]:
    """A driver of 512 nodes, and one of 4,096, each in a process of its own."""
    memory: dict[int, float] = {}
    for nodes in _SIZES:
        figures = _figures(nodes)
        if "failed" in figures:
            yield not_measured(f"{nodes:,} nodes", figures["failed"])
        yield from _rows(nodes, figures)
        if "more work" in figures:
            memory[nodes] = figures["more work"]["rss_per_node_kb"]
    if len(memory) == len(_SIZES):
        few, many = (memory[nodes] for nodes in _SIZES)
        yield Row("memory per node: 4,096 nodes, beside 512", "kB", many, few, "≤ 1.2", many <= 1.2 * few, 1)


def _figures(nodes: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scale_driver", str(nodes)]
    try:
        done = subprocess.run(command, cwd=_REPOSITORY, stdout=subprocess.PIPE, timeout=_TIMEOUT_S, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        return {"failed": str(error)}
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _rows(nodes: int, figures: dict[str, Any]) -> Iterator[Row]:
    if "reservation" in figures:
        yield Row(f"{nodes:,} nodes reserve", "s", figures["reservation"]["reserved_s"], None, "", None, 1)
    for phase, words in _PHASES.items():
        if phase in figures:
            cores = figures[phase]["cores"]
            yield Row(f"{nodes:,} nodes: driver's CPU, {words}", "cores", cores, None, "< 1", cores < 1, 1)
    work = figures.get("more work", {})
    if "reports_per_s" in work:  # else the nodes have ended before they could say what they had sent
        yield Row(f"{nodes:,} nodes at work: reports taken", "per s", work["reports_per_s"], None, "", None, 1)
        yield Row(
            f"{nodes:,} nodes at work: p95 wait for the driver's thread", "ms", work["p95_wait_ms"], None, "", None, 1
        )
        largest = max(figures[phase]["largest_message_kb"] for phase in _PHASES if phase in figures)
        yield Row(f"{nodes:,} nodes: the largest message to the page", "kB", largest, None, "< 100", largest < 100, 1)
    if "a lost node" in figures:
        yield Row(f"{nodes:,} nodes: a lost one is told", "s", figures["a lost node"]["seconds"], None, "", None, 1)
    if "stop" in figures:
        yield Row(f"{nodes:,} nodes stop", "s", figures["stop"]["seconds"], None, "", None, 1)
