"""What arrives instead of an object that is not plain data, and the errors of results."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import Any

from tfos_lab.errors import TfosError


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


class ResultNotSendable(TfosError, TypeError):
    """Something that a node's function returned cannot be sent to the notebook."""

    path: str
    type_name: str
    reason: str

    def __init__(self, *, path: str, type_name: str, reason: str) -> None:
        super().__init__(path=path, type_name=type_name, reason=reason)

    def __str__(self) -> str:
        return (
            f"{self.path} ({self.type_name}) cannot be returned to the notebook: {self.reason}. Return plain data "
            "(numbers, text, arrays, data frames, lists and dicts of them), or save it under ctx.log_dir and return "
            "the path."
        )


class ResultTooLarge(TfosError, ValueError):
    """What a node's function returned is larger than a result may be."""

    path: str
    type_name: str
    size_bytes: int
    limit_bytes: int

    def __init__(self, *, path: str, type_name: str, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(path=path, type_name=type_name, size_bytes=size_bytes, limit_bytes=limit_bytes)

    def __str__(self) -> str:
        return (
            f"the result is too large to return: {self.path} ({self.type_name}) takes {self.size_bytes / 1e6:,.1f} MB, "
            f"and all of it may take {self.limit_bytes / 1e6:,.1f} MB. Save it under ctx.log_dir and return the path."
        )


class ResultUnreadable(TfosError, ValueError):
    """The bytes of a result are not what a node of this version sends."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)

    def __str__(self) -> str:
        return f"a node sent a result that cannot be read: {self.reason}"
