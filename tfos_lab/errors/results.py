"""Errors of what a node's function returned: it cannot be sent, stored or decoded, or is too large."""

from __future__ import annotations

from tfos_lab.errors.base import TfosError


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


class ResultNotStored(TfosError, OSError):
    """A large result could not be stored, here or on the host of its node.

    Attributes
    ----------
    place : str
        The folder, and the host.
    reason : str
        Why not.
    """

    place: str
    reason: str

    def __init__(self, *, place: str, reason: str) -> None:
        super().__init__(place=place, reason=reason)

    def __str__(self) -> str:
        return (
            f"the result cannot be stored in {self.place}: {self.reason}. Free some space there, or save it where "
            "there is some, and return the path."
        )


class ResultUnreadable(TfosError, ValueError):
    """The bytes of a result are not what a node of this version sends."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)

    def __str__(self) -> str:
        return f"a node sent a result that cannot be read: {self.reason}"
