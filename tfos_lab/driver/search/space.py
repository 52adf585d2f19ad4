"""The space of a search: what each parameter may be, the points of a grid, and points drawn from a finite one.

Values are listed, or a distribution of Optuna's, which is imported only where one is asked for.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfos_lab.core.options import is_int
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from optuna.distributions import FloatDistribution

Params = dict[str, Any]

_NEEDED = "a dict of names and values is needed, such as {'lr': [0.1, 0.01], 'units': tfos_lab.search.integers(8, 64)}"
_VALUES = "a list of values, a range, or tfos_lab.search.uniform(low, high), log_uniform, integers or choice"


# ---- what a parameter may be -----------------------------------------------------------------------------------------


def uniform(low: float, high: float) -> FloatDistribution:
    """Return the numbers between two bounds, all equally likely: an Optuna distribution.

    Parameters
    ----------
    low, high : float
        The bounds.

    Raises
    ------
    ConfigError
        If ``low`` is not less than ``high``, or Optuna is missing.
    """
    _require_bounds("uniform", low, high)
    return _floats("uniform", low, high, log=False)


def log_uniform(low: float, high: float) -> FloatDistribution:
    """Return the numbers between two positive bounds, each order of magnitude equally likely: for learning rates.

    Parameters
    ----------
    low, high : float
        The bounds, more than 0.

    Raises
    ------
    ConfigError
        If ``low`` is not less than ``high``, or not positive, or Optuna is missing.
    """
    _require_bounds("log_uniform", low, high)
    if low <= 0:
        raise ConfigError([f"log_uniform({low!r}, {high!r}): both bounds have to be more than 0"])
    return _floats("log_uniform", low, high, log=True)


def integers(low: int, high: int) -> range:
    """Return the whole numbers from ``low`` to ``high``, both included.

    Raises
    ------
    ConfigError
        If the bounds are no whole numbers, or ``low`` is more than ``high``.
    """
    if not is_int(low) or not is_int(high) or low > high:
        raise ConfigError([f"integers({low!r}, {high!r}): two whole numbers are needed, the smaller one first"])
    return range(low, high + 1)


def choice(values: Iterable[Any]) -> list[Any]:
    """Return one of some values; the same as a list of them.

    Raises
    ------
    ConfigError
        If there are none.
    """
    choices = list(values)
    if not choices:
        raise ConfigError(["choice([]): at least one value is needed"])
    return choices


def _require_bounds(name: str, low: object, high: object) -> None:
    are_numbers = all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in (low, high))
    if not are_numbers or not all(map(math.isfinite, (low, high))) or not low < high:  # type: ignore[operator,arg-type]
        raise ConfigError([f"{name}({low!r}, {high!r}): two finite numbers are needed, the smaller one first"])


def _floats(name: str, low: float, high: float, *, log: bool) -> FloatDistribution:
    found: FloatDistribution = import_optuna(name).distributions.FloatDistribution(float(low), float(high), log=log)
    return found


def import_optuna(what: str) -> Any:
    """Return Optuna; raises `ConfigError` with what needs it where it is not installed."""
    try:
        import optuna
    except ImportError:
        advice = "pip install optuna, or tfos_lab[search]; grids of listed values do without"
        raise ConfigError([f"{what} needs Optuna, which is not installed here: {advice}"]) from None
    return optuna


# ---- the space -------------------------------------------------------------------------------------------------------


class Space:
    """One or several sets of parameters with their values; the points of all belong to the space.

    Each of the ``parts`` has a parameter at least, with a list, a range or an Optuna distribution. `names` are all
    parameters, in order, and `endless` those whose values are not listed; `size` is how many points there are, None
    where values are not listed.
    """

    def __init__(self, parts: Sequence[Mapping[str, Any]]) -> None:
        self.parts = [dict(part) for part in parts]
        self.names = list(dict.fromkeys(name for part in self.parts for name in part))
        ends = {name for part in self.parts for name, values in part.items() if not isinstance(values, list | range)}
        self.endless = [name for name in self.names if name in ends]
        self._sizes = [] if ends else [math.prod(map(len, part.values())) for part in self.parts]
        self.size = None if ends else sum(self._sizes)

    def point(self, number: int) -> Params:
        """Return a point of a finite space by its number, from 0; the last parameter changes first."""
        for part, size in zip(self.parts, self._sizes, strict=True):
            if number < size:
                return _point_of(part, number)
            number -= size
        raise IndexError(number)

    def draw(self, count: int, seed: int | None) -> list[Params]:
        """Draw points of a finite space: all different, and no more than there are."""
        assert self.size is not None
        generator = random.Random(seed)  # noqa: S311 - nothing depends on secrecy
        return [self.point(number) for number in generator.sample(range(self.size), min(count, self.size))]


def _point_of(part: Mapping[str, Any], number: int) -> Params:
    point: Params = {}
    for name in reversed(list(part)):
        number, place = divmod(number, len(part[name]))
        point[name] = part[name][place]
    return {name: point[name] for name in part}


def make_space(given: Any) -> Space:
    """Return the space that the user has written down: names, each with values; of a list of such, all points.

    Raises ConfigError with every problem found.
    """
    parts = [given] if isinstance(given, Mapping) else given
    if isinstance(parts, str | bytes) or not isinstance(parts, Sequence):
        raise ConfigError([f"space is a {type(given).__name__}: {_NEEDED}"])
    if not parts or not all(parts):
        raise ConfigError([f"space={given!r} is empty: {_NEEDED}"])
    problems = [problem for part in parts for problem in _problems(part)]
    if problems:
        raise ConfigError(problems)
    return Space([{name: _values_of(values) for name, values in part.items()} for part in parts])


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


def _values_of(given: Any) -> Any:
    """Return a parameter's values: a list or a range where they can be listed, else a distribution."""
    if isinstance(given, range):
        return given
    if _is_listed(given):
        return [_plain(value) for value in given]
    optuna = sys.modules.get("optuna")  # it is imported where there is a distribution
    if optuna is None or not isinstance(given, optuna.distributions.BaseDistribution):
        return [given]
    if isinstance(given, optuna.distributions.CategoricalDistribution):
        return list(given.choices)
    if isinstance(given, optuna.distributions.IntDistribution) and not given.log:
        return range(given.low, given.high + 1, given.step)
    return given


def _is_listed(values: Any) -> bool:
    """Whether these are values to choose from: a list, tuple or range, or an array of one dimension or more."""
    is_array = hasattr(values, "__array__") and hasattr(values, "tolist") and getattr(values, "ndim", 1) > 0
    return isinstance(values, list | tuple | range) or is_array


def _plain(value: Any) -> Any:
    """Return a NumPy scalar as a Python number, whose repr is shorter."""
    is_scalar = hasattr(value, "item") and getattr(value, "ndim", None) == 0
    return value.item() if is_scalar else value
