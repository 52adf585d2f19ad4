"""One kernel that executes several notebooks, one after the other: Spark and TensorFlow start once for all of them."""

from __future__ import annotations

import ast
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import nbformat
from jupyter_client import KernelManager
from nbclient import NotebookClient

CELL_TIMEOUT_S = 300


@dataclass(frozen=True)
class Executed:
    """A notebook that has run to its end, and the kernel with the names that it has left."""

    notebook: Any
    seconds: float
    kernel: NotebookKernel

    def outputs(self, name: str) -> list[Any]:
        """Return the outputs of the cell of a name (its id)."""
        [cell] = [cell for cell in self.notebook.cells if cell.id == name]
        return list(cell.outputs)

    def printed(self, name: str) -> str:
        """Return what the cell of a name has printed."""
        texts = [output.text for output in self.outputs(name) if output.output_type == "stream"]
        return "".join(texts)

    def shown(self, name: str) -> list[str]:
        """Return the kinds of the cell's outputs."""
        return [output.output_type for output in self.outputs(name)]

    def error(self, name: str) -> tuple[str, str]:
        """Return name and text of the error that the cell has raised."""
        [error] = [output for output in self.outputs(name) if output.output_type == "error"]
        return error.ename, error.evalue

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the kernel; its value has to be fit for JSON."""
        return self.kernel.value(expression)


class NotebookKernel:
    """A kernel without a front end, in a folder and an environment; it ends with the ``with`` block.

    The names of one notebook are gone before the next one runs. Its session and its fork servers are not.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self._manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(folder / "kernel"))
        self._folder = folder
        self._environ = dict(environ)
        self._client: Any = None

    def __enter__(self) -> Self:
        self._manager.start_kernel(cwd=str(self._folder), env=self._environ)
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=60)
        return self

    def __exit__(self, *exc: object) -> None:
        self._client.stop_channels()
        self._manager.shutdown_kernel()

    def execute(self, path: Path, replaced: Mapping[str, str] | None = None) -> Executed:
        """Run a notebook; in the source of its cells, replace texts, each of which has to be there."""
        notebook = nbformat.read(path, as_version=4)
        for old, new in (replaced or {}).items():
            [cell] = [cell for cell in notebook.cells if old in cell.source]
            cell.source = cell.source.replace(old, new)
        began_s = time.monotonic()
        self._run("get_ipython().reset(new_session=False)")
        NotebookClient(notebook, km=self._manager, kc=self._client, timeout=CELL_TIMEOUT_S).execute(cleanup_kc=False)
        return Executed(notebook, time.monotonic() - began_s, self)

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the kernel, by way of JSON."""
        asked = f"__import__('json').dumps({expression})"
        answer = self._run("", {"value": asked})["user_expressions"]["value"]
        if answer["status"] != "ok":
            raise AssertionError(f"{expression}: {answer['ename']}: {answer['evalue']}")
        return json.loads(ast.literal_eval(answer["data"]["text/plain"]))

    def _run(self, code: str, expressions: Mapping[str, str] | None = None) -> dict[str, Any]:
        asked = self._client.execute(code, silent=True, user_expressions=dict(expressions or {}))
        while (reply := self._client.get_shell_msg(timeout=CELL_TIMEOUT_S))["parent_header"].get("msg_id") != asked:
            pass
        content: dict[str, Any] = reply["content"]
        return content
