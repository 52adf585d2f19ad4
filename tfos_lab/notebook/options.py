"""The options of a ``%%tfos`` cell: its line, the defaults that hold where it says nothing, and the documents of both.

Options that the driver has too are declared in `tfos_lab.core.config`; those that only a cell has are declared here.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import keyword
import logging
import os
import re
import textwrap
from collections import ChainMap
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypedDict, TypeVar

from tfos_lab.core.config import ClusterConfig, ClusterOptions, FeedConfig, FeedOptions
from tfos_lab.core.options import (
    Option,
    OptionGroup,
    OptionType,
    Settings,
    options_for,
    part_of,
    problems_in,
    settings_of,
)
from tfos_lab.errors import ConfigError
from tfos_lab.node.context.rows import RowMethods
from tfos_lab.texts import nearest

if TYPE_CHECKING:
    from traitlets.config import Config

logger = logging.getLogger(__name__)

T = TypeVar("T")


# ---- what only a cell's line has ------------------------------------------------------------------------------------


def _check_rows(name: str, value: object) -> Iterable[str]:
    from tfos_lab.driver.feed.arrays import is_in_memory
    from tfos_lab.driver.feed.files.source import names_files

    is_sparks = _names_in_pyspark(value) & {"DataFrame", "RDD", "DStream"}
    if value is None or is_sparks or is_in_memory(value) or names_files(value):
        return
    module = type(value).__module__
    made = {"pandas": "use its .to_frame()", "pyarrow": "make a DataFrame with spark.createDataFrame(...)"}
    hint = "use its .to_spark()" if module.startswith("pyspark.pandas") else made.get(module.partition(".")[0], "")
    needed = "a Spark DataFrame or RDD, a pandas DataFrame, NumPy arrays, or names of files are needed"
    yield f"{name}: {needed}, not {_describe(value)}" + (f"; {hint}" if hint else "")


def _check_session(name: str, value: object) -> Iterable[str]:
    if value is not None and not is_session(value):
        yield f"{name}: a SparkSession is needed, not {_describe(value)}"


def is_session(value: object) -> bool:
    """Whether a value is a SparkSession, classic or Connect; imports nothing to find out."""
    return "SparkSession" in _names_in_pyspark(value)


def _names_in_pyspark(value: object) -> set[str]:
    return {
        base.__name__
        for base in type(value).__mro__
        if base.__module__.startswith("pyspark.") and not base.__module__.startswith("pyspark.pandas")
    }


def _describe(value: object) -> str:
    package, name = type(value).__module__.partition(".")[0], type(value).__name__
    if isinstance(value, bool | int | float | str | list | tuple | dict) and len(repr(value)) < 40:
        return f"the {name} {value!r}"
    return f"a value of type {name}" if package in ("builtins", "__main__") else f"a {package} {name}"


class OfCells(TypedDict, total=False):
    """What only a cell's line has."""

    data: Annotated[
        Any,
        Option(
            "rows to feed, of Spark, pandas or NumPy, or files of Parquet, TFRecords, CSV or JSON to read "
            "(`'…/*.parquet'`, a folder, a table); "
            "`ctx.dataset(batch_size)` or `ctx.data_feed()` reads them",
            group=OptionGroup.ROWS,
            type=OptionType.ROWS,
            check=_check_rows,
        ),
    ]
    validation: Annotated[
        Any,
        Option(
            "rows to validate with, for `ctx.validation(batch_size)`: a source as for `data`, a fraction of it that is "
            "held out, such as `0.1`, or a dict of either by name, for `ctx.dataset(batch_size, split=NAME)`",
            group=OptionGroup.ROWS,
        ),
    ]
    args: Annotated[Any, Option("what the cell sees as `args`", group=OptionGroup.CELL)]
    spark: Annotated[
        Any,
        Option(
            "whose executors to use",
            group=OptionGroup.CLUSTER,
            type=OptionType.SESSION,
            default_text="the active session",
            check=_check_session,
        ),
    ]
    on: Annotated[
        str | None,
        Option(
            "run the cell on this cluster, which `%tfos start` has left waiting, or on some of its nodes "
            "(`crew/worker:1`, `crew/worker`); names stay on them",
            group=OptionGroup.CELL,
            type=OptionType.LABEL,
            default_text="a cluster of its own",
        ),
    ]
    background: Annotated[
        bool, Option("return at once; the output goes on updating", default=False, group=OptionGroup.CELL)
    ]


