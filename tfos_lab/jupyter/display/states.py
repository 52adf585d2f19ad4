"""The states of nodes and clusters, as style sheets and JavaScript take them."""

from __future__ import annotations

import re

from tfos_lab.core.states import NodeState, RunState, Tone

_GROUP = re.compile(r'\[data-state="@([a-z-]+)"\]')


def state_tables() -> dict[str, dict[str, dict[str, str | bool]]]:
    """Return all states, by name, with what front ends have to know of them.

    ``nodes`` and ``clusters`` map states to ``sign``, ``shape``, ``tone`` and ``ended``, and those of nodes also to
    ``present`` (sends heartbeats) and ``up`` (its function runs, or has returned).
    """
    nodes = {state.value: {**_looks(state), "present": state.is_present, "up": state.is_up} for state in NodeState}
    return {"nodes": nodes, "clusters": {state.value: _looks(state) for state in RunState}}


def _looks(state: NodeState | RunState) -> dict[str, str | bool]:
    look = state.look
    return {"sign": look.sign, "shape": look.shape.value, "tone": look.tone.value, "ended": state.ended}


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
