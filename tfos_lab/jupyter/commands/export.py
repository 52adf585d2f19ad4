"""``%tfos export``: writes cells of the notebook as a script."""

from __future__ import annotations

from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.cell.export import export, write
from tfos_lab.jupyter.cell.selection import NotebookCells


def export_cells(arguments: list[str], cells: NotebookCells) -> None:
    """Write the last ``%%tfos`` cell, or those that are named, and say how to run the script."""
    if not arguments:
        raise ConfigError(["name the file to write: %tfos export FILE.py"])
    if arguments[1:]:
        path = write(arguments[0], cells.script(cells.numbers_of(arguments[1:])))
    elif cells.finished:
        path = export(arguments[0], cells.finished[max(cells.finished)], cells.texts)
    else:
        raise ConfigError(["there is nothing to export: run a %%tfos cell first"])
    print(f"wrote {path}; run it with: spark-submit {path}")  # noqa: T201
