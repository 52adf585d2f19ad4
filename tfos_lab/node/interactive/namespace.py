"""The names of an interactive node, kept from cell to cell, and what a cell is when it arrives."""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tfos_lab.node.invoke import call_map_fun

if TYPE_CHECKING:
    from tfos_lab.node.context.context import NodeContext

_GIVEN = ("args", "ctx")


@dataclass(frozen=True, kw_only=True)
class InteractiveCell:
    """A cell as it travels.

    Attributes
    ----------
    body, last : code or None
        Its statements, and its last expression, whose value is the cell's.
    function : callable or None
        To be called with ``(args, ctx)`` instead.
    captured : mapping of str to object
        The notebook's values of names that the cell uses.
    """

    body: types.CodeType | None = None
    last: types.CodeType | None = None
    function: Callable[..., Any] | None = None
    captured: Mapping[str, Any] = field(default_factory=dict)


class Namespace:
    """One node's names: those that cells have made stay; any other is the notebook's, as it was when the cell was run.

    Parameters
    ----------
    args : object
        What the cluster was started with.
    ctx : NodeContext
        The node.
    """

    def __init__(self, args: Any, ctx: NodeContext) -> None:
        self._args, self._ctx = args, ctx
        # Classes that a cell defines belong to this module, and pickle looks for them there.
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        self._names = vars(module)
        self._names.update(args=args, ctx=ctx, __builtins__=builtins)
        self._captured: dict[str, Any] = {}

    def run(self, cell: InteractiveCell) -> Any:
        """Run a cell; return the value of its last expression, or what its function returns."""
        if cell.function is not None:
            return call_map_fun(cell.function, self._args, self._ctx)
        self._take(cell.captured)
        if cell.body is not None:
            exec(cell.body, self._names)  # noqa: S102 - it is the request
        return eval(cell.last, self._names) if cell.last is not None else None  # noqa: S307 - as above

    def _take(self, captured: Mapping[str, Any]) -> None:
        own = set(self.own)
        for name, value in captured.items():
            if name not in own:
                self._names[name] = self._captured[name] = value

    @property
    def own(self) -> list[str]:
        """The names that cells have made on this node, sorted."""
        return sorted(
            name
            for name, value in self._names.items()
            if not name.startswith("__")
            and name not in _GIVEN
            and not (name in self._captured and self._captured[name] is value)
        )
