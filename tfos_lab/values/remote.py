"""What the driver gets for an object that is not plain data."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, repr=False)
class RemoteObject:
    """An object that a node returned, not unpickled yet: its type, its text, and its pickled bytes.

    Unpickling runs code that the bytes choose, and whoever controls an executor can choose the bytes. So nothing is
    unpickled until you call `load`.

    Attributes
    ----------
    type_name : str
        Name of the object's type.
    text : str
        Its ``repr`` on the node, shortened.
    data : bytes
        The pickled object; empty if only its text was sent.
    """

    type_name: str
    text: str
    data: bytes = field(default=b"", compare=True)

    def load(self) -> Any:
        """Unpickle the object in this process. Do so only if you trust the node that sent it."""
        if not self.data:
            raise ValueError(
                f"only the text of this {self.type_name} was sent, because it was the value of the cell's last line. "
                "Write `return` before it to bring the object itself."
            )
        return pickle.loads(self.data)  # noqa: S301 - the user asks for it

    def __repr__(self) -> str:
        return self.text
