"""Turns the text of an option's value into the value: a literal, an expression of the notebook, or a bare word."""

from __future__ import annotations

import ast
import builtins
import difflib
import keyword
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


class Wrong(ValueError):
    """Why a text is no value for its option."""


class Kind(NamedTuple):
    """What values an option takes: how to say it, and how to get one from a text."""

    name: str
    read: Callable[[str, Mapping[str, Any]], Any]


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the word most like ``word``, if one is alike enough."""
    found = difflib.get_close_matches(word, list(words), n=1, cutoff=0.55)
    return found[0] if found else None


# ---- evaluating -----------------------------------------------------------------------------------------------------


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate an expression with the notebook's names; raises `Wrong` with a reason."""
    try:
        code = compile(text.strip(), "<%%tfos>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise Wrong("this is no Python expression") from error
    try:
        return eval(code, dict(names))  # noqa: S307 - the user's own expression, in the user's own kernel
    except NameError as error:
        close = nearest(error.name or "", (name for name in names if not name.startswith("_")))
        hint = f"; did you mean {close}?" if close else ""
        raise Wrong(f"the notebook has no name {error.name!r}{hint}") from error
    except Exception as error:
        raise Wrong(f"{type(error).__name__}: {error}") from error


def _text_or_value(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate what can be evaluated with the notebook's names; anything else stands for itself, as a text."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return text
    if isinstance(tree.body, ast.Name) and tree.body.id not in names:
        return text
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if all(name in names or hasattr(builtins, name) for name in used):
        return evaluate(text, names)
    return text


def _class_names(value: Any, package: str) -> set[str]:
    return {
        base.__name__
        for base in type(value).__mro__
        if (base.__module__ or "").partition(".")[0] == package and not base.__module__.startswith("pyspark.pandas")
    }


def is_session(value: Any) -> bool:
    """Whether a value is a SparkSession, classic or Connect; imports nothing to find out."""
    return "SparkSession" in _class_names(value, "pyspark")


# ---- one reader for each kind of value ------------------------------------------------------------------------------


def _read_whole(text: str, names: Mapping[str, Any]) -> int:
    value = evaluate(text, names)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise Wrong(f"a whole number is needed, not {_kind_of(value)}")
    return int(value.__index__())


def _read_whole_or_none(text: str, names: Mapping[str, Any]) -> int | None:
    return None if text == "None" else _read_whole(text, names)


def _read_seconds(text: str, names: Mapping[str, Any]) -> float:
    value = evaluate(text, names)
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise Wrong(f"a number of seconds is needed, not {_kind_of(value)}")
    seconds = float(value)
    if not seconds >= 0:
        raise Wrong("a number of seconds cannot be negative")
    return seconds


def _read_flag(text: str, names: Mapping[str, Any]) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    value = evaluate(text, names)
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise Wrong(f"true or false is needed, not {_kind_of(value)}")


def _read_label(text: str, names: Mapping[str, Any]) -> str:
    # A bare word is itself: after the first run it is also a variable, which holds the cluster.
    value = text if text.isidentifier() else _text_or_value(text, names)
    if not isinstance(value, str):
        raise Wrong(f"a name is needed, not {_kind_of(value)}")
    if not value.isidentifier() or keyword.iskeyword(value):
        close = "".join(char if char.isalnum() else "_" for char in value)
        hint = f", such as {close}" if close.isidentifier() and not keyword.iskeyword(close) else ""
        raise Wrong(f"a name that a variable can have is needed{hint}: it will hold the cluster")
    return value


def _read_path(text: str, names: Mapping[str, Any]) -> str | None:
    value = _text_or_value(text, names)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    raise Wrong(f"a folder is needed, not {_kind_of(value)}")


def _read_columns(text: str, names: Mapping[str, Any]) -> list[str] | None:
    value = _text_or_value(text, names)
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    columns = list(value) if isinstance(value, list | tuple) else []
    if not columns or not all(isinstance(column, str) and column for column in columns):
        raise Wrong(f"a list of column names is needed, not {_kind_of(value)}")
    return columns


def _read_rows(text: str, names: Mapping[str, Any]) -> Any:
    value = evaluate(text, names)
    if value is None or _class_names(value, "pyspark") & {"DataFrame", "RDD"}:
        return value
    kind = _kind_of(value)
    if type(value).__module__.startswith("pyspark.pandas"):
        raise Wrong(f"a Spark DataFrame or RDD is needed, not {kind}; use its .to_spark()")
    if type(value).__module__.partition(".")[0] in ("pandas", "pyarrow", "numpy"):
        raise Wrong(f"a Spark DataFrame or RDD is needed, not {kind}; make one with spark.createDataFrame({text})")
    if hasattr(value, "foreachRDD"):
        raise Wrong(f"a Spark DataFrame or RDD is needed, not {kind}; read the stream with spark.readStream instead")
    raise Wrong(f"a Spark DataFrame or RDD is needed, not {kind}")


def _read_session(text: str, names: Mapping[str, Any]) -> Any:
    value = evaluate(text, names)
    if value is None or is_session(value):
        return value
    raise Wrong(f"a SparkSession is needed, not {_kind_of(value)}")


def _read_environment(text: str, names: Mapping[str, Any]) -> dict[str, str]:
    value = evaluate(text, names)
    if not isinstance(value, Mapping):
        raise Wrong(f"a dict of names and texts is needed, not {_kind_of(value)}")
    return dict(value)


def _kind_of(value: Any) -> str:
    if value is None:
        return "None"
    package, name = type(value).__module__.partition(".")[0], type(value).__name__
    if isinstance(value, bool | int | float | str | list | tuple | dict) and len(repr(value)) < 40:
        return f"the {name} {value!r}"
    return f"a value of type {name}" if package in ("builtins", "__main__") else f"a {package} {name}"


WHOLE = Kind("whole number", _read_whole)
WHOLE_OR_NONE = Kind("whole number", _read_whole_or_none)
SECONDS = Kind("seconds", _read_seconds)
FLAG = Kind("flag", _read_flag)
LABEL = Kind("name", _read_label)
PATH = Kind("folder", _read_path)
COLUMNS = Kind("list of names", _read_columns)
ROWS = Kind("DataFrame or RDD", _read_rows)
SESSION = Kind("SparkSession", _read_session)
ENVIRONMENT = Kind("dict", _read_environment)
ANYTHING = Kind("anything", evaluate)


def one_of(*choices: str, none: bool = False) -> Kind:
    """Return the kind of an option that takes one of some words (or None)."""

    def read(text: str, names: Mapping[str, Any]) -> str | None:
        if text.lower() in choices:
            return text.lower()
        if none and text == "None":
            return None
        try:
            value = str(evaluate(text, names))
        except Wrong:
            value = text
        if value.lower() in choices:
            return value.lower()
        close = nearest(value, choices)
        hint = f"; did you mean {close}?" if close else ""
        raise Wrong(f"use one of {', '.join(choices)}{', None' if none else ''}{hint}")

    return Kind(" | ".join(choices), read)
