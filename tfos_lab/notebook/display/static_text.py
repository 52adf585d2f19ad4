"""A cluster as lines of text, for terminals and for front ends without HTML."""

from __future__ import annotations

import time
from pathlib import Path

from tfos_lab.core.paths import short_path
from tfos_lab.driver.state.events import ClusterView, NodeView
from tfos_lab.notebook.display import summary
from tfos_lab.notebook.display.feed_lines import feed_lines
from tfos_lab.notebook.display.listing import only_notable
from tfos_lab.notebook.display.node_table import Column, shown_columns
from tfos_lab.notebook.display.shown import shown_names
from tfos_lab.notebook.display.table import agreeing, text_together


def render_text(view: ClusterView, run_dir: str | Path | None = None) -> str:
    """Return the cluster as text."""
    shown = only_notable(view)
    columns = shown_columns(shown)
    rows = [[column.title.lower() for column in columns]]
    together = agreeing(shown)
    if together:
        rows += [[text_together(column, together, len(view.nodes)) for column in columns]]
    rows += [[_cell_text(column, node) for column in columns] for node in shown.nodes if node not in together]
    lines = [
        _headline_text(view),
        *([] if view.state.ended else [seen_text()]),
        *([view.reason] if view.reason else []),
        *([view.alarm] if view.alarm else []),
        *([view.verdict] if view.verdict else []),
        *([summary.phase_line(view)] if view.timings else []),
        *feed_lines(view),
        *shown.notes,
        *_aligned(rows, [column.numeric for column in columns]),
        *(f"{node}: {detail}" for node, detail in [*summary.broken_nodes(shown), *summary.hung_nodes(shown)]),
        *([f"shown: {shown_names(view.shown)}"] if view.shown else []),
        *([f"logs: {short_path(run_dir)}"] if run_dir else []),
    ]
    return "\n".join(lines)


def _headline_text(view: ClusterView) -> str:
    took = summary.took_text(view, time.time())
    facts = [str(view.state), summary.headline(view), took, summary.progress_text(view)]
    return f"{view.state.look.sign} {view.name}: {' · '.join(fact for fact in facts if fact)}"


def _cell_text(column: Column, node: NodeView) -> str:
    text = column.text(node)
    if column.key == "state" and summary.hangs(node):
        return f"{summary.HANGS_SIGN} hangs"
    return f"{node.state.look.sign} {text}" if column.key == "state" else text


def _aligned(rows: list[list[str]], numeric: list[bool]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return [
        "  ".join(
            text.rjust(width) if right else text.ljust(width)
            for text, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]


def seen_text() -> str:
    """Return when the picture of a run that goes on was taken."""
    return f"Seen at {time.strftime('%H:%M:%S on %d %B %Y')}, while it went on."
