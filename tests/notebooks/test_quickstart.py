"""The first tutorial: it learns to read digits, and shows only what it is meant to show."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest

from tfos_lab.data import mnist

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_mnist_quickstart.ipynb"

pytestmark = [pytest.mark.notebook, pytest.mark.timeout(600)]


def outputs(notebook, name):
    """Return the outputs of the cells of a name (their id)."""
    [cell] = [cell for cell in notebook.cells if cell.id == name]
    return cell.outputs


def test_notebooks_are_committed_without_outputs():
    for path in NOTEBOOK.parent.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            assert not cell.get("outputs"), f"{path.name}: {cell.source[:40]}"
            assert cell.get("execution_count") is None, f"{path.name}: {cell.source[:40]}"


@pytest.mark.tensorflow
def test_four_nodes_learn_to_read_and_nothing_else_is_shown(execute):
    done = execute(NOTEBOOK)
    training, reading = done.state["clusters"]
    assert len(training["nodes"]) == len(reading["nodes"]) == 4
    assert sum(training["rows_fed"].values()) == min(8_000, len(mnist().x_train))
    assert set(training["rows_fed"]) == set(training["nodes"])
    is_mnist = "scikit-learn" not in done.state["data"]
    assert done.state["accuracy"] >= (0.95 if is_mnist else 0.85)
    # The accuracy that the nodes report is real: digits that they have not seen are read as well.
    assert done.state["trained"][-1] == pytest.approx(done.state["accuracy"], abs=0.04 if is_mnist else 0.06)
    assert training["model"].endswith("/output/model.keras")
    assert not reading["model"]
    assert {"launched", "running", "fed", "done"} <= set(training["timings"])

    assert outputs(done.notebook, "session") == []
    assert [output.output_type for output in outputs(done.notebook, "look")] == ["display_data"]
    assert [output.output_type for output in outputs(done.notebook, "curve-plot")] == ["display_data"]
    assert [output.output_type for output in outputs(done.notebook, "predictions")] == ["display_data"] * 2
    shown = [output for cell in done.notebook.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in shown if output.get("name") == "stderr"]
    [status] = [output for output in shown if output.output_type == "execute_result"]
    assert "cluster" in status.data["text/plain"]
