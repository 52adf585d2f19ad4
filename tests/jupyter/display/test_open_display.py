"""The display that fits: live with a front end, lines of text without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.support.fake_cluster import FakeCluster
from tfos_lab.jupyter.display import open_display
from tfos_lab.jupyter.display.dashboard import Dashboard
from tfos_lab.jupyter.display.text import TextDisplay

REPOSITORY = Path(__file__).resolve().parents[3]
WATCHING = """
from tests.support.fake_cluster import FakeCluster
from tfos_lab.jupyter.display import open_display
cluster = FakeCluster(scenario="fail", steps=10, speed=20)
with open_display(cluster) as display:
    cluster.set_state("reserving")
    display.poll()
    cluster.start()
    while not cluster.wait(0.02):
        display.poll()
"""


def test_a_script_gets_lines_of_text() -> None:
    with open_display(FakeCluster()) as opened:
        assert isinstance(opened, TextDisplay)


def test_the_caller_may_choose(capsys: pytest.CaptureFixture[str]) -> None:
    with open_display(FakeCluster(), interactive=True) as opened:
        assert isinstance(opened, Dashboard)
    with open_display(FakeCluster(), interactive=False) as opened:
        assert isinstance(opened, TextDisplay)
    assert "mnist: launching" in capsys.readouterr().out


def test_modules_for_the_first_cell_are_imported_in_the_background() -> None:
    code = """
import sys, threading
from tfos_lab.jupyter import display
needed = {"tfos_lab.engine.start", "tfos_lab.jupyter.display.dashboard"}
display.load_in_background()
assert not needed & set(sys.modules), "nobody shows anything in a script"
display.current_kernel = object
display.load_in_background()
(thread,) = (thread for thread in threading.enumerate() if thread.name == "tfos-load")
thread.join()
assert needed <= set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.notebook
def test_nbclient_gets_lines_and_the_static_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WATCHING)])
    nbclient.NotebookClient(
        notebook, timeout=60, iopub_timeout=60, kernel_name="python3", resources={"metadata": {"path": tmp_path}}
    ).execute()
    outputs = notebook.cells[0].outputs
    text = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "[mnist] reserving, " in text
    assert "[worker:1] ValueError: label 11 is outside the 10 classes" in text
    assert set(outputs[-1].data) == {"text/html", "text/plain"}
    assert "widgets" not in notebook.metadata
    assert len([output for output in outputs if output.output_type == "display_data"]) == 1
