"""papermill and ``%%tfos``: parameters reach the nodes, and an error on a node fails the run."""

from __future__ import annotations

import pytest

from tests.notebooks.conftest import ROOT
from tests.support.lazy import Lazy
from tests.support.quick import QUICK_ENV

nbformat = Lazy("nbformat")
papermill = Lazy("papermill")

CELLS = [
    "%load_ext tfos_lab",
    "factor = 1",
    f"""%%tfos cluster_size=2 local=processes name=cluster env={QUICK_ENV}
print("multiplies by", factor)
if factor < 0:
    raise ValueError("a negative factor")
factor * (1 + ctx.worker_num)""",
    "dict(cluster.wait())",
]

pytestmark = pytest.mark.whole_notebook


@pytest.fixture
def mill(tmp_path, monkeypatch):
    """A function that runs the notebook with a factor, and returns the notebook that papermill wrote and its error."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    cells[1].metadata["tags"] = ["parameters"]
    given, made = tmp_path / "given.ipynb", tmp_path / "made.ipynb"
    metadata = {"language_info": {"name": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), given)

    def run(factor):
        error = None
        try:
            papermill.execute_notebook(
                given, made, {"factor": factor}, kernel_name="python3", cwd=tmp_path, progress_bar=False
            )
        except papermill.PapermillExecutionError as raised:
            error = raised
        return nbformat.read(made, as_version=4), error

    return run


def cell_of(notebook, start):
    return next(cell for cell in notebook.cells if cell.source.startswith(start))


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_a_parameter_reaches_the_nodes_and_the_notebook_shows_the_results(mill):
    notebook, error = mill(3)
    assert error is None
    cell = cell_of(notebook, "%%tfos")
    assert printed(cell).count("multiplies by 3") == 2
    [bundle] = [output for output in cell.outputs if output.output_type == "display_data"]
    assert set(bundle.data) == {"text/html", "text/plain"}
    assert cell_of(notebook, "dict(").outputs[-1].data["text/plain"] == "{'chief:0': 3, 'worker:0': 6}"


def test_an_error_on_a_node_ends_the_run_and_is_shown_in_the_notebook(mill):
    notebook, error = mill(-1)
    assert (error.ename, "a negative factor" in error.evalue) == ("NodeFailed", True)
    assert "a negative factor" in printed(cell_of(notebook, "%%tfos"))
    assert not cell_of(notebook, "dict(").outputs
