"""The node table of the saved output, as HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping

from tfos_lab.engine.state.events import ClusterView, NodeView
from tfos_lab.jupyter.display import summary
from tfos_lab.jupyter.display.activity_text import (
    SHARE_KINDS,
    largest_share,
    own_step_time_text,
    shares,
    straggler_text,
)
from tfos_lab.jupyter.display.card import render_state
from tfos_lab.jupyter.display.marks import mark_attributes
from tfos_lab.jupyter.display.node_table import Column, hidden_facts, node_columns

_HANGS = f'<span class="tfos-hung-mark"><span aria-hidden="true">{summary.HANGS_SIGN}</span> hangs</span>'


def render_table(view: ClusterView, places: Mapping[str, int] | None = None) -> str:
    """Return the nodes of a cluster as a table; what broken and hung ones did stands below their rows.

    ``places`` has the numbers of their colours, where the view has only some of the nodes.
    """
    columns = node_columns(view)
    shown = [column for column in columns if column.shown]
    head = "".join(f'<th scope="col"{_class_of(column)}>{html.escape(column.title)}</th>' for column in shown)
    broken, places = dict(summary.broken_nodes(view)), places or view.places
    body = "".join(_row(node, places[node.node], columns, broken.get(node.node, "")) for node in view.nodes)
    return (
        '<div class="tfos-table-box" role="region" aria-label="Nodes" tabindex="0"><table class="tfos-table">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(node: NodeView, place: int, columns: list[Column], broken: str) -> str:
    shown = [column for column in columns if column.shown]
    facts = html.escape(" · ".join(hidden_facts(node, columns)))
    row = f"<tr {mark_attributes(place)}>{''.join(_cell(node, column, facts) for column in shown)}</tr>"
    if broken:
        row += f'<tr class="tfos-detail"><td colspan="{len(shown)}">{html.escape(broken)}</td></tr>'
    if summary.hangs(node):
        row += f'<tr class="tfos-detail tfos-hung"><td colspan="{len(shown)}">{html.escape(node.hung)}</td></tr>'
    return row


def _cell(node: NodeView, column: Column, facts: str) -> str:
    if column.key == "node":
        mark = '<span class="tfos-mark" aria-hidden="true"></span>'
        return f'<th scope="row"{_class_of(column)} title="{facts}">{mark}{html.escape(node.node)}</th>'
    return f"<td{_class_of(column)}>{_content(node, column)}</td>"


def _content(node: NodeView, column: Column) -> str:
    match column.key:
        case "state":
            return _HANGS if summary.hangs(node) else render_state(node.state)
        case "shares":
            return _shares(node, column.text(node))
        case "step_time":
            slower = straggler_text(node)
            mark = f' <span class="tfos-straggles">{slower}</span>' if slower else ""
            return f"{own_step_time_text(node)}{mark}"
        case _:
            return html.escape(column.text(node))


def _shares(node: NodeView, text: str) -> str:
    if not text:
        return ""
    parts = "".join(
        f'<span data-share="{kind}" style="width:{share:.1%}"></span>' for kind, share in shares(node).items() if share
    )
    kind, share = largest_share(node)
    return (
        f'<span class="tfos-shares" role="img" aria-label="{text}" title="{text}">{parts}</span> '
        f'<span aria-hidden="true">{SHARE_KINDS[kind].short} {share * 100:.0f} %</span>'
    )


def _class_of(column: Column) -> str:
    numeric = " tfos-numeric" if column.numeric else ""
    return f' class="tfos-rank{column.rank}{numeric}"'
