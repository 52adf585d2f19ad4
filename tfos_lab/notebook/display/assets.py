"""Scripts and style sheets of outputs, as ``extensions/dashboard`` builds them into ``static/``.

They are not committed: ``make setup`` builds them in a checkout, and the build of a package does.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from functools import cache
from importlib import resources

_numbers = itertools.count(1)


@cache
def read_asset(name: str) -> str:
    """Return the text of a file of ``static/``; a FileNotFoundError if it has not been built."""
    path = resources.files("tfos_lab.notebook.display") / "static" / name
    try:
        return path.read_text("utf-8").strip()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path} has not been built. In a checkout run `make setup`; elsewhere install tfos_lab again."
        ) from None


def unique_id(kind: str) -> str:
    """Return the id of an element in an output, for its script to find."""
    return f"tfos-{kind}-{os.getpid()}-{next(_numbers)}"


def inline_script(name: str, options: Mapping[str, object]) -> str:
    """Return a ``<script>`` that stands in an output and gets these options."""
    # Nothing in the options can end the script's element.
    encoded = json.dumps(options).replace("<", "\\u003c")
    return f"<script>((TFOS_OPTIONS) => {{{read_asset(name)}}})({encoded})</script>"
