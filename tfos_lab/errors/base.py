"""The base class of all errors of tfos_lab."""

from __future__ import annotations


class TfosError(Exception):
    """Base of all errors of tfos_lab. Its fields are attributes and survive pickling."""

    def __init__(self, **fields: object) -> None:
        super().__init__()
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), dict(self.__dict__))

    def __str__(self) -> str:
        return str(self.__dict__.get("reason", type(self).__name__))


def _rebuild(kind: type[TfosError], fields: dict[str, object]) -> TfosError:
    # An error that is also a TimeoutError has the memory layout of an OSError, and needs the `__new__` of that.
    error: TfosError = kind.__base__.__new__(kind)  # type: ignore[call-overload]
    error.__dict__.update(fields)
    return error
