"""Finds nodes by name."""

from __future__ import annotations

from collections.abc import Sequence

from tfos_lab.engine.state.events import NodeView


def rank_of(views: Sequence[NodeView], node: str) -> int:
    """Return the rank of a node.

    Raises
    ------
    KeyError
        If there is no such node.
    """
    names = [view.node for view in views]
    if node not in names:
        raise KeyError(f"no node {node!r} in this cluster; there are {', '.join(names)}")
    return names.index(node)
