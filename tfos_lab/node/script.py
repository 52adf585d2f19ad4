"""Runs a user's Python file on a node, as Python runs a script, or one function of it."""

from __future__ import annotations

import builtins
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tfos_lab.core.roles import tf_config
from tfos_lab.core.sources import Source, register_cells
from tfos_lab.errors import ConfigError
from tfos_lab.node.invoke import call_map_fun

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext

# What a text in a node's parameters may name, in braces; each is replaced on the node.
PLACEHOLDERS = ("job_name", "task_index", "output_dir", "data_dir")
_FOLDER = "script"


@dataclass(frozen=True, kw_only=True)
class SentScript:
    """A script as it travels to the nodes."""

    # The folder of the script on the driver's machine.
    home: str
    # Its file.
    name: str
    # The script and what it imports from its folder, by the path within that folder.
    files: Mapping[str, bytes]
    # Each node's parameters, by rank.
    params: tuple[dict[str, Any], ...]
    # Which function to call; None to run the file as the main program.
    function: str | None = None
    # How the node's share of the data is written for the placeholder ``{data_dir}``.
    data_format: str = "parquet"


def run_sent_script(script: SentScript, ctx: NodeContext) -> Any:
    """Run the script on this node; returns what its function returns, None for a main program."""
    folder = ctx._scratch_folder() / _FOLDER  # noqa: SLF001 - users see no such method
    _unpack(script, folder)
    # On a single node, too: a script reads it without asking how many there are.
    os.environ.setdefault("TF_CONFIG", tf_config(ctx.cluster_spec, ctx.job_name, ctx.task_index))
    meanings = {
        "job_name": lambda: ctx.job_name,
        "task_index": lambda: str(ctx.task_index),
        "output_dir": lambda: ctx.output_dir,
        "data_dir": lambda: str(Path(ctx.rows_as_files(format=script.data_format)[0]).parent),
    }
    params = NodeParams(filled(script.params[ctx.worker_num], meanings))
    ctx.args = params
    path = folder / script.name
    sys.argv = [str(path), *command_line(params)]
    sys.path.insert(0, str(folder))
    names = {"args": params, "ctx": ctx}
    if script.function is None:
        _run_module(path, "__main__", names)
        return None
    module = _run_module(path, path.stem, names)
    function = getattr(module, script.function, None)
    if not callable(function):
        raise ConfigError([f"{script.name} has no function {script.function!r} when it has run to its end"])
    return call_map_fun(function, params, ctx)


def _unpack(script: SentScript, folder: Path) -> None:
    """Write the files to a folder of this node; tracebacks name those that the user knows."""
    for name, data in script.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    known = [name for name in script.files if name.endswith(".py")]
    register_cells(Source(str(folder / name), f'File "{Path(script.home) / name}"', "") for name in known)


def _run_module(path: Path, name: str, names: Mapping[str, Any]) -> ModuleType:
    """Run a file as a module, which stays in `sys.modules`: threads, pickles and exit handlers look for it there."""
    module = ModuleType(name)
    vars(module).update(names, __file__=str(path), __builtins__=builtins, __cached__=None)
    sys.modules[name] = module
    exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))  # noqa: S102 - it is the request
    return module


# ---- parameters: a dict with attributes, and the same as a command line ----------------------------------------------


class NodeParams(dict[str, Any]):
    """A node's parameters: ``args["lr"]``, or ``args.lr`` as `argparse` has it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self) or "none"
            raise AttributeError(f"this node has no parameter {name!r}; it has: {known}") from None


def command_line(params: Mapping[str, Any]) -> list[str]:
    """Return parameters as a program gets them: ``["--lr", "0.1", "--units", "64", "32", "--verbose"]``.

    True is a flag alone; False and None are left out; a list has a word for each element; a dict is JSON. A text that
    begins with a hyphen is joined to its name, for parsers would take it for an option.
    """
    words: list[str] = []
    for name, value in params.items():
        words += _words(f"--{name}", value)
    return words


def _words(option: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    if isinstance(value, list | tuple) and not any(isinstance(one, dict | list | tuple) for one in value):
        return [option, *map(_word, value)]
    if isinstance(value, str) and value.startswith("-"):
        return [f"{option}={value}"]
    return [option, _word(value)]


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def named_placeholders(value: Any) -> set[str]:
    """Return the placeholders that a value's texts name."""
    if isinstance(value, str):
        return {name for name in PLACEHOLDERS if f"{{{name}}}" in value}
    if isinstance(value, dict):
        value = list(value.values())
    return set().union(*map(named_placeholders, value)) if isinstance(value, list | tuple) else set()


def filled(value: Any, meanings: Mapping[str, Callable[[], str]]) -> Any:
    """Return a value with the placeholders in its texts replaced; a meaning that nobody names is not asked for."""
    if isinstance(value, str):
        for name in named_placeholders(value):
            value = value.replace(f"{{{name}}}", meanings[name]())
        return value
    if isinstance(value, dict):
        return {key: filled(one, meanings) for key, one in value.items()}
    return [filled(one, meanings) for one in value] if isinstance(value, list | tuple) else value
