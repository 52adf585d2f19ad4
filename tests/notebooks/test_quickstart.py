"""The first tutorial: it learns to read digits, and shows only what it is meant to show."""

import re
from pathlib import Path

import pytest

from tests.support.lazy import Lazy
from tests.support.notebook_kernel import ALREADY_LOADED
from tfos_lab.data import mnist

nbformat = Lazy("nbformat")

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_mnist_quickstart.ipynb"

pytestmark = [pytest.mark.whole_notebook, pytest.mark.timeout(600)]


# What tests look at, of the notebook's names.
STATE = """dict(
    fed=cluster.view().feeds[-1].rows, nodes=[node.name for node in cluster.nodes], data=repr(digits),
    accuracy=float(accuracy), trained=list(history["accuracy"]), model=str(cluster.model_path),
    readers=len(readers.nodes), report=__import__("tfos_lab.demo", fromlist=["report"]).report(globals()),
)"""


def test_notebooks_are_committed_without_outputs():
    for path in NOTEBOOK.parent.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            assert not cell.get("outputs"), f"{path.name}: {cell.source[:40]}"
            assert cell.get("execution_count") is None, f"{path.name}: {cell.source[:40]}"


@pytest.mark.parametrize("kernel", ["local"], indirect=True)
@pytest.mark.tensorflow
def test_four_nodes_learn_to_read_and_nothing_else_is_shown(kernel):
    done = kernel.execute(NOTEBOOK)
    state = done.value(STATE)
    assert len(state["nodes"]) == state["readers"] == 4
    assert sum(state["fed"].values()) == min(8_000, len(mnist().x_train))
    assert set(state["fed"]) == set(state["nodes"])
    is_mnist = "scikit-learn" not in state["data"]
    assert state["accuracy"] >= (0.95 if is_mnist else 0.85)
    # The accuracy that the nodes report is real: digits that they have not seen are read as well.
    assert state["trained"][-1] == pytest.approx(state["accuracy"], abs=0.04 if is_mnist else 0.06)
    assert state["model"].endswith("/output/model.keras")
    assert re.fullmatch(
        r"Trained on 4 nodes of this machine\.\n"
        r"  nodes         chief:0, worker:0, worker:1, worker:2\n"
        r"  data          [\d,]+ training and [\d,]+ test images of 28 × 28: .+\n"
        r"  rows fed      [\d,]+ \(chief:0 [\d,]+, .+\)\n"
        r"  accuracy      [\d.]+% of [\d,]+ digits that it had not seen\n"
        r"  model         .+/output/model\.keras\n"
        r"  seconds       launch [\d.]+ · reserve [\d.]+ · start [\d.]+ · feed [\d.]+ · train [\d.]+\n"
        r"  next cluster  its first line ran [\d.]+ s after the call",
        state["report"],
    )

    assert done.printed("session") in ("", ALREADY_LOADED)
    assert done.shown("look") == ["display_data"]
    assert done.shown("curve-plot") == ["display_data"]
    assert done.shown("predictions") == ["display_data"] * 2
    shown = [output for cell in done.notebook.cells for output in cell.get("outputs", [])]
    assert not [output.text for output in shown if output.get("name") == "stderr"]
    [status] = [output for output in shown if output.output_type == "execute_result"]
    assert "cluster" in status.data["text/plain"]
