"""The runs in ``tests/golden`` are drawn as they were; ``make golden`` writes them anew."""

from __future__ import annotations

import os

import pytest

from tests.support.golden_runs import GOLDEN, RUNS, html_of


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_drawn_as_it_was(name: str) -> None:
    # A tag a line.
    html, file = html_of(name).replace("><", ">\n<") + "\n", GOLDEN / f"{name}.html"
    if os.environ.get("TFOS_TEST_GOLDEN") == "write":
        file.write_text(html)
    assert html.splitlines() == file.read_text().splitlines()
