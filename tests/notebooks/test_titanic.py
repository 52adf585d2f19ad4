"""The tutorial on the Titanic's passengers: its model does better than the rule, with made-up passengers too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "06_titanic.ipynb"

pytestmark = [pytest.mark.notebook, pytest.mark.tensorflow, pytest.mark.timeout(600)]


def outputs(notebook, name):
    """Return the outputs of the cell of a name (its id)."""
    [cell] = [cell for cell in notebook.cells if cell.id == name]
    return cell.outputs


def test_two_nodes_learn_who_survives_from_files(execute, tmp_path):
    done = execute(NOTEBOOK, TFOS_LAB_DATA=str(tmp_path), XDG_CACHE_HOME=str(tmp_path))
    assert "made-up passengers" in outputs(done.notebook, "load")[0].text
    [cluster] = done.state["clusters"]
    assert cluster["nodes"] == ["chief:0", "worker:0"]
    [told] = outputs(done.notebook, "score")
    model, rule = (float(number) for number in re.findall(r"(\d+\.\d)%", told.text))
    assert model == pytest.approx(100 * done.state["accuracy"], abs=0.1)
    assert model > max(75.0, rule)
    assert outputs(done.notebook, "session") == []
    for picture in ("look", "curve", "predictions"):
        assert [output.output_type for output in outputs(done.notebook, picture)] == ["display_data"]
    assert outputs(done.notebook, "files")[0].text.count("part-") == 5
    assert "survives" in outputs(done.notebook, "write")[0].data["text/html"]
    shown = [output for cell in done.notebook.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in shown if output.get("name") == "stderr"]
