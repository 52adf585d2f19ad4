"""``python -m tfos_lab.demo``: executes the first tutorial on local Spark, and prints what it trained."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfos_lab.cli.paths import QUICKSTART, find_checkout, kernel_environ, spark_log
from tfos_lab.cli.terminal import StatusLine, echo, echo_error, paint
from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.driver.doctor.checks import check_java

# The last cell, in the kernel, where the clusters are.
_REPORT = "import tfos_lab.demo\n\nprint(tfos_lab.demo.report(globals()))"
_CELL_TIMEOUT_S = 900


def main(notebook: Path | None = None) -> int:
    """Execute the tutorial, or another notebook, and print its report; returns the exit code."""
    checkout, java = find_checkout(), check_java(os.environ)
    path = notebook or (checkout / "notebooks" / QUICKSTART if checkout else None)
    if path is None:
        problem = "the notebooks are not part of the installed package: run this in a checkout"
    elif importlib.util.find_spec("nbclient") is None:
        problem = "nbclient is not installed here: pip install 'tfos_lab[lab]'"
    else:
        problem = "" if java.ok else java.sentence
    if path is None or problem:
        echo_error(problem)
        return 1
    echo(f"{paint(path.name, 'bold')} on local Spark\n")
    try:
        _execute(path, kernel_environ(os.environ, checkout))
    except KeyboardInterrupt:
        echo_error("interrupted")
        return 130
    except Exception as error:  # noqa: BLE001 - what a cell has raised, or what has become of the kernel
        runs = Path("runs").absolute()
        echo_error(f"\n{error}\n\nLogs: of nodes {runs}, of Spark {spark_log()}, of the kernel {_kernel_log()}")
        return 1
    echo("\nTry it yourself: make lab")
    return 0


def _execute(path: Path, environ: Mapping[str, str]) -> None:
    """Execute the notebook's cells with a line for each section, and print what the last cell prints."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    notebook.cells.append(nbformat.v4.new_code_cell(_REPORT))  # type: ignore[no-untyped-call]
    *sections, (_, report_cells) = _sections(notebook.cells)
    line = StatusLine()
    with tempfile.TemporaryDirectory(prefix="tfos-demo-") as private, _kernel_log().open("w") as log:
        # Sockets in a private folder: the kernel cannot be reached over the network.
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{private}/kernel")
        client = NotebookClient(notebook, km=manager, timeout=_CELL_TIMEOUT_S, shutdown_kernel="immediate")
        with client.setup_kernel(cleanup_kc=True, cwd=str(Path.cwd()), env=dict(environ), stdout=log, stderr=log):
            for title, cells in sections:
                began_s = time.monotonic()
                line.show(f"  … {title}")
                try:
                    for index in cells:
                        client.execute_cell(notebook.cells[index], index)
                except BaseException:
                    line.finish(f"  {paint('✗', 'red')} {title}")
                    raise
                line.finish(f"  {paint('✓', 'green')} {title:<34} {time.monotonic() - began_s:6.1f} s")
            for index in report_cells:
                client.execute_cell(notebook.cells[index], index)
    echo("\n" + "".join(output.text for output in notebook.cells[-1].outputs).rstrip())


def _kernel_log() -> Path:
    return spark_log().with_name("demo.log")


def _sections(cells: list[Any]) -> list[tuple[str, list[int]]]:
    """Return the headings below which there is code, each with the numbers of its cells; the last cell by itself."""
    sections: list[tuple[str, list[int]]] = [("Begin", [])]
    for index, cell in enumerate(cells[:-1]):
        headings = [row for row in cell.source.splitlines() if row.startswith("#")]
        if cell.cell_type == "markdown" and headings:
            sections.append((headings[-1].lstrip("# "), []))
        elif cell.cell_type == "code":
            sections[-1][1].append(index)
    return [*(section for section in sections if section[1]), ("", [len(cells) - 1])]


def report(names: Mapping[str, Any]) -> str:
    """Return what the tutorial has trained: nodes, rows, accuracy, seconds; given the names of its notebook."""
    cluster, accuracy, digits = names["cluster"], names["accuracy"], names["digits"]
    view, nodes = cluster.view(), [node.name for node in cluster.nodes]
    fed = view.feeds[-1]
    phases = {"launched": "launch", "reserved": "reserve", "running": "start", "fed": "feed", "done": "train"}
    ends, begun_s, took = {**cluster.timings, "fed": fed.ended_s}, 0.0, []
    for mark, phase in phases.items():
        seconds = ends[mark] - begun_s
        took.append(f"{phase} {seconds:.{0 if seconds >= 10 else 2}f}")
        begun_s = ends[mark]
    lines = {
        "nodes": ", ".join(nodes),
        "data": repr(digits).strip("<>"),
        "rows fed": f"{sum(fed.rows.values()):,} ({', '.join(f'{node} {rows:,}' for node, rows in fed.rows.items())})",
        "accuracy": f"{accuracy:.1%} of {len(digits.y_test):,} digits that it had not seen",
        "model": str(cluster.model_path),
        "seconds": " · ".join(took),
        "next cluster": f"its first line ran {names['readers'].timings['running']:.2f} s after the call",
    }
    told = [f"  {name:<13} {text}" for name, text in lines.items()]
    return "\n".join([f"Trained on {len(nodes)} nodes of {LAUNCHERS[view.launcher].place}.", *told])


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
