"""Scripts and style sheets of outputs, as ``extensions/dashboard`` builds them into ``static/``.

They are not committed: ``make setup`` builds them in a checkout, and the build of a package does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

from tfos_lab.core.states import NodeState, RunState, Tone

_GROUP = re.compile(r'\[data-state="@([a-z-]+)"\]')


@cache
def read_asset(name: str) -> str:
    """Return the text of a file of ``static/``.

    Raises
    ------
    FileNotFoundError
        If it has not been built.
    """
    path = resources.files("tfos_lab.notebook.display") / "static" / name
    try:
        return path.read_text("utf-8").strip()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} has not been built. In a checkout run `make setup`; elsewhere install tfos_lab again."
        ) from None


@cache
def read_style_sheet(name: str) -> str:
    """Return a style sheet of ``static/``, with its groups of states filled in."""
    return fill_in_states(read_asset(name))


def inline_script(name: str, options: Mapping[str, object]) -> str:
    """Return a ``<script>`` that stands in an output and gets these options."""
    # Nothing in the options can end the script's element.
    encoded = json.dumps(options).replace("<", "\\u003c")
    return f"<script>((TFOS_OPTIONS) => {{{read_asset(name)}}})({encoded})</script>"


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
