"""Executes a notebook without a front end, section by section, and evaluates an expression in its kernel at the end."""

from __future__ import annotations

import ast
import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECTION_WITHOUT_HEADING = "Begin"
CELL_TIMEOUT_S = 900


@dataclass
class Section:
    """The code cells below one heading of a notebook, and how long they took."""

    title: str
    cells: list[int] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class Finished:
    """A notebook that has run to its end: with its outputs, and the value of the final expression."""

    notebook: Any
    state: dict[str, Any]


class CellFailure(Exception):
    """A cell raised: its source, and the output that the notebook would show."""

    def __init__(self, *, section: str, number: int, source: str, shown: str) -> None:
        super().__init__(section, number, source, shown)
        self.section = section
        self.number = number
        self.source = source
        self.shown = shown

    def __str__(self) -> str:
        source = "\n".join(f"    {line}" for line in self.source.rstrip().splitlines())
        return f"{self.section}: cell {self.number} failed\n\n{source}\n\n{self.shown.rstrip()}"


class KernelDied(Exception):
    """The notebook's kernel could not be started, or has died; the message ends with its last output."""


class Watcher:
    """Gets called as the notebook proceeds; does nothing itself."""

    def on_begin(self, section: Section) -> None:
        """A section has begun."""

    def on_output(self, section: Section, line: str) -> None:
        """A cell of the section has written a line."""

    def on_end(self, section: Section) -> None:
        """All cells of the section have run."""


def run_notebook(path: Path, *, folder: Path, environ: Mapping[str, str], final: str, watcher: Watcher) -> Finished:
    """Execute a notebook and return it with its final state.

    Parameters
    ----------
    path : path
        The notebook; it is not changed.
    folder : path
        Where the cells run.
    environ : mapping
        Environment of the kernel.
    final : str
        A Python expression, evaluated in the kernel after the last cell; its value is the text of a JSON object.
    watcher : Watcher
        Gets called as the notebook proceeds.

    Raises
    ------
    CellFailure
        If a cell raises.
    KernelDied
        If the kernel cannot be started, or dies.
    """
    return asyncio.run(_run(path, folder, dict(environ), final, watcher))


def sections_of(cells: list[Any]) -> list[Section]:
    """Return the sections that contain code, in order; headings of every level begin one."""
    sections = [Section(SECTION_WITHOUT_HEADING)]
    for index, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            headings = [line.lstrip("#").strip() for line in cell.source.splitlines() if line.startswith("#")]
            sections += [Section(title) for title in headings[-1:]]
        elif cell.cell_type == "code" and cell.source.strip():
            sections[-1].cells.append(index)
    return [section for section in sections if section.cells]


async def _run(path: Path, folder: Path, environ: dict[str, str], final: str, watcher: Watcher) -> Finished:
    import nbformat
    from nbclient.exceptions import DeadKernelError

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with (
        tempfile.TemporaryDirectory(prefix="tfos-demo-") as private,
        (Path(private) / "log").open("w+b") as log,
    ):
        client = _make_client(notebook)
        manager = client.create_kernel_manager()
        # Sockets in a private folder: the kernel cannot be reached over the network.
        manager.transport, manager.ip = "ipc", str(Path(private) / "kernel")
        try:
            # nbclient's own method for this replaces our signal handlers.
            await client.async_start_new_kernel(cwd=str(folder), env=environ, stdout=log, stderr=log)
            await client.async_start_new_kernel_client()
            for section in sections_of(notebook.cells):
                await _run_section(client, section, watcher)
            return Finished(notebook, await _evaluate(client, final))
        except (DeadKernelError, RuntimeError) as error:
            _raise_if_interrupted()
            log.seek(0)
            last_output = log.read().decode(errors="replace").strip()[-2000:]
            raise KernelDied(f"the notebook's kernel has gone: {error}\n{last_output}".rstrip()) from error
        finally:
            await _end_kernel(client, manager)


def _raise_if_interrupted() -> None:
    """Distinguish an interrupt from a dead kernel; nbclient reports both alike."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError from None


async def _end_kernel(client: Any, manager: Any) -> None:
    """Shut the kernel down, if it lives; its clusters and its Spark end with it."""
    if client.kc is not None:
        client.kc.stop_channels()
    if manager.has_kernel:
        await manager.shutdown_kernel()


def _make_client(notebook: Any) -> Any:
    from nbclient import NotebookClient

    class Client(NotebookClient):
        """Passes on what the running cell prints."""

        def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] == "stream":
                lines = [line for line in msg["content"]["text"].splitlines() if line.strip()]
                if lines:
                    self.on_line(lines[-1])
            return super().process_message(msg, cell, cell_index)

        on_line: Callable[[str], None] = staticmethod(lambda _line: None)

    return Client(notebook, kernel_name="python3", timeout=CELL_TIMEOUT_S, allow_errors=False)


async def _run_section(client: Any, section: Section, watcher: Watcher) -> None:
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    began_s = time.monotonic()
    client.on_line = lambda line: watcher.on_output(section, line)
    watcher.on_begin(section)
    for number, index in enumerate(section.cells, 1):
        cell = client.nb.cells[index]
        try:
            await client.async_execute_cell(cell, index)
        except (CellExecutionError, CellTimeoutError) as error:
            shown = _shown(cell, error)
            raise CellFailure(section=section.title, number=number, source=cell.source, shown=shown) from None
    section.seconds = time.monotonic() - began_s
    watcher.on_end(section)


def _shown(cell: Any, error: Exception) -> str:
    """Return the error as the notebook would show it."""
    for output in cell.outputs:
        if output.output_type == "error":
            return "\n".join(output.traceback)
    return f"It did not end within {CELL_TIMEOUT_S} s." if isinstance(error, TimeoutError) else str(error)


async def _evaluate(client: Any, expression: str) -> dict[str, Any]:
    """Evaluate an expression in the kernel; the notebook does not change."""
    asked = client.kc.execute("", silent=True, store_history=False, user_expressions={"final": expression})
    reply = await client.async_wait_for_reply(asked)
    answer = reply["content"]["user_expressions"]["final"]
    if answer["status"] != "ok":
        raise KernelDied(f"the final expression failed in the kernel: {answer['ename']}: {answer['evalue']}")
    state: dict[str, Any] = json.loads(ast.literal_eval(answer["data"]["text/plain"]))
    return state
