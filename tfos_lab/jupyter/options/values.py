"""Reads the text of an option's value: a literal, an expression of the notebook, or a bare word."""

from __future__ import annotations

import ast
import builtins
import difflib
import keyword
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tfos_lab.core.gpu_shares import ALL
from tfos_lab.core.options import Option, OptionType

_TRUE = ("true", "yes", "on", "1")
_FALSE = ("false", "no", "off", "0")


class UnreadableValue(ValueError):
    """Why a text is no value of its option."""


def read_value(option: Option, text: str, names: Mapping[str, Any]) -> Any:
    """Return the value that the text of an option stands for.

    Parameters
    ----------
    option : Option
        Its type decides how to read it.
    text : str
        As written on the line.
    names : mapping
        The notebook's names, which expressions refer to.

    Raises
    ------
    UnreadableValue
        With the reason, and what is needed.
    """
    if option.optional and text == "None":
        return None
    if option.type is OptionType.CHOICE:
        return _read_choice(option, text, names)
    return _READERS[option.type](text, names)


def nearest(text: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most like ``text``, if one is similar enough."""
    found = difflib.get_close_matches(text, list(candidates), n=1, cutoff=0.55)
    return found[0] if found else None


# ---- evaluating -----------------------------------------------------------------------------------------------------


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate an expression with the notebook's names; raises `UnreadableValue` with a reason."""
    try:
        code = compile(text.strip(), "<%%tfos>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise UnreadableValue("this is no Python expression") from error
    try:
        return eval(code, dict(names))  # noqa: S307 - the user's own expression, in the user's own kernel
    except NameError as error:
        close = nearest(error.name or "", (name for name in names if not name.startswith("_")))
        hint = f"; did you mean {close}?" if close else ""
        raise UnreadableValue(f"the notebook has no name {error.name!r}{hint}") from error
    except Exception as error:
        raise UnreadableValue(f"{type(error).__name__}: {error}") from error


def _text_or_value(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate what can be evaluated with the notebook's names; anything else is taken as text."""
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


# ---- one reader for each type ---------------------------------------------------------------------------------------


def _read_whole(text: str, names: Mapping[str, Any]) -> int:
    value = evaluate(text, names)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UnreadableValue(f"a whole number is needed, not {_describe(value)}")
    return int(value.__index__())


def _read_seconds(text: str, names: Mapping[str, Any]) -> float:
    value = evaluate(text, names)
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise UnreadableValue(f"a number of seconds is needed, not {_describe(value)}")
    seconds = float(value)
    if not seconds >= 0:
        raise UnreadableValue("a number of seconds cannot be negative")
    return seconds


def _read_flag(text: str, names: Mapping[str, Any]) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    value = evaluate(text, names)
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise UnreadableValue(f"true or false is needed, not {_describe(value)}")


def _read_label(text: str, names: Mapping[str, Any]) -> str:
    # A bare name is text: after the first run it is also a variable, which holds the cluster.
    value = text if text.isidentifier() else _text_or_value(text, names)
    if not isinstance(value, str):
        raise UnreadableValue(f"a name is needed, not {_describe(value)}")
    if not value.isidentifier() or keyword.iskeyword(value):
        close = "".join(char if char.isalnum() else "_" for char in value)
        hint = f", such as {close}" if close.isidentifier() and not keyword.iskeyword(close) else ""
        raise UnreadableValue(f"a name that a variable can have is needed{hint}: it will hold the cluster")
    return value


def _read_path(text: str, names: Mapping[str, Any]) -> str | None:
    value = _text_or_value(text, names)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return str(value)
    raise UnreadableValue(f"a folder is needed, not {_describe(value)}")


def _read_columns(text: str, names: Mapping[str, Any]) -> list[str] | None:
    value = _text_or_value(text, names)
    if value is None:
        return None
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",")]
    columns = list(value) if isinstance(value, list | tuple) else []
    if not columns or not all(isinstance(column, str) and column for column in columns):
        raise UnreadableValue(f"a list of column names is needed, not {_describe(value)}")
    return columns


def _read_rows(text: str, names: Mapping[str, Any]) -> Any:
    try:
        value = evaluate(text, names)
    except UnreadableValue as error:
        if "/" in text and not text.startswith(("'", '"')):
            raise UnreadableValue(f"{error}; for files, write quotes: data='{text}'") from error
        raise
    from tfos_lab.engine.feed.arrays import is_in_memory
    from tfos_lab.engine.feed.files.names import names_files

    if value is None or _class_names(value, "pyspark") & {"DataFrame", "RDD", "DStream"} or is_in_memory(value):
        return value
    if names_files(value):
        return value
    needed = "a Spark DataFrame or RDD, a pandas DataFrame, NumPy arrays, or names of files are needed"
    raise UnreadableValue(f"{needed}, not {_describe(value)}{_rows_hint(value, text)}")


def _rows_hint(value: Any, text: str) -> str:
    """Return how to make a DataFrame of a value, where that is known."""
    module = type(value).__module__
    if module.startswith("pyspark.pandas"):
        return "; use its .to_spark()"
    if module.partition(".")[0] == "pyarrow":
        return f"; make a DataFrame with spark.createDataFrame({text})"
    if module.partition(".")[0] == "pandas":
        return f"; make a DataFrame with {text}.to_frame()"
    return ""


def _read_session(text: str, names: Mapping[str, Any]) -> Any:
    value = evaluate(text, names)
    if value is None or is_session(value):
        return value
    raise UnreadableValue(f"a SparkSession is needed, not {_describe(value)}")


def _read_environment(text: str, names: Mapping[str, Any]) -> dict[str, str]:
    value = evaluate(text, names)
    if not isinstance(value, Mapping):
        raise UnreadableValue(f"a dict of names and texts is needed, not {_describe(value)}")
    return dict(value)


def _read_gpus(text: str, names: Mapping[str, Any]) -> Any:
    if text.lower() == ALL:
        return ALL
    value = evaluate(text, names)
    return dict(value) if isinstance(value, Mapping) else _read_whole(text, names)


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    package, name = type(value).__module__.partition(".")[0], type(value).__name__
    if isinstance(value, bool | int | float | str | list | tuple | dict) and len(repr(value)) < 40:
        return f"the {name} {value!r}"
    return f"a value of type {name}" if package in ("builtins", "__main__") else f"a {package} {name}"


def _read_choice(option: Option, text: str, names: Mapping[str, Any]) -> str:
    if text.lower() in option.choices:
        return text.lower()
    try:
        value = str(evaluate(text, names))
    except UnreadableValue:
        value = text
    if value.lower() in option.choices:
        return value.lower()
    close = nearest(value, option.choices)
    hint = f"; did you mean {close}?" if close else ""
    raise UnreadableValue(f"use one of {', '.join(all_choices(option))}{hint}")


def all_choices(option: Option) -> tuple[str, ...]:
    """Return the choices of an option, None included where it is allowed."""
    return (*option.choices, "None") if option.optional and option.choices else option.choices


_READERS: dict[OptionType, Callable[[str, Mapping[str, Any]], Any]] = {
    OptionType.WHOLE: _read_whole,
    OptionType.SECONDS: _read_seconds,
    OptionType.FLAG: _read_flag,
    OptionType.LABEL: _read_label,
    OptionType.PATH: _read_path,
    OptionType.COLUMNS: _read_columns,
    OptionType.ENVIRONMENT: _read_environment,
    OptionType.GPUS: _read_gpus,
    OptionType.ROWS: _read_rows,
    OptionType.SESSION: _read_session,
    OptionType.ANYTHING: evaluate,
}
