"""The options of a ``%%tfos`` cell, for parsing, ``%%tfos?`` and completion.

Options that the engine has too are declared in `tfos_lab.core.config`; those that only a cell has are declared here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, TypeVar

from tfos_lab.core.config import ClusterConfig, ClusterOptions, FeedConfig, FeedOptions
from tfos_lab.core.options import Option, OptionGroup, OptionType, Settings, options_for, part_of, settings_of
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.options.defaults import DEFAULTS
from tfos_lab.jupyter.options.line import Item, split_line
from tfos_lab.jupyter.options.values import UnreadableValue, nearest, read_value

T = TypeVar("T")


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
        ),
    ]
    on: Annotated[
        str | None,
        Option(
            "run the cell on this cluster, which `%tfos start` has left waiting; names stay on its nodes",
            group=OptionGroup.CELL,
            type=OptionType.LABEL,
            default_text="a cluster of its own",
        ),
    ]
    nodes: Annotated[
        list[str] | None,
        Option(
            "with `on`: which of its nodes, such as `worker:1`, or all `worker`",
            group=OptionGroup.CELL,
            default_text="all",
        ),
    ]
    background: Annotated[
        bool, Option("return at once; the output goes on updating", default=False, group=OptionGroup.CELL)
    ]
    replace: Annotated[
        bool, Option("stop a running cluster of the same name first", default=False, group=OptionGroup.CELL)
    ]


@settings_of(OfCells)
class CellOptions(Settings):
    """What the line of a ``%%tfos`` cell asks for.

    Attributes
    ----------
    cluster, feed : ClusterConfig, FeedConfig
        What the engine is asked for.
    given : mapping of str to object
        The options that are on the line, by name, with their values as read.
    defaults : mapping of str to object
        Those that are not, and have another default here than the built-in one.
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
BY_NAME = {one.name: one for one in OPTIONS}

# A cell with one of these runs on nodes that wait.
OF_WAITING_NODES = ("on", "nodes")

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


def parse_options(line: str, names: Mapping[str, Any]) -> CellOptions:
    """Read the line of a ``%%tfos`` cell.

    Parameters
    ----------
    line : str
        What follows ``%%tfos``.
    names : mapping
        The notebook's names, which expressions refer to.

    Raises
    ------
    ConfigError
        With every problem found, and what is allowed.
    """
    items, problems = split_line(line, takes_value)
    given: dict[str, object] = {}
    for item in items:
        problem = read_item(item, names, given)
        if problem:
            problems.append(problem)
    defaults = {name: value for name, value in DEFAULTS.values().items() if name not in given}
    values = {**defaults, **given}
    cluster = _build(ClusterConfig, part_of(ClusterOptions, values), problems)
    feed = _build(FeedConfig, part_of(FeedOptions, values), problems)
    if problems or cluster is None or feed is None:
        raise ConfigError(problems)
    return CellOptions(cluster=cluster, feed=feed, given=given, defaults=defaults, **part_of(OfCells, values))


def is_for_waiting_nodes(line: str) -> bool:
    """Whether the line of a ``%%tfos`` cell chooses nodes that wait, instead of starting some."""
    return any(item.key in OF_WAITING_NODES for item in split_line(line, takes_value).items)


def takes_value(name: str) -> bool:
    """Whether ``--name`` is followed by a value: all known options but flags."""
    known = BY_NAME.get(name)
    return known is not None and known.type is not OptionType.FLAG


def _build(kind: type[T], given: Mapping[str, Any], problems: list[str]) -> T | None:
    """Return what the engine is asked for, or add the problems."""
    try:
        return kind(**given)
    except ConfigError as error:
        problems += error.problems
        if set_elsewhere := DEFAULTS.describe():
            problems.append(f"defaults that hold here: {set_elsewhere}")
        return None


def read_item(item: Item, names: Mapping[str, Any], given: dict[str, object]) -> str | None:
    """Put the item's value into ``given``, or return what is wrong with it."""
    known = BY_NAME.get(item.key)
    if known is None:
        return _unknown(item)
    if item.key in given:
        return f"{item.key} is given twice"
    text = item.value
    if text is None and known.type is OptionType.FLAG:
        text = "true"
    if not text:
        return f"{item.key} needs a value: {item.key}={_example(known)}"
    try:
        given[item.key] = read_value(known, text, names)
    except UnreadableValue as error:
        return f"{item.key}={text}: {error}"
    return None


def _unknown(item: Item) -> str:
    close = _SYNONYMS.get(item.key.lower()) or nearest(item.key, BY_NAME)
    hint = f"did you mean {close}?" if close else "%%tfos? lists all options"
    return f"unknown option {item.key!r}; {hint}"


def _example(known: Option) -> str:
    return known.choices[0] if known.choices else f"<{known.type}>"
