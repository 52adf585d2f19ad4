"""Arguments of a program as attributes, from any of the forms in which programs have them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfos_lab.errors import ConfigError


class Namespace:
    """Arguments as attributes; or a command line, kept as it is in `argv`.

    ``name in namespace`` asks for an attribute, and iteration gives their names. With a command line, both concern its
    words.

    Parameters
    ----------
    d : dict, argparse.Namespace, Namespace or list
        The arguments. A list is a command line such as ``sys.argv``.

    Raises
    ------
    ConfigError
        For anything else.

    Examples
    --------
    >>> args = Namespace({"epochs": 3})
    >>> args.epochs, "epochs" in args, "steps" in args
    (3, True, False)
    >>> args
    Namespace(epochs=3)
    """

    argv: list[str] | None = None

    def __init__(self, d: dict[str, Any] | argparse.Namespace | Namespace | list[str]) -> None:
        if isinstance(d, list):
            self.argv = d
        elif isinstance(d, dict):
            self.__dict__.update(d)
        elif isinstance(d, argparse.Namespace | Namespace):
            self.__dict__.update(vars(d))
        else:
            problem = f"args={d!r:.60}: use a dict, an argparse.Namespace, a Namespace, or a list like sys.argv"
            raise ConfigError([problem])

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __iter__(self) -> Iterator[str]:
        yield from self.argv or vars(self)

    def __repr__(self) -> str:
        if self.argv:
            return str(self.argv)
        shown = ", ".join(f"{name}={value!r}" for name, value in sorted(vars(self).items()))
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        if self.argv:
            return bool(self.argv == other)
        return vars(self) == vars(other) if hasattr(other, "__dict__") else NotImplemented

    # Attributes may change.
    __hash__ = None  # type: ignore[assignment]
