"""One command of ``%tfos``: what it does, and what can follow it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tfos_lab.errors import ConfigError


def _nothing(_finished: list[str]) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes
    ----------
    run : callable
        Carries it out, given its arguments, and returns what the cell shows.
    complete : callable
        Given the arguments that are finished, returns what can follow them.
    """

    run: Callable[[list[str]], Any]
    complete: Callable[[list[str]], Iterable[str]] = _nothing


@dataclass(frozen=True)
class OptionsCommand:
    """A command that takes options as the line of a cell has them, with quotes and expressions; `run` gets the text."""

    run: Callable[[str], Any]
    complete: Callable[[list[str]], Iterable[str]] = _nothing


def expect(arguments: list[str], usage: str, *, at_most: int) -> None:
    """Refuse more arguments than a command takes."""
    if len(arguments) > at_most:
        raise ConfigError([f"too many arguments: the command is %tfos {usage}"])
