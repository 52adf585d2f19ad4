"""The output of nodes on its way to files, and to a page of a real JupyterLab."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import tfos_lab
from benchmarks import torch_log_stream
from benchmarks.measure import Row, median
from tests.support.jupyter_rig import JupyterRig
from tests.support.log_stream import NODES, stream_cells, watch_stream

_LINES = 250_000
_RUNS = 3
_LINES_PER_S, _SECONDS = 2_500, 10


def measure() -> Iterator[Row]:
    """Four nodes that print as fast as they can to files, and 10,000 lines per second to a page."""
    tfos_lab.run(_nothing, cluster_size=NODES, local="processes").wait()
    both = [(_lines_per_s(), torch_log_stream.lines_per_s(NODES, _LINES)) for _ in range(_RUNS)]
    ours, theirs = (median(list(rates)) for rates in zip(*both, strict=True))
    what = "4 nodes print into files on the driver (TorchDistributor's log streaming)"
    yield Row(what, "lines/s", ours, theirs, "≥ 100,000 lines/s", ours >= 1e5, _RUNS)
    with tempfile.TemporaryDirectory() as folder, JupyterRig(Path(folder)) as rig:
        notebook = rig.open_notebook("stream.ipynb", stream_cells(_LINES_PER_S, _SECONDS))
        seen = watch_stream(notebook, 0, _SECONDS)
    what = f"{NODES * _LINES_PER_S:,} lines/s in JupyterLab"
    kept, all_lines = sum(seen.whole.values()), len(seen.whole)
    yield Row(f"{what}: files without a gap", "files", kept, None, f"{all_lines}", kept == all_lines, 1)
    arrived, wanted = seen.page_lines_per_s, 0.98 * NODES * _LINES_PER_S
    yield Row(f"{what}: reach the page", "lines/s", arrived, None, f"≥ {wanted:,.0f} lines/s", arrived >= wanted, 1)
    yield Row(f"{what}: p95 frame", "ms", seen.p95_frame_ms, None, "< 50 ms", seen.p95_frame_ms < 50, 1)
    share = 100 * seen.kernel_cpu_share
    yield Row(f"{what}: kernel's share of a core", "%", share, None, "< 30 %", share < 30, 1)


def _lines_per_s() -> float:
    """Return how many lines per second reached the driver's files, from the first line to the last node's end."""
    cluster = tfos_lab.run(_print_all, cluster_size=NODES, local="processes")
    running_s = cluster.timings["running"]
    cluster.shutdown()
    lines = sum(len(cluster.logs(view.name).splitlines()) for view in cluster.nodes)
    assert lines == NODES * _LINES, f"{lines} of {NODES * _LINES} lines"
    return lines / (cluster.timings["done"] - running_s)


def _print_all(args: object, ctx: object) -> None:
    """Print lines of a hundred characters, like a busy log."""
    for line in range(_LINES):
        sys.stdout.write(f"{time.monotonic():.3f} line {line:07d} {'x' * 70}\n")


def _nothing(args: object, ctx: object) -> None:
    """An empty map_fun."""
