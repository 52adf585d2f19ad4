"""All commands of ``%tfos``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable
from typing import Any

from tfos_lab.core.config import ClusterOptions
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.cell.export import export, write
from tfos_lab.jupyter.cell.selection import NotebookCells
from tfos_lab.jupyter.commands import clusters, history, nodes, tools
from tfos_lab.jupyter.commands.command import Command, OptionsCommand
from tfos_lab.jupyter.commands.config import completions_of_config, show_config
from tfos_lab.jupyter.options.table import BY_NAME
from tfos_lab.jupyter.options.values import nearest

_FIRST_WORD = re.compile(r"\s*(\S*)")


class Commands:
    """The commands of one notebook.

    Parameters
    ----------
    cells : callable
        Returns the cells that were run before.
    start : callable
        Starts an interactive cluster, given a line of options.
    """

    def __init__(self, cells: Callable[[], NotebookCells], start: Callable[[str], None]) -> None:
        self._commands: dict[str, Command | OptionsCommand] = {
            "status": clusters.COMMANDS["status"],
            "start": OptionsCommand(start, _options_of_clusters),
            **clusters.COMMANDS,
            **nodes.COMMANDS,
            "export": Command(lambda arguments: export_cells(arguments, cells())),
            **tools.COMMANDS,
            **history.COMMANDS,
            "config": OptionsCommand(show_config, completions_of_config),
        }

    def run(self, line: str) -> Any:
        """Run the command that follows ``%tfos``; raises `ConfigError` for an unknown one."""
        first = _FIRST_WORD.match(line)
        assert first is not None
        options_command = self._commands.get(first[1])
        if isinstance(options_command, OptionsCommand):
            return options_command.run(line[first.end() :].strip())
        try:
            name, *arguments = shlex.split(line) or ["status"]
        except ValueError as error:
            raise ConfigError([f"%tfos {line}: {error}"]) from error
        command = self._commands.get(name)
        if not isinstance(command, Command):
            raise ConfigError([self._unknown(name, line)])
        return command.run(arguments)

    def complete(self, finished: list[str]) -> Iterable[str]:
        """Return what can follow the finished arguments."""
        if not finished:
            return self._commands
        command = self._commands.get(finished[0])
        return command.complete(finished[1:]) if command else ()

    def _unknown(self, name: str, line: str) -> str:
        key = name.lstrip("-").partition("=")[0]
        if "=" in name or key in BY_NAME:
            return f"options belong to a cell: write %%tfos {line} and the code below it"
        close = nearest(name, self._commands)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(self._commands)}"
        return f"%tfos has no command {name!r}; {hint}"


def _options_of_clusters(_finished: list[str]) -> list[str]:
    return [f"{name}=" for name in BY_NAME if BY_NAME[name].owner is ClusterOptions]


def export_cells(arguments: list[str], cells: NotebookCells) -> None:
    """Write the last ``%%tfos`` cell, or those that are named, as a script; as HTML, a run."""
    if not arguments:
        raise ConfigError(["name the file to write: %tfos export FILE.py, or FILE.html for a run as a page to send"])
    if arguments[0].endswith(".html"):
        print(f"wrote {history.open_run(arguments[1:]).run.report(arguments[0])}")  # noqa: T201
        return
    if arguments[1:]:
        path = write(arguments[0], cells.script(cells.numbers_of(arguments[1:])))
    elif cells.finished:
        path = export(arguments[0], cells.finished[max(cells.finished)], cells.texts)
    else:
        raise ConfigError(["there is nothing to export: run a %%tfos cell first"])
    print(f"wrote {path}; run it with: spark-submit {path}")  # noqa: T201
