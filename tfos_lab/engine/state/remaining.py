"""Whether any node is still to come, asked once for each of thousands of nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


class Remaining(Generic[_Item]):
    """Looks for an item that something still holds for, beginning with the one that was found last.

    While that one stays, the answer costs one look; all answers together cost about one look at each item.

    Parameters
    ----------
    items : sequence
        What to look at.
    is_pending : callable
        Says whether an item is still to come.
    """

    def __init__(self, items: Sequence[_Item], is_pending: Callable[[_Item], bool]) -> None:
        self._items = items
        self._is_pending = is_pending
        self._at = 0

    def __bool__(self) -> bool:
        """Whether any item is still to come."""
        for step in range(len(self._items)):
            at = (self._at + step) % len(self._items)
            if self._is_pending(self._items[at]):
                self._at = at
                return True
        return False
