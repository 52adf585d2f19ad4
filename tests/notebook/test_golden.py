"""The runs in ``tests/golden`` are drawn as they were; ``make golden`` writes them anew."""

from __future__ import annotations

import os

import pytest

from tests.support.golden_runs import GOLDEN, RUNS, bundle_of


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_drawn_as_it_was(name: str) -> None:
    bundle = bundle_of(name)
    # A widget would be missing in a notebook that is opened again.
    assert set(bundle) == ({"text/html"} if name == "panel" else {"text/html", "text/plain"})
    # A tag a line.
    texts = {"html": bundle["text/html"].replace("><", ">\n<"), "txt": bundle.get("text/plain", "")}
    for kind, text in texts.items():
        file = GOLDEN / f"{name}.{kind}"
        if os.environ.get("TFOS_TEST_GOLDEN") == "write" and text:
            file.write_text(text + "\n")
        assert not text or text.splitlines() == file.read_text().splitlines()