@settings_of(OfCells)
class CellOptions(Settings):
    """What the line of a ``%%tfos`` cell asks for.

    ``given`` are the options that are on the line, by name, with their values as read; ``defaults`` those that are not,
    and have another default here than the built-in one.
    """

    if TYPE_CHECKING:

        def __init__(self, **values: Any) -> None: ...

    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    feed: FeedConfig = field(default_factory=FeedConfig)
    given: Mapping[str, object] = field(default_factory=dict, compare=False)
    defaults: Mapping[str, object] = field(default_factory=dict, compare=False)


_GROUPS = list(OptionGroup)
OPTIONS = tuple(
    sorted(
        (one for owner in (ClusterOptions, OfCells, FeedOptions) for one in options_for(owner, "run")),
        key=lambda one: _GROUPS.index(one.group),
    )
)
BY_NAME: Mapping[str, Option] = {one.name: one for one in OPTIONS}

# What people who know other tools write first.
_SYNONYMS = {
    "num_executors": "cluster_size",
    "num_workers": "cluster_size",
    "workers": "cluster_size",
    "num_nodes": "cluster_size",
    "size": "cluster_size",
    "n": "cluster_size",
    "ps": "num_ps",
    "df": "data",
    "validation_data": "validation",
    "validation_split": "validation",
    "dataset": "data",
    "num_epochs": "epochs",
    "tb": "tensorboard",
    "driver_ps_nodes": "num_ps",
    "timeout": "start_timeout",
    "input_mode": "data",
}


# ---- a line as items ------------------------------------------------------------------------------------------------

_KEY = re.compile(r"([A-Za-z_]\w*)(?:(\s*=(?!=)\s*)|(?=\s|$))")
# A string, which may lack its end; a bracket; or anything else that is no space.
_PIECE = re.compile(
    r"""(?P<string>(?P<quote>'{3}|"{3}|'|")(?:\\.|(?!(?P=quote)).)*(?P<end>(?P=quote))?)"""
    r"""|(?P<open>[([{])|(?P<close>[)\]}])|\S|\s+""",
    re.DOTALL,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}


class Item(NamedTuple):
    """One option as written, which ends at this position of the line; ``value`` is None for a bare flag."""

    key: str
    value: str | None
    end: int


class Line(NamedTuple):
    """The items of a line, and what is wrong with it."""

    items: list[Item]
    problems: list[str]


def split_line(line: str) -> Line:
    """Split what follows ``%%tfos`` into ``key=value`` and bare flags; a ``#`` begins a comment.

    Values end at a space that is not within brackets or quotes.
    """
    items: list[Item] = []
    problems: list[str] = []
    position = len(line) - len(line.lstrip())
    while position < len(line) and line[position] != "#":
        found = _KEY.match(line, position)
        if found is None:
            word, position, _ = _read_text(line, position)
            problems.append(
                f"{word!r}: options are written key=value, and a value with spaces needs brackets or quotes around it"
            )
        elif found[2] is None:
            position = found.end()
            items.append(Item(found[1], None, position))
        else:
            value, position, problem = _read_text(line, found.end())
            if problem:
                problems.append(f"{found[1]}={value}: {problem}")
                break
            items.append(Item(found[1], value, position))
        position = len(line) - len(line[position:].lstrip())
    return Line(items, problems)


def _read_text(line: str, start: int) -> tuple[str, int, str]:
    """Return the text of a value, its end, and what is not closed in it, if anything."""
    expected: list[str] = []
    position = start
    for found in _PIECE.finditer(line, start):
        if found[0].isspace() and not expected:
            break
        if found["string"] and not found["end"]:
            return line[start:], len(line), f"the quote {found['quote'][0]} is not closed"
        if found["open"]:
            expected.append(_CLOSING[found["open"]])
        elif expected and found["close"] == expected[-1]:
            expected.pop()
        position = found.end()
    return line[start:position], position, f"the bracket for {expected[-1]!r} is not closed" if expected else ""


