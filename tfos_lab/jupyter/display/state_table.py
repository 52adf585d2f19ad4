"""The states of clusters and nodes as the page gets them: how each is drawn, and what follows from it.

The one place where the front end learns of a state; ``extensions/dashboard/src/states.ts`` reads the table.
"""

from __future__ import annotations

from tfos_lab.jupyter.display.messages import ClusterStateTraits, NodeStateTraits, Shape, States

_CLUSTER: dict[str, Shape] = {
    "launching": "busy",
    "reserving": "busy",
    "starting": "busy",
    "running": "running",
    "stopping": "busy",
    "restarting": "busy",
    "done": "done",
    "failed": "broken",
    "stopped": "stopped",
    # Only the page knows this one: the kernel is gone.
    "lost": "broken",
}
_NODE: dict[str, Shape] = {
    "waiting": "waiting",
    "reserved": "half",
    "importing": "half",
    "starting": "half",
    "running": "running",
    "serving": "running",
    "stopping": "busy",
    "done": "done",
    "failed": "broken",
    "lost": "broken",
    "stopped": "stopped",
}
_ENDED = frozenset({"done", "failed", "stopped", "lost"})
_HEARTBEATS = frozenset({"reserved", "importing", "starting", "running", "serving"})


def state_table() -> States:
    """Return all states by name."""
    return {
        "cluster": {name: ClusterStateTraits(shape=shape, ended=name in _ENDED) for name, shape in _CLUSTER.items()},
        "node": {
            name: NodeStateTraits(shape=shape, ended=name in _ENDED, heartbeats=name in _HEARTBEATS)
            for name, shape in _NODE.items()
        },
    }


def ended_states() -> list[str]:
    """Return the names of the states that clusters and nodes stay in."""
    return sorted(_ENDED)
