"""The options of a ``%%tfos`` cell: one table that parsing, checking, ``%%tfos?`` and completion read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tfos_lab.core.config import MASTER_CHOICES, OUTPUT_CHOICES, REMAINDER_CHOICES, ClusterConfig
from tfos_lab.core.launchers import local_choices
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.options import values as kinds
from tfos_lab.jupyter.options.line import Item, split_line
from tfos_lab.jupyter.options.values import Kind, Wrong, nearest


@dataclass(frozen=True, kw_only=True)
class CellOptions:
    """What the line of a ``%%tfos`` cell asks for; the fields are the options, with their defaults."""

    cluster_size: int = 1
    num_ps: int = 0
    eval_node: bool = False
    master_node: str | None = "chief"
    data: Any = None
    epochs: int = 1
    columns: list[str] | None = None
    remainder: str = "exact"
    args: Any = None
    tensorboard: bool = False
    log_dir: str | None = None
    name: str = "cluster"
    background: bool = False
    replace: bool = False
    local: str = "auto"
    spark: Any = None
    restarts: int = 0
    gpus: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    output: str = "chief"
    output_limit_bytes: int = 8 << 30
    reservation_timeout: float = 600.0
    feed_timeout: float = 600.0
    grace: float = 10.0

    def config(self) -> ClusterConfig:
        """Return what the engine is asked for; raises `ConfigError` with every problem."""
        return _config_of(dataclasses.asdict(dataclasses.replace(self, data=None, args=None, spark=None)))


class Option(NamedTuple):
    """One option: its name, what values it takes, and what it means."""

    name: str
    kind: Kind
    meaning: str
    choices: tuple[str, ...] = ()

    @property
    def default(self) -> Any:
        """The value where the option is not given."""
        return getattr(_DEFAULTS, self.name)


_DEFAULTS = CellOptions()

OPTIONS = (
    Option("cluster_size", kinds.WHOLE, "nodes in all: workers, chief, ps and evaluator"),
    Option("num_ps", kinds.WHOLE, "how many of them are parameter servers"),
    Option("eval_node", kinds.FLAG, "one of them is the evaluator"),
    Option(
        "master_node",
        kinds.one_of(*MASTER_CHOICES, none=True),
        "job name of the node that leads; None lets worker:0 lead",
        (*MASTER_CHOICES, "None"),
    ),
    Option("data", kinds.ROWS, "Spark DataFrame or RDD to feed; ctx.dataset(batch_size) reads it"),
    Option("epochs", kinds.WHOLE, "how often the nodes read it"),
    Option("columns", kinds.COLUMNS, "which of its columns; all by default"),
    Option(
        "remainder",
        kinds.one_of(*REMAINDER_CHOICES),
        "how an epoch ends: `exact` with short batches, `pad` with rows in them that count nowhere, `drop` leaves out "
        "what does not fill a step",
        REMAINDER_CHOICES,
    ),
    Option("args", kinds.ANYTHING, "what the cell sees as `args`"),
    Option("tensorboard", kinds.FLAG, "run TensorBoard on the chief and show it under the cell"),
    Option("log_dir", kinds.PATH, "folder for event files; the run's folder by default"),
    Option("name", kinds.LABEL, "label, and name of the variable that holds the cluster afterwards"),
    Option("background", kinds.FLAG, "return at once; the output goes on updating"),
    Option("replace", kinds.FLAG, "stop a running cluster of the same name first"),
    Option(
        "local",
        kinds.one_of(*local_choices()),
        "`processes`: on this machine; `inline`: in this kernel, for debugging; `false`: insist on Spark",
        local_choices(),
    ),
    Option("spark", kinds.SESSION, "whose executors to use; the active session by default"),
    Option("restarts", kinds.WHOLE, "how often to start again from the last backup after a lost node"),
    Option("gpus", kinds.WHOLE_OR_NONE, "GPUs per node; what Spark assigned by default"),
    Option("env", kinds.ENVIRONMENT, "environment variables of the nodes"),
    Option(
        "output",
        kinds.one_of(*OUTPUT_CHOICES),
        "whose ctx.output_dir comes to the notebook: the chief's, or all nodes'",
        OUTPUT_CHOICES,
    ),
    Option("output_limit_bytes", kinds.WHOLE, "the most that a node on another host brings of it"),
    Option("reservation_timeout", kinds.SECONDS, "seconds to wait for all nodes"),
    Option("feed_timeout", kinds.SECONDS, "seconds in which no row may move before the feed fails"),
    Option("grace", kinds.SECONDS, "seconds between asking a node to end and ending it"),
)

BY_NAME = {option.name: option for option in OPTIONS}

# What people who know other tools write first.
_OTHER_TEXT = {
    "num_executors": "cluster_size",
    "num_workers": "cluster_size",
    "workers": "cluster_size",
    "nodes": "cluster_size",
    "num_nodes": "cluster_size",
    "size": "cluster_size",
    "n": "cluster_size",
    "ps": "num_ps",
    "df": "data",
    "dataset": "data",
    "num_epochs": "epochs",
    "tb": "tensorboard",
    "driver_ps_nodes": "num_ps",
    "timeout": "reservation_timeout",
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
    values: dict[str, Any] = {}
    for item in items:
        problem = _read(item, names, values)
        if problem:
            problems.append(problem)
    problems += _shape_problems(values)
    if problems:
        raise ConfigError(problems)
    return CellOptions(**values)


def takes_value(key: str) -> bool:
    """Whether ``--key`` is followed by a value: all known options but flags."""
    option = BY_NAME.get(key)
    return option is not None and option.kind is not kinds.FLAG


def _read(item: Item, names: Mapping[str, Any], values: dict[str, Any]) -> str | None:
    """Put the item's value into ``values``, or return what is wrong with it."""
    option = BY_NAME.get(item.key)
    if option is None:
        return _unknown(item)
    if item.key in values:
        return f"{item.key} is given twice"
    text = item.value
    if text is None and option.kind is kinds.FLAG:
        text = "true"
    if not text:
        return f"{item.key} needs a value: {item.key}={_example(option)}"
    try:
        values[item.key] = option.kind.read(text, names)
    except Wrong as wrong:
        return f"{item.key}={text}: {wrong}"
    return None


