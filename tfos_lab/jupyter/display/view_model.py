"""The cluster as the front end gets it: the trait ``view`` of the dashboard's widget, as plain JSON values."""

from __future__ import annotations

from dataclasses import replace

from tfos_lab.engine.state.events import ClusterView, NodeView
from tfos_lab.jupyter.display import messages, summary
from tfos_lab.jupyter.display.activity_text import SHARE_KINDS, own_step_time_text, shares, straggler_text
from tfos_lab.jupyter.display.listing import GROUPINGS, Listing
from tfos_lab.jupyter.display.node_table import Column, node_columns, progress, progress_column
from tfos_lab.jupyter.display.throughput import Throughput


def encode_view(
    view: ClusterView,
    run_dir: str,
    now_s: float,
    throughput: Throughput | None = None,
    listing: Listing | None = None,
) -> messages.View:
    """Return the view as the front end draws it: all text is made here; times are by the kernel's clock."""
    view = summary.with_endings(view)
    listing = listing or Listing()
    listed = listing.of(view)
    shown = replace(view, nodes=listed.nodes)
    columns = node_columns(shown, throughput)
    broken = dict(summary.broken_nodes(shown))
    places = view.places
    return {
        "id": view.cluster_id,
        "name": view.name,
        "state": view.state.value,
        "spark_ui": view.spark_ui,
        "tensorboard": view.tensorboard,
        "started_s": view.started_s,
        "ended_s": view.ended_s,
        "now_s": now_s,
        "run_dir": run_dir,
        "bar": progress_column(shown),
        "columns": [
            {
                "key": column.key,
                "title": column.title,
                "numeric": column.numeric,
                "rank": column.rank,
                "shown": column.shown,
            }
            for column in columns
        ],
        "share_kinds": [{"key": key, "short": kind.short} for key, kind in SHARE_KINDS.items()],
        "rows": [
            _encode_row(row, places[row[0].node], view, columns, broken.get(row[0].node, "")) for row in listed.rows
        ],
        "grouping": listing.grouping if listed.groups else "",
        "groupings": list(GROUPINGS) if listed.groups else [],
        "groups": [
            {
                "key": group.key,
                "count": len(group.nodes),
                "troubled": group.troubled,
                "facts": group.facts,
                "open": group.is_open,
            }
            for group in listed.groups
        ],
        "more": listed.more,
    }


def _encode_row(
    row: tuple[NodeView, str], place: int, view: ClusterView, columns: list[Column], broken: str
) -> messages.Row:
    node, group = row
    return {
        "node": node.node,
        "place": place,
        "state": node.state.value,
        "detail": node.detail,
        "broken": broken,
        "cells": {column.key: column.text(node) for column in columns},
        "progress": progress(node, view.feeds),
        "heartbeat_s": node.last_heartbeat_s,
        "step_time": own_step_time_text(node),
        "straggles": straggler_text(node),
        "shares": [round(share, 3) for share in shares(node).values()],
        "hung": node.hung if summary.hangs(node) else "",
        "group": group,
    }
