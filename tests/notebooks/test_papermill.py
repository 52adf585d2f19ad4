"""papermill and ``%%tfos``: parameters reach the nodes, and an error on a node fails the run."""

import pytest
from traitlets.config import Config

from tests.notebooks.conftest import ROOT
from tests.support.lazy import Lazy
from tests.support.notebook_kernel import kernel_sockets
from tests.support.quick import QUICK_ENV

nbformat = Lazy("nbformat")
papermill = Lazy("papermill")

CELLS = [
    "%load_ext tfos_lab",
    "factor = 1",
    f"""%%tfos cluster_size=2 local=processes name=cluster env={QUICK_ENV}
print("multiplies by", factor)
factor * (1 + ctx.worker_num)""",
    "dict(cluster.wait())",
    f"""%%tfos cluster_size=2 local=processes env={QUICK_ENV}
raise ValueError(f"{{factor}} is no good factor")""",
    "'not run'",
]

pytestmark = pytest.mark.whole_notebook


def printed(cell):
    return "".join(output.text for output in cell.outputs if output.output_type == "stream")


def test_a_parameter_reaches_the_nodes_and_an_error_on_one_ends_the_run_and_is_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    cells[1].metadata["tags"] = ["parameters"]
    given, made = tmp_path / "given.ipynb", tmp_path / "made.ipynb"
    metadata = {"language_info": {"name": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), given)
    with pytest.raises(papermill.PapermillExecutionError) as raised:
        papermill.execute_notebook(
            given, made, {"factor": 3}, kernel_name="python3", cwd=tmp_path, progress_bar=False,
            config=Config(KernelManager=kernel_sockets(tmp_path)),
        )  # fmt: skip
    assert (raised.value.ename, "3 is no good factor" in raised.value.evalue) == ("NodeFailed", True)

    # papermill puts cells of its own among them.
    notebook = nbformat.read(made, as_version=4)
    assert "widgets" not in notebook.metadata
    by_source = {cell.source: cell for cell in notebook.cells}
    trained, results, failed, after = (by_source[source] for source in CELLS[2:])
    assert printed(trained).count("multiplies by 3") == 2
    [bundle] = [output for output in trained.outputs if output.output_type == "display_data"]
    assert set(bundle.data) == {"text/html", "text/plain"}
    assert results.outputs[-1].data["text/plain"] == "{'chief:0': 3, 'worker:0': 6}"
    assert "[cluster] failed, 0/2 nodes done: " in printed(failed)
    assert "3 is no good factor" in printed(failed)
    assert not after.outputs
