"""Writes the tables of docs/what-trains-exactly.md from the models: ``python -m tests.ordinary_models.write``.

The page's other words are written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.ordinary_models import models  # noqa: F401 - its entries
from tests.ordinary_models.declare import KERAS, ORDINARY, TF_KERAS, Ordinary

PAGE = Path(__file__).parents[2] / "docs" / "what-trains-exactly.md"
NOT_EXACT = "What is not exact"


def page() -> str:
    """Return the page with the tables of today."""
    text = PAGE.read_text()
    for heading, table in tables().items():
        before, found, rest = text.partition(f"## {heading}\n\n")
        text = before + found + table + "\n" + re.sub(r"\A(\|.*\n)+", "", rest).lstrip("\n")
    return text


def tables() -> dict[str, str]:
    """Return the tables by the headings above them."""
    found = {}
    for kind in dict.fromkeys(ordinary.kind for ordinary in ORDINARY.values()):
        rows = [one for one in ORDINARY.values() if one.kind == kind]
        cells = [(one.words, cell(one, KERAS), cell(one, TF_KERAS)) for one in rows]
        found[kind] = table(("model", "Keras 3", "tf_keras"), cells)
    reasons = [
        (one.words, ", ".join({KERAS: "Keras 3", TF_KERAS: "tf_keras"}[keras] for keras in one.not_exact), why)
        for one in ORDINARY.values()
        for why in dict.fromkeys(one.not_exact.values())
    ]
    return {**found, NOT_EXACT: table(("what", "with", "why, and what to write"), reasons)}


def cell(ordinary: Ordinary, keras: str) -> str:
    """Return how exactly a model trains with a Keras."""
    if keras not in ordinary.keras:
        return "–"
    if keras in ordinary.not_exact:
        return f"[no](#{NOT_EXACT.lower().replace(' ', '-')})"
    if ordinary.by_chance:
        return "alike"
    return "exact" if ordinary.tolerance <= 1e-5 else f"to {ordinary.tolerance:g}"


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(heads), ["---"] * len(list(heads)), *map(list, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines).replace("| --- ", "|---").replace("--- |", "---|")


if __name__ == "__main__":
    PAGE.write_text(page())
