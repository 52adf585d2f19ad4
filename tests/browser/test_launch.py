"""The beginning of a cell, in a real JupyterLab: it is shown before there are nodes, and ■ ends it there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.jupyter_rig import JupyterRig, Notebook

pytestmark = pytest.mark.browser

CELLS = {
    "load": """%load_ext tfos_lab
import threading
from tests.support.quick import QUICK_ENV
from tfos_lab.engine.launchers.local import LocalLauncher

fork = LocalLauncher._fork_agent

def fork_three(launcher, spec, *rest):
    while spec.rank >= 3 and not launcher._cancelled:
        threading.Event().wait(0.01)
    fork(launcher, spec, *rest)

LocalLauncher._fork_agent = fork_three""",
    "launch": "%%tfos cluster_size=8 local=processes env=QUICK_ENV\n1",
    "refused": "%%tfos cluster_size=4000 local=processes\n1",
}


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with JupyterRig(tmp_path_factory.mktemp("jupyter")) as rig:
        opened = rig.open_notebook("launch.ipynb", list(CELLS.values()))
        opened.run_cell(0)
        yield opened


def test_a_launch_is_shown_from_its_start_and_an_interrupt_ends_it_without_a_traceback(notebook: Notebook) -> None:
    notebook.start_cell(1)
    output = notebook.output(1)
    expect(output.get_by_text("3/8 nodes reserved")).to_be_visible()
    notebook.screenshot("launching")
    notebook.interrupt()
    notebook.wait_for_end(1)
    expect(output).to_contain_text("KeyboardInterrupt: interrupted: the nodes of 'cluster' are stopped")
    expect(output.get_by_text("waiting")).to_have_count(0)
    assert "Traceback" not in output.inner_text()
    notebook.screenshot("interrupted")


def test_more_nodes_than_fit_are_one_sentence_without_a_dashboard(notebook: Notebook) -> None:
    notebook.run_cell(2)
    text = notebook.output(2).inner_text()
    assert text.startswith("NotEnoughRoom: cluster_size=4000, but this machine has room for ")
    assert "Ask for cluster_size=" in text
    notebook.screenshot("refused")
