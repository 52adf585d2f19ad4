"""Scripts and style sheets of outputs, as ``extensions/dashboard`` builds them into ``static/``.

They are not committed: ``make setup`` builds them in a checkout, and the build of a package does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources

from tfos_lab.jupyter.display.states import fill_in_states


@cache
def read_asset(name: str) -> str:
    """Return the text of a file of ``static/``.

    Raises
    ------
    FileNotFoundError
        If it has not been built.
    """
    path = resources.files("tfos_lab.jupyter.display") / "static" / name
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
