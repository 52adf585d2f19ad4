"""The parameters of one node's script: a dict with attributes, and the same as a command line."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

# What a text in a node's parameters may name, in braces; each is replaced on the node.
PLACEHOLDERS = ("job_name", "task_index", "output_dir", "data_dir")


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
