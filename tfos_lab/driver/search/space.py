"""The space of a search: which parameters there are, their points in order, and points drawn at random. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfos_lab.driver.search.domains import Choice, Domain
from tfos_lab.errors import ConfigError

Params = dict[str, Any]

_NEEDED = "a dict of names and values is needed, such as {'lr': [0.1, 0.01], 'units': tfos_lab.search.integers(8, 64)}"
_VALUES = "a list of values, a range, or tfos_lab.search.uniform(low, high), log_uniform, integers or choice"


class Space:
    """One or several sets of parameters with their values; the points of all belong to the space.

    Parameters
    ----------
    parts : sequence of dict of str to Domain
        The sets; each has a parameter at least.

    Attributes
    ----------
    names : list of str
        All parameters, in order.
    size : int or None
        How many points there are; None where there is no end of them.
    """

    def __init__(self, parts: Sequence[Mapping[str, Domain]]) -> None:
        self.parts = [dict(part) for part in parts]
        self.names = list(dict.fromkeys(name for part in self.parts for name in part))
        sizes = [_size_of(part) for part in self.parts]
        self.size = None if None in sizes else sum(size or 0 for size in sizes)
        self._sizes = sizes

    @property
    def endless(self) -> list[str]:
        """The parameters that have no end of values."""
        return [name for name in self.names if any(name in part and part[name].values is None for part in self.parts)]

    def point(self, number: int) -> Params:
        """Return a point of a finite space by its number, from 0; the last parameter changes first."""
        for part, size in zip(self.parts, self._sizes, strict=True):
            assert size is not None
            if number < size:
                return _point_of(part, number)
            number -= size
        raise IndexError(number)

    def sample(self, count: int, generator: random.Random) -> Iterator[Params]:
        """Draw points; those of a finite space are all different, and no more than there are."""
        if self.size is not None:
            yield from map(self.point, generator.sample(range(self.size), min(count, self.size)))
            return
        for _ in range(count):
            part = generator.choice(self.parts)
            yield {name: domain.sample(generator) for name, domain in part.items()}


def _size_of(part: Mapping[str, Domain]) -> int | None:
    values = [domain.values for domain in part.values()]
    return None if any(one is None for one in values) else math.prod(len(one) for one in values if one is not None)


def _point_of(part: Mapping[str, Domain], number: int) -> Params:
    point: Params = {}
    for name in reversed(list(part)):
        values = part[name].values
        assert values is not None
        number, place = divmod(number, len(values))
        point[name] = values[place]
    return {name: point[name] for name in part}


def make_space(given: Any) -> Space:
    """Return the space that the user has written down.

    Parameters
    ----------
    given : Mapping, or list of Mapping
        Names, each with a list of values, a range, a `Domain`, or a single value. Of a list, all points are searched.

    Raises
    ------
    ConfigError
        With every problem found.
    """
    parts = [given] if isinstance(given, Mapping) else given
    if isinstance(parts, str | bytes) or not isinstance(parts, Sequence):
        raise ConfigError([f"space is a {type(given).__name__}: {_NEEDED}"])
    if not parts or not all(parts):
        raise ConfigError([f"space={given!r} is empty: {_NEEDED}"])
    problems = [problem for part in parts for problem in _problems(part)]
    if problems:
        raise ConfigError(problems)
    return Space([{name: _domain_of(values) for name, values in part.items()} for part in parts])


def _problems(part: Any) -> Iterator[str]:
    if not isinstance(part, Mapping):
        yield f"space has a {type(part).__name__} in it: {_NEEDED}"
        return
    for name, values in part.items():
        if not isinstance(name, str) or not name:
            yield f"space[{name!r}]: the name of a parameter has to be a string"
        elif _is_listed(values) and len(values) == 0:
            yield f"space[{name!r}] is empty: it needs at least one value"
        elif not _is_listed(values) and (isinstance(values, set | frozenset) or hasattr(values, "__next__")):
            yield f"space[{name!r}] is a {type(values).__name__}: {_VALUES} is needed"


def _domain_of(values: Any) -> Domain:
    if isinstance(values, Domain):
        return values
    return Choice(tuple(_plain(value) for value in values) if _is_listed(values) else (values,))


def _is_listed(values: Any) -> bool:
    """Whether these are values to choose from: a list, tuple or range, or an array of one dimension or more."""
    is_array = hasattr(values, "__array__") and hasattr(values, "tolist") and getattr(values, "ndim", 1) > 0
    return isinstance(values, list | tuple | range) or is_array


def _plain(value: Any) -> Any:
    """Return a number of NumPy's as Python's; its name would be longer than the number."""
    is_scalar = hasattr(value, "item") and getattr(value, "ndim", None) == 0
    return value.item() if is_scalar else value
