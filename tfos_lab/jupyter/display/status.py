"""The table that ``%tfos`` shows: one line for each cluster of this notebook."""

from __future__ import annotations

import html
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from tfos_lab.engine.state.events import ClusterView
from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.formats import format_seconds

_COLUMNS = ("name", "state", "nodes", "progress", "on", "time", "logs")


class ListedCluster(Protocol):
    """The part of a cluster that the table uses."""

    @property
    def run_dir(self) -> str | Path:
        """The folder with the complete logs."""

    def view(self) -> ClusterView:
        """Return the cluster as it is now."""


class StatusTable:
    """The clusters of this notebook as a table, in HTML and as text."""

    def __init__(self, clusters: Sequence[ListedCluster]) -> None:
        now_s = time.time()
        self._rows = [_row(cluster, now_s) for cluster in clusters]

    def __repr__(self) -> str:
        if not self._rows:
            return "no cluster yet: write %%tfos above a cell"
        table = [_COLUMNS, *self._rows]
        widths = [max(len(row[index]) for row in table) for index in range(len(_COLUMNS))]
        return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table)

    def _repr_html_(self) -> str:
        if not self._rows:
            return "no cluster yet: write <code>%%tfos</code> above a cell"
        head = "".join(f'<th scope="col" style="text-align: left">{name}</th>' for name in _COLUMNS)
        body = "".join(
            "<tr>" + "".join(f'<td style="text-align: left">{html.escape(text)}</td>' for text in row) + "</tr>"
            for row in self._rows
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(cluster: ListedCluster, now_s: float) -> tuple[str, ...]:
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
