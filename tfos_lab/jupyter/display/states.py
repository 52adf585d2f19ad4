"""The states of nodes and clusters, as style sheets and JavaScript take them.

``make format`` writes the tables as TypeScript, for JupyterLab's extension.
"""

from __future__ import annotations

import re
from typing import TypedDict

from tfos_lab.core.states import NodeState, RunState, Tone

_GROUP = re.compile(r'\[data-state="@([a-z-]+)"\]')


class ClusterStateTraits(TypedDict):
    """How a state of a cluster is drawn, and whether it is the last one."""

    sign: str
    tone: Tone
    ended: bool


class NodeStateTraits(ClusterStateTraits):
    """The same of a node; whether it sends heartbeats, and whether its function runs or has returned."""

    present: bool
    up: bool


class StateTables(TypedDict):
    """All states, by name."""

    nodes: dict[str, NodeStateTraits]
    clusters: dict[str, ClusterStateTraits]


def state_tables() -> StateTables:
    """Return all states, with what front ends have to know of them."""
    nodes = {
        state.value: NodeStateTraits(**_traits(state), present=state.is_present, up=state.is_up) for state in NodeState
    }
    return {"nodes": nodes, "clusters": {state.value: _traits(state) for state in RunState}}


def _traits(state: NodeState | RunState) -> ClusterStateTraits:
    look = state.look
    return {"sign": look.sign, "tone": look.tone, "ended": state.ended}


def fill_in_states(css: str) -> str:
    """Replace groups of states in a style sheet by their states.

    ``[data-state="@bad"]`` stands for all states of that tone, and ``[data-state="@stop-requested"]`` for those of a
    cluster that the user has stopped.
    """
    return _GROUP.sub(lambda found: _selector(_members(found[1])), css)


def _members(group: str) -> list[str]:
    if group == "stop-requested":
        return [state.value for state in RunState if state.stop_requested]
    states: list[NodeState | RunState] = [*NodeState, *RunState]
    return list(dict.fromkeys(state.value for state in states if state.look.tone is Tone(group)))


def _selector(states: list[str]) -> str:
    selectors = (f'[data-state="{state}"]' for state in states)
    return f":is({', '.join(selectors)})"