def _unknown(item: Item) -> str:
    close = _OTHER_TEXT.get(item.key.lower()) or nearest(item.key, BY_NAME)
    hint = f"did you mean {close}?" if close else "%%tfos? lists all options"
    return f"unknown option {item.key!r}; {hint}"


def _example(option: Option) -> str:
    return option.choices[0] if option.choices else f"<{option.kind.name}>"


def _shape_problems(values: dict[str, Any]) -> list[str]:
    """Return what is wrong with the values taken together."""
    problems = []
    if values.get("epochs", 1) < 1:
        problems.append(f"epochs={values['epochs']}: at least one is needed")
    try:
        _config_of(values)
    except ConfigError as error:
        problems += error.problems
    return problems


def _config_of(values: Mapping[str, Any]) -> ClusterConfig:
    known = {f.name for f in dataclasses.fields(ClusterConfig)}
    seconds = {f"{name}_s": values[name] for name in ("reservation_timeout", "grace") if name in values}
    return ClusterConfig(**{name: value for name, value in values.items() if name in known}, **seconds)


def describe_options() -> str:
    """Return the table of options as text, for ``%%tfos?``."""
    rows = [(option.name, option.kind.name, _shown(option.default), option.meaning) for option in OPTIONS]
    width = max(len(row[0]) for row in rows)
    return "\n".join(f"{name:<{width}}  {meaning} [{kind}; {default}]" for name, kind, default, meaning in rows)


def _shown(default: Any) -> str:
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, float):
        return f"{default:g}"
    return str(default) if default or default == 0 else "none"
