"""``%tfos start`` and ``%%tfos on=...`` in a real kernel, with real nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import start_new_kernel

from tests.support.quick import QUICK_ENV

REPOSITORY = Path(__file__).resolve().parents[3]
TIMEOUT_S = 120.0


class Notebook:
    """Runs cells; keeps what stands below the last one."""

    def __init__(self, client: Any, manager: Any, folder: Path) -> None:
        self._client, self._manager = client, manager
        self.folder = folder
        self.shown: dict[str, dict[str, str]] = {}

    def run(self, cell: str, interrupt_at: str = "") -> str:
        """Run a cell; return its text: what was printed, shown and returned, and the error.

        Press ■ once, as soon as the text ``interrupt_at`` is shown.
        """
        self.shown = {}
        texts: list[str] = []

        def show(message: dict) -> None:
            nonlocal interrupt_at
            content = message["content"]
            display_id = content.get("transient", {}).get("display_id")
            if display_id:
                self.shown[display_id] = content["data"]
                if interrupt_at and interrupt_at in content["data"]["text/plain"]:
                    interrupt_at = ""
                    self._manager.interrupt_kernel()
            elif "data" in content:
                texts.append(content["data"]["text/plain"])
            texts.append(content.get("text", "") + "\n".join(content.get("traceback", ())))

        self._client.execute_interactive(cell, timeout=TIMEOUT_S, allow_stdin=False, output_hook=show)
        shown = [data["text/plain"] + "\n" for data in self.shown.values()]
        return re.sub(r"\x1b\[[0-9;]*m", "", "".join([*shown, *texts]))

    def tab(self, text: str) -> list[str]:
        """Return what is offered at the end of a text."""
        reply = self._client.complete(text, len(text), reply=True, timeout=TIMEOUT_S)["content"]
        return list(reply["matches"])


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    folder = tmp_path_factory.mktemp("kernel")
    python_path = os.pathsep.join([str(REPOSITORY), *QUICK_ENV.values()])
    paths = {"IPYTHONDIR": str(folder), "JUPYTER_RUNTIME_DIR": str(folder / "runtime"), "NO_COLOR": "1"}
    runs = {"TFOS_LAB_RUNS": str(folder / "runs"), "PYTHONPATH": python_path}
    manager, client = start_new_kernel(cwd=str(folder), env={**os.environ, **paths, **runs})
    try:
        notebook = Notebook(client, manager, folder)
        assert notebook.run("%colors nocolor\n%load_ext tfos_lab") == ""
        started = notebook.run("scale = 5\n%tfos start cluster_size=3 local=processes args={'lr': 0.5, 'n': scale}")
        assert "chief:0, worker:0, worker:1 wait for cells: %%tfos on=cluster; %tfos stop cluster ends them" in started
        yield notebook
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_names_stay_from_cell_to_cell(notebook: Notebook) -> None:
    assert notebook.run("%%tfos on=cluster\nimport os\nnumber = ctx.worker_num\ndef double(x):\n    return 2 * x") == ""
    assert notebook.run("%%tfos on=cluster\ndouble(number)") == "chief:0: 0\nworker:0: 2\nworker:1: 4"
    task = notebook.run("%%tfos on=cluster nodes=worker:1\nargs['n'], '\"index\":1' in os.environ['TF_CONFIG']")
    assert task == "worker:1: (5, True)"


def test_what_a_cell_writes_stands_below_it_grouped_where_nodes_agree(notebook: Notebook) -> None:
    assert notebook.run("%%tfos on=cluster\nprint('hello')") == "[all 3 nodes]\nhello\n"
    text = notebook.run("%%tfos on=cluster\nprint('leads' if ctx.is_chief else '10 %\\r20 %')")
    assert text == "[chief:0]\nleads\n[worker:0, worker:1]\n20 %\n"
    assert notebook.run("%%tfos on=cluster nodes=worker:0\nprint('<b>')") == "<b>\n"
    assert "&lt;b&gt;" in next(iter(notebook.shown.values()))["text/html"]
    assert notebook.run("%%tfos on=cluster\n1 + 1;") == ""
    assert notebook.run("%%tfos on=cluster\n'same'") == "all 3 nodes: 'same'"


def test_names_of_the_notebook_arrive_as_they_are_now_unless_the_nodes_have_their_own(notebook: Notebook) -> None:
    notebook.run("rate = 1\ntotal = 100\ndef twice(x):\n    return x * rate * 2")
    assert notebook.run("%%tfos on=cluster nodes=chief:0\ntotal = total + twice(1)\ntotal") == "chief:0: 102"
    notebook.run("rate = 2\ntotal = 'a lock' and __import__('threading').Lock()")
    assert notebook.run("%%tfos on=cluster nodes=chief:0\ntotal += twice(1)\ntotal") == "chief:0: 106"
    assert "'total' (lock) cannot be sent to the nodes" in notebook.run("%%tfos on=cluster nodes=worker:0\ntotal")


def test_an_exception_shows_the_cells_lines_and_leaves_the_nodes_alive(notebook: Notebook) -> None:
    notebook.run("%%tfos on=cluster\nkept = 'kept'")
    text = notebook.run("%%tfos on=cluster\nprint('before')\ndef fail():\n    raise ValueError('too small')\nfail()")
    assert "[all 3 nodes]\nbefore" in text
    assert "CellFailed: chief:0, worker:0 and worker:1 failed" in text
    assert re.search(r"Cell In\[\d+\], line 5\n    fail\(\)\n .*Cell In\[\d+\], line 4, in fail\n    raise", text)
    assert "ValueError: too small" in text
    other = notebook.run("%%tfos on=cluster\nif not ctx.is_chief:\n    {}[ctx.node]")
    assert "worker:1: KeyError: 'worker:1'" in other
    assert notebook.run("%%tfos on=cluster\nkept") == "all 3 nodes: 'kept'"


def test_an_interrupt_reaches_the_cell_on_the_nodes_and_not_the_cluster(notebook: Notebook) -> None:
    text = notebook.run(
        "%%tfos on=cluster\nimport time\ntry:\n    print('sleeps')\n    time.sleep(1000)\nfinally:\n    left = True",
        interrupt_at="[all 3 nodes]\nsleeps",
    )
    assert "[all 3 nodes]\nsleeps" in text
    assert "KeyboardInterrupt: interrupted: the nodes of 'cluster' keep their names, and wait for the next cell" in text
    assert notebook.run("%%tfos on=cluster\nleft") == "all 3 nodes: True"


def test_a_module_beside_the_notebook_is_seen_as_it_is_on_disk(notebook: Notebook) -> None:
    file = notebook.folder / "helpers_of_cells.py"
    for rate in (1, 22):
        file.write_text(f"RATE = {rate}\n")
        text = notebook.run("%%tfos on=cluster\nimport helpers_of_cells\nhelpers_of_cells.RATE")
        assert text == f"all 3 nodes: {rate}"


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("on=clutser", "on=clutser: no nodes of that name wait; did you mean cluster?"),
        ("on=cluster nodes=worker:7", "nodes='worker:7': the cluster 'cluster' has chief:0, worker:0, worker:1"),
        ("on=cluster cluster_size=2", "cluster_size: belongs to %tfos start; with on=..., a cell takes only nodes=..."),
        ("nodes=worker:1", "nodes chooses among nodes that wait, and needs on=NAME"),
    ],
)
def test_a_line_that_does_not_fit_is_refused(notebook: Notebook, line: str, sentence: str) -> None:
    assert sentence in notebook.run(f"%%tfos {line}\n1")


def test_code_that_does_not_fit_is_refused_at_its_line(notebook: Notebook) -> None:
    text = notebook.run("%%tfos on=cluster\nx = 1\nreturn x")
    assert "line 3" in text
    assert "SyntaxError: 'return' outside function" in text
    assert "the cell is empty" in notebook.run("%%tfos on=cluster\n\n")


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("cluster_size=2", "the cluster 'cluster' is still running"),
        ("name=other local=inline", "use local=processes for nodes"),
        ("name=other restarts=1", "the names of an interactive cluster would be lost"),
        ("name=other epochs=2", "epochs: feed rows with other.train(...) once the nodes wait"),
        ("name=other background", "background: belongs to a cell"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(notebook: Notebook, line: str, sentence: str) -> None:
    assert sentence in notebook.run(f"%tfos start {line}")


def test_clusters_and_nodes_that_wait_are_offered(notebook: Notebook) -> None:
    assert notebook.tab("%%tfos on=clu") == ["cluster"]
    assert notebook.tab("%%tfos on=cluster nodes=w") == ["worker:0", "worker:1"]
    assert "cluster_size=" in notebook.tab("%tfos start clu")


def test_stop_ends_the_nodes(notebook: Notebook) -> None:
    notebook.run("%tfos config restarts=2")
    notebook.run("%tfos start cluster_size=1 local=processes name=short")
    notebook.run("%tfos config reset")
    assert notebook.run("%%tfos on=short\nctx.node") == "chief:0: 'chief:0'"
    notebook.run("%tfos stop short")
    assert notebook.run("short.state.value") == "'stopped'"
    assert "no nodes of that name wait" in notebook.run("%%tfos on=short\n1")
