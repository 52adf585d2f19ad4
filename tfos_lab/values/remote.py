"""What arrives instead of an object that is not plain data."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, repr=False)
class RemoteObject:
    """An object that a node returned, still sealed: its type, its text, and its pickled bytes.

    Unpickling runs code that the bytes name. Whoever controls an executor could send any, so it is left to you to
    say that you trust the node, by calling `load`.

    Attributes
    ----------
    type_name : str
        Name of the object's type on the node.
    text : str
        Its ``repr`` on the node, shortened.
    data : bytes
        The pickled object; empty if only its text was sent.
    """

    type_name: str
    text: str
    data: bytes = field(default=b"", compare=True)

    def load(self) -> Any:
        """Unpickle the object in this process; do so only if you trust the node that sent it."""
        if not self.data:
            raise ValueError(
                f"only the text of this {self.type_name} was sent, because it was the value of the cell's last line. "
                "Write `return` before it to bring the object itself."
            )
        return pickle.loads(self.data)  # noqa: S301 - this is the one place where the user has asked for it

    def __repr__(self) -> str:
        return self.text
