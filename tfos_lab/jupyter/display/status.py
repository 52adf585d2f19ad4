"""The table that ``%tfos`` shows: one line for each cluster of this notebook."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tfos_lab.core.plain_table import PlainTable
from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.base import WatchedCluster
from tfos_lab.texts import format_seconds

_COLUMNS = ("name", "state", "nodes", "progress", "on", "time", "logs")


class StatusTable(PlainTable):
    """The clusters of this notebook as a table, in HTML and as text."""

    def __init__(self, clusters: Sequence[WatchedCluster]) -> None:
        now_s = time.time()
        rows = [_row(cluster, now_s) for cluster in clusters]
        super().__init__(_COLUMNS, rows, empty="no cluster yet: write %%tfos above a cell")


def _row(cluster: WatchedCluster, now_s: float) -> tuple[str, ...]:
    view = cluster.view()
    return (
        view.name,
        f"{view.state.look.sign} {view.state}",
        summary.headline(view),
        summary.furthest(view),
        view.launcher,
        format_seconds(summary.elapsed_s(view, now_s)),
        str(cluster.run_dir),
    )
