"""The names that a ``%%tfos`` cell is given and the notebook lacks: ``ctx``, ``args``, and the handle ``cluster``.

Completion and help ask here what they have. Nothing of the user's runs to find out.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from IPython.core.guarded_eval import EvaluationContext, guarded_eval

from tfos_lab.engine.cluster import Cluster
from tfos_lab.jupyter.options.line import split_line
from tfos_lab.jupyter.options.table import takes_value
from tfos_lab.node.context.context import NodeContext

_CELL = re.compile(r"\s*%%tfos\b(?P<line>[^\n]*)\n(?P<body>.*)", re.DOTALL)
_CLASSES: dict[str, type] = {"ctx": NodeContext, "cluster": Cluster}
# ``name : type`` or ``name, name : type`` in the docstring of a class.
_DOCUMENTED = re.compile(r"^(\w+(?:, \w+)*) : (.+)\n((?:    .+\n?)+)", re.MULTILINE)


class Member(NamedTuple):
    """One attribute: its name, the object behind it if it can be called, and what is known of it as text."""

    name: str
    function: Any
    text: str


class GivenNames:
    """What one ``%%tfos`` cell is given.

    Parameters
    ----------
    cell : str
        The whole cell, as typed so far.
    names : mapping
        The notebook's names.
    """

    def __init__(self, cell: str, names: Mapping[str, Any]) -> None:
        found = _CELL.match(cell)
        self._line = found["line"] if found else ""
        self._body = found["body"] if found else None
        self._names = names

    def has(self, root: str) -> bool:
        """Whether the cell gets this name from tfos_lab, not from the notebook or its own code."""
        if self._body is None or re.search(rf"^\s*{root}\s*=(?!=)", self._body, re.MULTILINE):
            return False
        if root == "cluster":
            return isinstance(self._names.get(root), Cluster | None)
        return root == "ctx" or (root == "args" and self.args is not None)

    @property
    def args(self) -> Any:
        """The value of the option ``args``, or None where it cannot be had without running code."""
        items, _ = split_line(self._line, takes_value)
        text = next((item.value for item in items if item.key == "args"), None)
        if not text:
            return None
        context = EvaluationContext(locals={}, globals=dict(self._names), evaluation="limited")
        try:
            return guarded_eval(text, context)
        except Exception:  # noqa: BLE001 - whatever cannot be evaluated is not known
            return None

    def members(self, root: str) -> dict[str, Member]:
        """Return the public attributes of a name, by name."""
        if not self.has(root):
            return {}
        owner = _CLASSES.get(root)
        found = _of_class(owner) if owner is not None else _of_value(self.args)
        return {member.name: member for member in found if not member.name.startswith("_")}

    def keys(self, root: str) -> list[str]:
        """Return the keys of a name whose value is a mapping."""
        value = self.args if root == "args" and self.has(root) else None
        return [key for key in value if isinstance(key, str)] if isinstance(value, Mapping) else []

    def describe(self, root: str) -> Member | None:
        """Return what is known of a name itself."""
        if not self.has(root):
            return None
        owner = _CLASSES.get(root)
        if owner is None:
            value = self.args
            return Member(root, None, f"{root} : {type(value).__name__}\n\nWhat the cell was given: {value!r}")
        return Member(root, None, f"{root} : {owner.__name__}\n\n{inspect.getdoc(owner)}")


def _of_class(owner: type) -> Iterator[Member]:
    stand_in: object = object.__new__(owner)
    for names, kind, text in _DOCUMENTED.findall(inspect.getdoc(owner) or ""):
        for name in names.split(", "):
            yield Member(name, None, f"{name} : {kind}\n\n{inspect.cleandoc(text)}")
    for name in dir(stand_in):
        value = inspect.getattr_static(owner, name)
        if isinstance(value, property):
            kind = inspect.get_annotations(value.fget).get("return", "") if value.fget else ""
            yield Member(name, None, f"{name} : {kind}\n\n{inspect.getdoc(value)}")
        elif callable(value):
            yield Member(name, getattr(stand_in, name), "")


def _of_value(value: Any) -> Iterator[Member]:
    for name in dir(value):
        member = inspect.getattr_static(value, name, None)
        function = getattr(value, name) if callable(member) else None
        yield Member(name, function, f"{name} : {type(member).__name__}\n\n{member!r}")
