"""The commands of ``%tfos``: show the clusters of this notebook and their TensorBoard, stop them, read their logs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from typing import Any

from tfos_lab.engine.cluster import runtime_of
from tfos_lab.engine.doctor import examine, render_text
from tfos_lab.engine.environment.pack import pack
from tfos_lab.engine.registry import clusters
from tfos_lab.engine.warm import warm
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.cell.export import FinishedCell, export
from tfos_lab.jupyter.commands_profile import make_profile
from tfos_lab.jupyter.commands_stacks import show_stacks
from tfos_lab.jupyter.display.status import StatusTable
from tfos_lab.jupyter.display.tensorboard import TensorBoardView, view_cluster, view_folder
from tfos_lab.jupyter.node_arguments import complete_node
from tfos_lab.jupyter.options.table import BY_NAME
from tfos_lab.jupyter.options.values import nearest

# Last lines of each node; the files have all of them.
LOG_LINES = 200


class Commands:
    """The commands of one notebook.

    Parameters
    ----------
    last_cell : callable
        Returns the ``%%tfos`` cell that was run last, or None.
    history : callable
        Returns the text of the cells that were run before, oldest first.
    """

    def __init__(self, last_cell: Callable[[], FinishedCell | None], history: Callable[[], list[str]]) -> None:
        self._last_cell = last_cell
        self._history = history
        self._commands: dict[str, Callable[[list[str]], Any]] = {
            "status": self._status,
            "stop": self._stop,
            "logs": self._logs,
            "stacks": show_stacks,
            "profile": make_profile,
            "tensorboard": self._tensorboard,
            "export": self._export,
            "warm": self._warm,
            "doctor": self._doctor,
            "pack": self._pack,
        }

    def run(self, line: str) -> Any:
        """Run the command that follows ``%tfos``; raises `ConfigError` for an unknown one."""
        try:
            name, *arguments = shlex.split(line) or ["status"]
        except ValueError as error:
            raise ConfigError([f"%tfos {line}: {error}"]) from error
        command = self._commands.get(name)
        if command is None:
            raise ConfigError([self._unknown(name, line)])
        return command(arguments)

    def complete(self, finished: list[str]) -> Iterable[str]:
        """Return what can follow the finished arguments."""
        if not finished:
            return self._commands
        if finished[0] == "stop" and len(finished) == 1:
            return [*_names(live=True), "all"]
        if finished[0] == "tensorboard" and len(finished) == 1:
            return _names()
        if finished[0] in ("stacks", "profile"):
            return complete_node(finished[1:])
        if finished[0] == "logs":
            named = [cluster for cluster in clusters() if cluster.name == finished[-1]]
            nodes = [node.node for cluster in named or clusters()[-1:] for node in cluster.nodes]
            return nodes if named else [*_names(), *nodes]
        return []

    def _unknown(self, name: str, line: str) -> str:
        key = name.lstrip("-").partition("=")[0]
        if "=" in name or key in BY_NAME:
            return f"options belong to a cell: write %%tfos {line} and the code below it"
        close = nearest(name, self._commands)
        hint = f"did you mean {close}?" if close else f"there are {', '.join(self._commands)}"
        return f"%tfos has no command {name!r}; {hint}"

    # ---- the commands ------------------------------------------------------------------------------------------------

    def _status(self, arguments: list[str]) -> StatusTable:
        _expect(arguments, "status", at_most=0)
        return StatusTable(clusters())

    def _stop(self, arguments: list[str]) -> StatusTable:
        _expect(arguments, "stop [name|all]", at_most=1)
        living = [cluster for cluster in clusters() if not cluster.ended]
        if arguments and arguments[0] != "all":
            chosen = [cluster for cluster in living if cluster.name == arguments[0]]
            if not chosen:
                raise ConfigError([_no_such(arguments[0], "running")])
        elif len(living) > 1 and not arguments:
            raise ConfigError([f"several clusters run ({', '.join(_names(live=True))}): name one, or write all"])
        else:
            chosen = living
        for cluster in chosen:
            cluster.stop()
        return StatusTable(chosen)

    def _logs(self, arguments: list[str]) -> None:
        _expect(arguments, "logs [name] [node]", at_most=2)
        if not clusters():
            raise ConfigError(["there are no logs: no cluster has run yet"])
        found = [cluster for cluster in clusters() if arguments and cluster.name == arguments[0]]
        if arguments and not found and (len(arguments) > 1 or ":" not in arguments[0]):
            raise ConfigError([_no_such(arguments[0], "there")])
        cluster = (found or clusters())[-1]
        rest = arguments[1:] if found else arguments
        node = rest[0] if rest else None
        nodes = [view.node for view in cluster.nodes]
        if node is not None and node not in nodes:
            raise ConfigError([f"the cluster '{cluster.name}' has no node {node!r}; there are {', '.join(nodes)}"])
        text = cluster.logs(node, tail=LOG_LINES).rstrip() or "nothing was written"
        print(f"{text}\n(the last {LOG_LINES} lines at most; all of them are in {cluster.run_dir})")  # noqa: T201

    def _tensorboard(self, arguments: list[str]) -> TensorBoardView:
        _expect(arguments, "tensorboard [name|folder]", at_most=1)
        found = [cluster for cluster in clusters() if not arguments or cluster.name == arguments[0]]
        if found:
            return view_cluster(runtime_of(found[-1]))
        if not arguments:
            raise ConfigError(["no cluster has run yet: name a folder with event files, %tfos tensorboard FOLDER"])
        return view_folder(arguments[0])

    def _export(self, arguments: list[str]) -> None:
        _expect(arguments, "export FILE.py", at_most=1)
        if len(arguments) != 1:
            raise ConfigError(["name the file to write: %tfos export FILE.py"])
        cell = self._last_cell()
        if cell is None:
            raise ConfigError(["there is nothing to export: run a %%tfos cell first"])
        path = export(arguments[0], cell, self._history())
        print(f"wrote {path}; run it with: spark-submit {path}")  # noqa: T201

    def _warm(self, arguments: list[str]) -> None:
        _expect(arguments, "warm", at_most=0)
        print(f"warming on {warm()}: the next cell there starts at once")  # noqa: T201

    def _doctor(self, arguments: list[str]) -> None:
        _expect(arguments, "doctor", at_most=0)
        print(render_text(examine()))  # noqa: T201

    def _pack(self, arguments: list[str]) -> None:
        _expect(arguments, "pack [FILE.tar.gz]", at_most=1)
        print(pack(*arguments).describe())  # noqa: T201


def _expect(arguments: list[str], usage: str, *, at_most: int) -> None:
    if len(arguments) > at_most:
        raise ConfigError([f"too many arguments: the command is %tfos {usage}"])


def _names(*, live: bool = False) -> list[str]:
    return list(dict.fromkeys(cluster.name for cluster in clusters() if not (live and cluster.ended)))


def _no_such(name: str, what: str) -> str:
    names = _names(live=what == "running")
    if not names:
        return f"no cluster is {what}"
    close = nearest(name, names)
    hint = f"did you mean {close}?" if close else f"there are {', '.join(names)}"
    return f"no cluster {name!r} is {what}; {hint}"