# ---- a text as a value ----------------------------------------------------------------------------------------------

_FLAGS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class UnreadableValue(ValueError):
    """Why a text is no value of its option."""


def read_value(option: Option, text: str, names: Mapping[str, Any]) -> Any:
    """Return the value that the text of an option stands for: a literal, an expression of the notebook, or a bare word.

    The option's type decides what may be a bare word; for what is none of these, raises `UnreadableValue`. Whether the
    value fits the option is another question: `Option.problems`.
    """
    if option.optional and text == "None":
        return None
    word = text.lower()
    if option.type is OptionType.FLAG and word in _FLAGS:
        return _FLAGS[word]
    if word in option.choices or (option.type is OptionType.GPUS and word == "all"):
        return word
    match option.type:
        case OptionType.LABEL:
            # A bare name is text: after the first run it is also a variable, which holds the cluster.
            return text if text.isidentifier() else _text_or_value(text, names)
        case OptionType.PATH:
            value = _text_or_value(text, names)
            return os.fspath(value) if isinstance(value, os.PathLike) else value
        case OptionType.CHOICE:
            value = _text_or_value(text, names)
            return value.lower() if isinstance(value, str) else value
        case OptionType.COLUMNS:
            value = _text_or_value(text, names)
            if isinstance(value, str):
                value = [part.strip() for part in value.split(",")]
            return list(value) if isinstance(value, tuple) else value
    value = evaluate(text, names)
    if option.type in (OptionType.WHOLE, OptionType.SECONDS, OptionType.FLAG, OptionType.GPUS):
        return value.item() if getattr(value, "ndim", None) == 0 else value  # NumPy's numbers, as Python's
    return value


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """Evaluate an expression with the notebook's names; raises `UnreadableValue` with a reason."""
    try:
        code = compile(text.strip(), "<%%tfos>", "eval", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        hint = f"; for files, write quotes: '{text}'" if "/" in text and text[:1] not in "'\"" else ""
        raise UnreadableValue(f"this is no Python expression{hint}") from error
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


# ---- a line as options ----------------------------------------------------------------------------------------------


def parse_options(line: str, names: Mapping[str, Any]) -> CellOptions:
    """Read the line of a ``%%tfos`` cell; a `ConfigError` has every problem found, and what is allowed."""
    given, problems = read_line(line, names)
    defaults = {name: value for name, value in DEFAULTS.items() if name not in given}
    values = {**defaults, **given}
    problems += [*problems_in(OfCells, part_of(OfCells, values)), *_problems_of_name(given.get("name"))]
    cluster = _build(ClusterConfig, part_of(ClusterOptions, values), problems)
    feed = _build(FeedConfig, part_of(FeedOptions, values), problems)
    if problems or cluster is None or feed is None:
        raise ConfigError(problems)
    return CellOptions(cluster=cluster, feed=feed, given=given, defaults=defaults, **part_of(OfCells, values))


def read_line(line: str, names: Mapping[str, Any]) -> tuple[dict[str, object], list[str]]:
    """Return the values that are on a line, by the names of the options, and what is no option and no value."""
    items, problems = split_line(line)
    given: dict[str, object] = {}
    for key, text, _ in items:
        known = BY_NAME.get(key)
        if known is None:
            problems.append(f"unknown option {key!r}; {_hint(key)}")
        elif key in given:
            problems.append(f"{key} is given twice")
        elif not text and not (text is None and known.type is OptionType.FLAG):
            problems.append(f"{key} needs a value: {key}={known.choices[0] if known.choices else f'<{known.type}>'}")
        else:
            try:
                given[key] = True if text is None else read_value(known, text, names)
            except UnreadableValue as error:
                problems.append(f"{key}={text}: {error}")
    return given, problems


def _hint(key: str) -> str:
    """Return what to write instead of a word that is no option."""
    if key in inspect.signature(RowMethods.dataset).parameters:
        return f"the cell gives it where it reads rows: ctx.dataset({key}=...)"
    close = _SYNONYMS.get(key.lower()) or nearest(key, BY_NAME)
    return f"did you mean {close}?" if close else "%%tfos? lists all options"


def _problems_of_name(name: object) -> list[str]:
    """Return why a variable of the notebook cannot have the name of a cluster."""
    if not isinstance(name, str) or not name or (name.isidentifier() and not keyword.iskeyword(name)):
        return []  # what is no text at all, `ClusterConfig` says
    close = "".join(char if char.isalnum() else "_" for char in name)
    hint = f", such as {close}" if close.isidentifier() and not keyword.iskeyword(close) else ""
    return [f"name={name}: a name that a variable can have is needed{hint}: it will hold the cluster"]


def _build(kind: type[T], given: Mapping[str, Any], problems: list[str]) -> T | None:
    """Return what the driver is asked for, or add the problems."""
    try:
        return kind(**given)
    except ConfigError as error:
        problems += error.problems
        if DEFAULTS:
            told = ", ".join(f"{name}={value!r} ({source_of(name)})" for name, value in DEFAULTS.items())
            problems.append(f"defaults that hold here: {told}")
        return None


def is_for_waiting_nodes(line: str) -> bool:
    """Whether the line of a ``%%tfos`` cell names nodes that wait, instead of starting some."""
    return any(item.key == "on" for item in split_line(line).items)


# ---- defaults -------------------------------------------------------------------------------------------------------

#: The defaults of this process, which has one notebook: those of ``%tfos config``, over an administrator's
#: (``c.TfosLab.cluster_size = 4``). They hold for cells only: who calls `tfos_lab.run` says everything. Who sets them
#: checks them.
DEFAULTS: ChainMap[str, object] = ChainMap({}, {})
_SOURCES = ("%tfos config", "configuration")


def source_of(name: str) -> str:
    """Return who has set a default, or "" for a built-in one."""
    return next((source for source, own in zip(_SOURCES, DEFAULTS.maps, strict=True) if name in own), "")


def forget_defaults() -> None:
    """Remove all defaults that differ from the built-in ones."""
    for own in DEFAULTS.maps:
        own.clear()


# What belongs to one cell, and has no default that fits others.
_OF_ONE_CELL = (OptionType.ROWS, OptionType.SESSION, OptionType.ANYTHING, OptionType.LABEL, OptionType.COLUMNS)

CONFIGURABLE: Mapping[str, Option] = {one.name: one for one in OPTIONS if one.type not in _OF_ONE_CELL}


def read_configuration(config: Config) -> None:
    """Take over the defaults of IPython's configuration; a wrong one is named in the log, and left out."""
    own = DEFAULTS.maps[1]
    own.clear()
    given = dict(config["TfosLab"]) if "TfosLab" in config else {}
    for name, value in given.items():
        problems = problems_with(name, value)
        if problems:
            logger.warning("c.TfosLab.%s; it does not count", "; ".join(problems))
        else:
            own[name] = value


def problems_with(name: str, value: object) -> list[str]:
    """Return what is wrong with a default of an option, in sentences that begin with the option's name."""
    known = CONFIGURABLE.get(name)
    if known is None:
        close = nearest(name, CONFIGURABLE)
        return [f"{name}: has no default to set; " + (f"did you mean {close}?" if close else "%tfos config lists all")]
    return known.problems(value)


# ---- documents ------------------------------------------------------------------------------------------------------


def describe_options() -> str:
    """Return all options as text, for ``%%tfos?``."""
    width = max(len(one.name) for one in OPTIONS) + 2
    texts = (f"{one.name:<{width}}{one.meaning} [{one.type_text}; {one.shown_default}]" for one in OPTIONS)
    return "\n".join(folded(text, 0, width) for text in texts)


def folded(text: str, first: int, rest: int) -> str:
    """Return a text in short lines, with so many spaces before them: pagers break longer ones within words."""
    return textwrap.fill(text, 88, initial_indent=" " * first, subsequent_indent=" " * rest, break_on_hyphens=False)
