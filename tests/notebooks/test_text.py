"""The tutorial of text: networks are compared, the best one is trained on a cluster, and it reads what is new to it."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "13_text_classification.ipynb"

pytestmark = [pytest.mark.notebook, pytest.mark.tensorflow, pytest.mark.timeout(600)]


def outputs(notebook, name):
    """Return the outputs of the cells of a name (their id)."""
    [cell] = [cell for cell in notebook.cells if cell.id == name]
    return cell.outputs


def test_networks_learn_side_by_side_and_together_and_read_what_is_new(execute):
    done = execute(NOTEBOOK)
    [together] = done.state["clusters"]
    assert together["nodes"] == ["worker:0", "worker:1"]
    assert all(together["rows_fed"].values())
    assert together["rows_read"] == {node: 6 * rows for node, rows in together["rows_fed"].items()}
    assert done.state["accuracy"] >= 0.85

    compared = outputs(done.notebook, "compare")
    assert {output.output_type for output in compared} <= {"display_data", "stream"}
    [table] = outputs(done.notebook, "results-table")
    text = table.data["text/plain"]
    assert text.count("done") == 3
    assert {"filters", "words_at_once", "accuracy", "loss"} <= set(text.split())
    shown = [output for cell in done.notebook.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in shown if output.get("name") == "stderr"]
