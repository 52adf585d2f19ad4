"""One kernel that executes several notebooks, one after the other: Spark and TensorFlow start once for all of them."""

from __future__ import annotations

import ast
import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from jupyter_client import AsyncKernelManager

from tests.support.lazy import Lazy

nbclient = Lazy("nbclient")
nbformat = Lazy("nbformat")

CELL_TIMEOUT_S = 300
# What IPython prints where another notebook has been before.
ALREADY_LOADED = "The tfos_lab extension is already loaded. To reload it, use:\n  %reload_ext tfos_lab\n"
_STOP_SESSION = """from pyspark.sql import SparkSession
if session := SparkSession.getActiveSession():
    session.stop()"""


def kernel_sockets(folder: Path) -> dict[str, str]:
    """Return the options of a kernel manager with which a kernel listens in a folder.

    Of TCP, Jupyter looks for free ports, and another process can take one before the kernel does.
    """
    return {"transport": "ipc", "ip": str(folder / "kernel")}


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

    The names of one notebook are gone before the next one runs. Its session and its fork servers are not. ``place`` is
    what tests call where its notebooks run.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str], place: str = "local") -> None:
        self.place = place
        self._manager = AsyncKernelManager(kernel_name="python3", **kernel_sockets(folder))
        self._runner = asyncio.Runner()
        self._folder = folder
        self._environ = dict(environ)
        self._client: Any = None

    def __enter__(self) -> Self:
        self._runner.run(self._manager.start_kernel(cwd=str(self._folder), env=self._environ))
        return self

    def __exit__(self, *exc: object) -> None:
        self._forget_client()
        self._runner.run(self._manager.shutdown_kernel())
        self._runner.close()

    def execute(self, path: Path, *, new_session: bool = False) -> Executed:
        """Run a notebook from a clean start; with a new session of Spark, its settings are the notebook's own."""
        notebook = nbformat.read(path, as_version=4)
        began_s = time.monotonic()
        self._runner.run(self._execute(notebook, _STOP_SESSION if new_session else ""))
        return Executed(notebook, time.monotonic() - began_s, self)

    def value(self, expression: str) -> Any:
        """Evaluate an expression in the kernel, by way of JSON."""
        asked = f"__import__('json').dumps({expression})"
        answer = self._runner.run(self._run("", {"value": asked}))["user_expressions"]["value"]
        if answer["status"] != "ok":
            raise AssertionError(f"{expression}: {answer['ename']}: {answer['evalue']}")
        return json.loads(ast.literal_eval(answer["data"]["text/plain"]))

    async def _execute(self, notebook: Any, before: str) -> None:
        self._forget_client()
        self._client = nbclient.NotebookClient(
            notebook, km=self._manager, timeout=CELL_TIMEOUT_S, iopub_timeout=CELL_TIMEOUT_S
        )
        await self._client.async_start_new_kernel_client()
        # Programs of TensorFlowOnSpark set up logging.
        await self._run(f"{before}\nget_ipython().reset()\n__import__('logging').getLogger().handlers.clear()")
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                await self._client.async_execute_cell(cell, index)

    async def _run(self, code: str, expressions: Mapping[str, str] | None = None) -> dict[str, Any]:
        assert self._client is not None
        asked = self._client.kc.execute(code, silent=True, user_expressions=dict(expressions or {}))
        reply = await self._client.async_wait_for_reply(asked)
        content: dict[str, Any] = reply["content"]
        return content

    def _forget_client(self) -> None:
        if self._client is not None:
            self._client.kc.stop_channels()
