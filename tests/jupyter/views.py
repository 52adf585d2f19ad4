"""Views of clusters in any state, for tests of what is shown of them."""

from __future__ import annotations

import dataclasses

from tests.support.fake_cluster import FakeCluster
from tfos_lab.engine.state.events import ClusterView


def view_of(state: str, *node_states: str, reason: str = "", detail: str = "") -> ClusterView:
    """Return the view of a cluster whose nodes are in the given states."""
    view = FakeCluster(nodes=len(node_states)).view()
    nodes = tuple(
        dataclasses.replace(node, state=node_state, detail=detail)
        for node, node_state in zip(view.nodes, node_states, strict=True)
    )
    return dataclasses.replace(view, state=state, nodes=nodes, reason=reason)
