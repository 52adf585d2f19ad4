"""``%tfos config``: shows and sets the defaults of options for the cells of this notebook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.getipython import get_ipython

from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.options.configured import CONFIGURABLE, problems_with
from tfos_lab.jupyter.options.defaults import DEFAULTS, SESSION
from tfos_lab.jupyter.options.line import Item, split_line
from tfos_lab.jupyter.options.table import read_item, takes_value

RESET = "reset"


def show_config(line: str) -> None:
    """Run the command with the notebook's names, and print the defaults that then hold."""
    shell = get_ipython()
    print(run_config(line, shell.user_ns if shell else {}))  # noqa: T201


def run_config(line: str, names: Mapping[str, Any]) -> str:
    """Run the command, and return the table of defaults that then hold.

    Parameters
    ----------
    line : str
        What follows ``%tfos config``: nothing, ``reset``, ``reset cluster_size epochs``, or options as on the line of a
        cell, such as ``cluster_size=4 tensorboard``.
    names : mapping of str to object
        The notebook's names, which expressions refer to.

    Raises
    ------
    ConfigError
        With every problem found; nothing is changed then.
    """
    words = line.split()
    if words[:1] == [RESET]:
        _reset(words[1:])
    else:
        DEFAULTS.set(SESSION, _read(line, names))
    return table()


def completions_of_config(_finished: list[str]) -> list[str]:
    """Return what can follow ``%tfos config``."""
    return [RESET, *(f"{name}=" for name in CONFIGURABLE)]


def table() -> str:
    """Return the defaults as text, those first that somebody has set."""
    values = DEFAULTS.values()
    rows = [(name, repr(values[name]), DEFAULTS.source_of(name)) for name in CONFIGURABLE if name in values]
    rows += [(name, one.shown_default, "") for name, one in CONFIGURABLE.items() if name not in values]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}".rstrip() for name, value, source in rows)


def _reset(names: list[str]) -> None:
    unknown = [problem for name in names if name not in CONFIGURABLE for problem in problems_with(name, None)]
    if unknown:
        raise ConfigError(unknown)
    if not names:
        DEFAULTS.forget(SESSION)
    for name in names:
        DEFAULTS.forget(SESSION, name)


def _read(line: str, names: Mapping[str, Any]) -> dict[str, object]:
    items, problems = split_line(line, takes_value)
    values: dict[str, object] = {}
    for item in items:
        problems += _read_one(item, names, values)
    if problems:
        raise ConfigError(problems)
    return values


def _read_one(item: Item, names: Mapping[str, Any], values: dict[str, object]) -> list[str]:
    if item.key not in CONFIGURABLE:
        return problems_with(item.key, None)
    problem = read_item(item, names, values)
    return [problem] if problem else problems_with(item.key, values[item.key])
