"""What values the params of our Spark ML stages take, and how functions of users get them.

Each check takes the param's name and the value; it returns the value as it is kept, or raises a `ParamError` of one
sentence.
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, KeysView, Mapping
from typing import Any

from tfos_lab.compat.namespace import Namespace
from tfos_lab.core.options import Option, OptionType
from tfos_lab.data.model_files import with_registered_names
from tfos_lab.errors import ParamError

Convert = Callable[[str, Any], Any]

# Params that users' functions do not get: arguments are there by their own names, classes for Keras are none.
_NO_ARGUMENTS = ("args", "customObjects")


def text(name: str, value: Any) -> str:
    """Take a text that is not empty."""
    if isinstance(value, str) and value:
        return str(value)
    raise ParamError([f"{name}={value!r:.60}: a text is needed, such as the name of a column"])


def texts(name: str, value: Any) -> list[str]:
    """Take a list of names, none of them twice, or a single name."""
    names = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []
    if not names or not all(isinstance(each, str) and each for each in names):
        raise ParamError([f"{name}={value!r:.60}: a list of names is needed"])
    twice = sorted({each for each in names if names.count(each) > 1})
    if twice:
        raise ParamError([f"{name}: '{twice[0]}' is there twice"])
    return [str(each) for each in names]


def pairs(name: str, value: Any) -> dict[str, str]:
    """Take a mapping of names to names."""
    if isinstance(value, Mapping) and value and all(isinstance(each, str) for item in value.items() for each in item):
        return dict(value)
    raise ParamError([f"{name}={value!r:.60}: a dict of names to names is needed"])


def label(name: str, value: Any) -> str | list[str] | dict[str, str]:
    """Take a name, a list of names, or a mapping of names to names."""
    if isinstance(value, Mapping):
        return pairs(name, value)
    return texts(name, value) if isinstance(value, list | tuple) else text(name, value)


def path(name: str, value: Any) -> str:
    """Take a path, on any file system."""
    if isinstance(value, str | os.PathLike) and str(value):
        return os.fspath(value)
    raise ParamError([f"{name}={value!r:.60}: a path is needed"])


def flag(name: str, value: Any) -> bool:
    """Take True or False."""
    value = plain(value)
    if isinstance(value, bool):
        return value
    raise ParamError([f"{name}={value!r:.60}: True or False is needed"])


def whole(at_least: int) -> Convert:
    """Take a whole number that is not below a bound."""

    def convert(name: str, value: Any) -> int:
        number = whole_number(value)
        if isinstance(number, bool) or not isinstance(number, int) or number < at_least:
            raise ParamError([f"{name}={value!r:.60}: a whole number is needed that is not less than {at_least}"])
        return number

    return convert


def arguments(name: str, value: Any) -> dict[str, Any]:
    """Take arguments by name: a dict, or a namespace of any kind."""
    if isinstance(value, argparse.Namespace | Namespace) and getattr(value, "argv", None) is None:
        value = vars(value)
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return dict(value)
    raise ParamError([f"{name}={value!r:.60}: use a dict with texts as keys, or an argparse.Namespace"])


def custom_objects(name: str, value: Any) -> dict[str, Any]:
    """Take classes and functions of Keras' by name, and add the names under which Keras has registered them."""
    return with_registered_names(arguments(name, value))


def of_option(option: Option) -> Convert:
    """Take what an option of a cluster takes; see `tfos_lab.core.config`."""

    def convert(name: str, value: Any) -> Any:
        kept = whole_number(value) if option.type is OptionType.WHOLE else plain(value)
        if option.type is OptionType.PATH and isinstance(kept, os.PathLike):
            kept = os.fspath(kept)
        problems = option.problems(kept)
        if problems:
            raise ParamError([problem.replace(option.name, name, 1) for problem in problems])
        return kept

    return convert


def plain(value: Any) -> Any:
    """Return Python's own value for a NumPy scalar, as grids of params have them."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def whole_number(value: Any) -> Any:
    """Return an int for a float without a fraction, as Spark's own params do."""
    value = plain(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def camel_case(name: str) -> str:
    """Return a name as Spark ML writes it.

    Examples
    --------
    >>> camel_case("cluster_size"), camel_case("num_ps")
    ('clusterSize', 'numPS')
    """
    first, *rest = name.split("_")
    return first + "".join("PS" if part == "ps" else part.capitalize() for part in rest)


def snake_case(name: str) -> str:
    """Return a name as Python writes it.

    Examples
    --------
    >>> snake_case("clusterSize"), snake_case("numPS")
    ('cluster_size', 'num_ps')
    """
    return re.sub(r"(?<=[a-z])([A-Z]+)", lambda match: f"_{match[1].lower()}", name)


# ---- what functions get ---------------------------------------------------------------------------------------------


class TrainArgs(Namespace):
    """What a `TFEstimator` gives to functions as ``args``: arguments and params, as attributes and as items.

    Each param has its own name and the same in Python's spelling: ``args.batchSize`` is ``args.batch_size``. Where an
    argument and a param have the same name, the param counts, since it is what the cluster does.

    Examples
    --------
    >>> args = TrainArgs.of({"lr": 0.1}, {"batchSize": 32, "weightCol": None})
    >>> args.lr, args["batchSize"], args.batch_size, args.get("decay", 0.0)
    (0.1, 32, 32, 0.0)
    """

    @classmethod
    def of(cls, arguments: Mapping[str, Any], params: Mapping[str, Any]) -> TrainArgs:
        """Return arguments together with params; params without a value are None."""
        known = {name: value for name, value in params.items() if name not in _NO_ARGUMENTS}
        return cls({**arguments, **{snake_case(name): value for name, value in known.items()}, **known})

    def __getitem__(self, name: str) -> Any:
        return vars(self)[name]

    def keys(self) -> KeysView[str]:
        """Return the names, so that ``dict(args)`` and ``**args`` work."""
        return vars(self).keys()

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument or param, or a default where there is none of this name."""
        return vars(self).get(name, default)
