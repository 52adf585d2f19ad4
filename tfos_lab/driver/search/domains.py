"""What one parameter of a search may be: listed values, whole numbers, or numbers of a range. Pure."""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tfos_lab.core.options import is_int
from tfos_lab.errors import ConfigError

# JSON, tables and samplers take values of these types as they are.
PLAIN = (str, int, float, bool, type(None))


class Domain(ABC):
    """The values of one parameter."""

    @property
    def values(self) -> Sequence[Any] | None:
        """All values in order, or None where there is no end of them."""
        return None

    @abstractmethod
    def sample(self, generator: random.Random) -> Any:
        """Draw a value."""


@dataclass(frozen=True)
class Choice(Domain):
    """One of some values."""

    choices: tuple[Any, ...]

    @property
    def values(self) -> Sequence[Any]:
        """The values."""
        return self.choices

    def sample(self, generator: random.Random) -> Any:
        """Draw one of them."""
        return generator.choice(self.choices)


@dataclass(frozen=True)
class Integers(Domain):
    """Whole numbers from ``low`` to ``high``, both included."""

    low: int
    high: int

    @property
    def values(self) -> Sequence[int]:
        """The numbers."""
        return range(self.low, self.high + 1)

    def sample(self, generator: random.Random) -> int:
        """Draw a number."""
        return generator.randint(self.low, self.high)


@dataclass(frozen=True)
class Uniform(Domain):
    """Numbers between ``low`` and ``high``, all equally likely."""

    low: float
    high: float

    def sample(self, generator: random.Random) -> float:
        """Draw a number."""
        return generator.uniform(self.low, self.high)


@dataclass(frozen=True)
class LogUniform(Domain):
    """Numbers between ``low`` and ``high``, each order of magnitude equally likely."""

    low: float
    high: float

    def sample(self, generator: random.Random) -> float:
        """Draw a number."""
        drawn = math.exp(generator.uniform(math.log(self.low), math.log(self.high)))
        return min(self.high, max(self.low, drawn))  # the logarithm rounds


def uniform(low: float, high: float) -> Uniform:
    """Return the numbers between two bounds, all equally likely.

    Parameters
    ----------
    low, high : float
        The bounds.

    Raises
    ------
    ConfigError
        If ``low`` is not less than ``high``.
    """
    _require_bounds("uniform", low, high)
    return Uniform(float(low), float(high))


def log_uniform(low: float, high: float) -> LogUniform:
    """Return the numbers between two positive bounds, each order of magnitude equally likely: for learning rates.

    Parameters
    ----------
    low, high : float
        The bounds, more than 0.

    Raises
    ------
    ConfigError
        If ``low`` is not less than ``high``, or not positive.
    """
    _require_bounds("log_uniform", low, high)
    if low <= 0:
        raise ConfigError([f"log_uniform({low!r}, {high!r}): both bounds have to be more than 0"])
    return LogUniform(float(low), float(high))


def integers(low: int, high: int) -> Integers:
    """Return the whole numbers from ``low`` to ``high``, both included.

    Raises
    ------
    ConfigError
        If the bounds are no whole numbers, or ``low`` is more than ``high``.
    """
    if not is_int(low) or not is_int(high) or low > high:
        raise ConfigError([f"integers({low!r}, {high!r}): two whole numbers are needed, the smaller one first"])
    return Integers(low, high)


def choice(values: Iterable[Any]) -> Choice:
    """Return one of some values; the same as a list of them.

    Raises
    ------
    ConfigError
        If there are none.
    """
    choices = tuple(values)
    if not choices:
        raise ConfigError(["choice([]): at least one value is needed"])
    return Choice(choices)


def _require_bounds(name: str, low: object, high: object) -> None:
    are_numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high))
    if not are_numbers or not all(map(math.isfinite, (low, high))) or not low < high:  # type: ignore[operator,arg-type]
        raise ConfigError([f"{name}({low!r}, {high!r}): two finite numbers are needed, the smaller one first"])
