"""Tab and Shift-Tab in the body of a ``%%tfos`` cell, as a front end asks a real kernel."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from tests.support.quick import QUICK_ENV

REPOSITORY = Path(__file__).resolve().parents[3]
TIMEOUT_S = 60.0


class FrontEnd:
    """Asks what a front end asks, with the cursor at ``|``, or else at the end."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, cell: str) -> None:
        self._client.execute_interactive(cell, timeout=TIMEOUT_S, output_hook=lambda _message: None)

    def tab(self, text: str) -> list[str]:
        """Return the words that can stand at the cursor."""
        before, _, after = text.partition("|")
        reply = self._client.complete(before + after, len(before), reply=True, timeout=TIMEOUT_S)["content"]
        assert reply["cursor_end"] == len(before)
        return list(reply["matches"])

    def shift_tab(self, text: str) -> str:
        """Return the help, or "" if there is none."""
        before, _, after = text.partition("|")
        reply = self._client.inspect(before + after, len(before), reply=True, timeout=TIMEOUT_S)["content"]
        return str(reply["data"].get("text/plain", ""))


@pytest.fixture(scope="module")
def front_end(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrontEnd]:
    folder = tmp_path_factory.mktemp("kernel")
    python_path = os.pathsep.join([str(REPOSITORY), *QUICK_ENV.values()])
    paths = {"IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder / "runtime"), "NO_COLOR": "1"}
    manager, client = start_new_kernel(cwd=str(folder), env={**os.environ, **paths, "PYTHONPATH": python_path})
    try:
        front_end = FrontEnd(client)
        front_end.run("%colors nocolor\n%load_ext tfos_lab\nrate, table = 0.1, {'depth': 3}\n")
        yield front_end
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_tab_offers_what_the_context_has(front_end: FrontEnd) -> None:
    offered = front_end.tab("%%tfos cluster_size=2\nx = 1\nmodel.fit(ctx.data|)\n")
    assert offered == ["data_feed", "data_files", "dataset"]
    assert {"job_name", "task_index", "gpus", "report"} <= set(front_end.tab("%%tfos\nif ctx."))
    assert not [name for name in front_end.tab("%%tfos\nctx.") if name.startswith("_")]


def test_tab_offers_what_the_handle_has(front_end: FrontEnd) -> None:
    assert front_end.tab("%%tfos\ncluster.wai") == ["wait", "wait_until_running"]


def test_tab_offers_what_args_have(front_end: FrontEnd) -> None:
    assert front_end.tab("%%tfos args={'lr': rate, 'layers': 2}\nargs['l|") == ["lr", "layers"]
    assert "depth" in front_end.tab('%%tfos args=table\nargs["')
    assert "items" in front_end.tab("%%tfos args=table\nargs.it")


def test_a_name_that_the_cell_makes_is_the_cells_own(front_end: FrontEnd) -> None:
    assert "dataset" not in front_end.tab("%%tfos\nctx = 'text'\nctx.data")


def test_other_cells_have_no_context(front_end: FrontEnd) -> None:
    assert "dataset" not in front_end.tab("ctx.data")
    assert "NodeContext" not in front_end.shift_tab("ctx|.dataset")


def test_shift_tab_shows_signature_and_docstring(front_end: FrontEnd) -> None:
    shown = front_end.shift_tab("%%tfos\nrows = ctx.dataset(|64)\n")
    assert "ctx.dataset(\n    batch_size: 'int'" in shown
    assert "self" not in shown.partition("Docstring")[0]
    assert "Rows per batch on this node" in shown
    assert "Wait until all training nodes have returned" in front_end.shift_tab("%%tfos\ncluster.wait|()")


def test_shift_tab_shows_attributes_and_properties(front_end: FrontEnd) -> None:
    task_index = front_end.shift_tab("%%tfos\nctx.task_index|")
    assert task_index == "task_index : int\n\nNumber of this node within its job, from 0."
    gpus = front_end.shift_tab("%%tfos\nctx.gpus|")
    assert gpus == "gpus : list[str]\n\nIndices of this node's GPUs."
    assert front_end.shift_tab("%%tfos\nctx|").startswith("ctx : NodeContext\n\nOne node's view of the cluster")
    assert "{'depth': 3}" in front_end.shift_tab("%%tfos args=table\nargs|")
