"""What a stack says about its thread: whether it is in the user's code, in TensorFlow, or waits for rows. Pure."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tfos_lab import sources
from tfos_lab.messages import Condition

_OWN = str(Path(__file__).resolve().parents[2])
_STDLIB = sysconfig.get_path("stdlib")
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/]([^\\/]+)")
_TENSORFLOW = ("tensorflow", "keras", "tf_keras")
# Runs Python functions for TensorFlow, on threads of its own: generators, `tf.py_function`, `tf.numpy_function`.
_CALLED_BY_TENSORFLOW = "script_ops.py"
# Around every function of Keras and TensorFlow: they shorten tracebacks.
_WRAPPERS = ("error_handler",)
# Calls the user's function: what is above it in the stack is ours.
_ENTRY = str(Path(_OWN) / "node" / "invoke.py")


class Place(NamedTuple):
    """One frame: a line of a file, within a function."""

    file: str
    line: int
    function: str

    @property
    def package(self) -> str:
        """The package of the file: ``"Python"``, ``"tfos_lab"``, an installed one, or "" for the user's own."""
        if self.file.startswith(_OWN):
            return "tfos_lab"
        installed = _INSTALLED.search(self.file)
        if installed:
            return installed[1].removesuffix(".py")
        return "Python" if self.file.startswith((_STDLIB, "<frozen ")) else ""

    @property
    def location(self) -> str:
        """The place as a traceback names it."""
        return self._told(sources.label(self.file) or f'File "{self.file}"')

    def __str__(self) -> str:
        return self._told(sources.label(self.file) or "/".join(Path(self.file).parts[-2:]).lstrip("/"))

    def _told(self, file: str) -> str:
        return f"{file}, line {self.line}" + (f", in {self.function}" if self.function != "<module>" else "")


def has_entry(stack: Sequence[Place]) -> bool:
    """Whether it is the stack of the thread that runs the user's function."""
    return any(place.file == _ENTRY for place in stack)


def own_part(stack: Sequence[Place]) -> list[Place]:
    """Return the part of a stack, outermost first, that begins with the user's function."""
    calls = [number for number, place in enumerate(stack) if place.file == _ENTRY]
    return list(stack[calls[-1] + 1 :]) if calls else list(stack)


def condition_of(main: Sequence[Place], others: Sequence[Sequence[Place]] = ()) -> tuple[Condition, Sequence[Place]]:
    """Return what a node is at, and the stack that shows it: the main one's, or that of a function of `tf.data`.

    Parameters
    ----------
    main : sequence of Place
        The stack of the main thread, outermost first.
    others : sequence of sequences of Place
        Those of the other threads.
    """
    condition = _condition(own_part(main))
    if condition is not Condition.IN_TENSORFLOW:
        return condition, own_part(main)
    for stack in map(_called_by_tensorflow, others):
        if stack and (inner := _condition(stack)) is not Condition.IN_TENSORFLOW:
            return inner, stack
    return condition, own_part(main)


def _called_by_tensorflow(stack: Sequence[Place]) -> list[Place]:
    """Return the part of a stack that TensorFlow has called; [] if it is not one of its threads."""
    calls = [number for number, place in enumerate(stack) if place.file.endswith(_CALLED_BY_TENSORFLOW)]
    return list(stack[calls[-1] + 1 :]) if calls else []


def _condition(stack: Sequence[Place]) -> Condition:
    for place in reversed(stack):
        match place.package:
            case "Python":
                continue
            case "tfos_lab":
                is_feed = "/node/feed/" in place.file
                return Condition.WAITS_FOR_ROWS if is_feed else Condition.WAITS
            case package if package in _TENSORFLOW:
                return Condition.IN_TENSORFLOW
            case _:
                return Condition.BUSY
    return Condition.BUSY


def place_of(stack: Sequence[Place]) -> str:
    """Return the innermost line of the user's own in a stack, as text; the innermost one at all if there is none."""
    users = [place for place in stack if not place.package]
    return str((users or list(stack))[-1]) if stack else ""


def call_of(stack: Sequence[Place]) -> str:
    """Return what the innermost line of the user's own has called: ``"fit (keras)"``; "" for Python's own functions."""
    called: list[Place] = []
    for place in reversed(stack):
        if not place.package:
            break
        if place.package != "Python" and place.function not in _WRAPPERS:
            called.append(place)
    return f"{called[-1].function} ({called[-1].package})" if called else ""
