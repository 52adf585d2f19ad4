"""What the user asks for, as values: built once, checked once, then only read.

Each option is declared here and nowhere else, with its type, default, check and documentation; see
`tfos_lab.core.options`. To add one, add an entry to the `TypedDict` of those that it belongs to, and use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, Unpack, get_args

from tfos_lab.core.gpu_shares import check_gpus
from tfos_lab.core.launchers import AUTO, LAUNCHERS, launcher_for
from tfos_lab.core.options import (
    ALL_CALLS,
    Option,
    OptionGroup,
    OptionType,
    Settings,
    given_options,
    is_int,
    is_number,
    must,
    part_of,
    problems_in,
    settings_of,
    whole,
)
from tfos_lab.core.paths import absolute, is_local
from tfos_lab.core.roles import NodeSpec, Role
from tfos_lab.errors import ConfigError

MASTER_CHOICES = tuple(role.value for role in Role if role.leads)
Remainder = Literal["exact", "pad", "drop"]
REMAINDER_CHOICES: tuple[str, ...] = get_args(Remainder)

# Every node gets its own value of these variables; a user's value would break the cluster.
RESERVED_ENV = ("TF_CONFIG",)


# ---- checks of single options ---------------------------------------------------------------------------------------


def _check_master(name: str, value: object) -> Iterable[str]:
    if value not in MASTER_CHOICES:
        allowed = " or ".join(repr(choice) for choice in MASTER_CHOICES)
        yield f"{name}={value!r}: not a job name that can lead; use {allowed}, or None to let worker:0 lead"


def _check_store(name: str, value: object) -> Iterable[str]:
    if not isinstance(value, str) or (value and is_local(value)):
        yield (
            f"{name}={value!r}: an address such as 'hdfs:///user/ada/runs' is needed, or '' for none; "
            "$TFOS_LAB_RUNS names a folder of this machine"
        )


def _check_environment(name: str, value: object) -> Iterable[str]:
    if not isinstance(value, Mapping):
        yield f"{name}={value!r}: a dict of names and values is needed"
        return
    for key, text in value.items():
        if not isinstance(key, str) or not isinstance(text, str):
            yield f"{name}[{key!r}]: names and values must be strings"
        elif key in RESERVED_ENV:
            yield f"{name}[{key!r}]: is set by tfos_lab on every node"


_check_folder = must(lambda value: isinstance(value, str | os.PathLike) and bool(str(value)), "a folder is needed")
_check_label = must(lambda value: isinstance(value, str) and bool(value), "a label is needed")
_check_idle_time = must(lambda value: is_number(value) and value > 0, "a number of seconds, more than 0, is needed")
_check_objects = must(
    lambda value: isinstance(value, bool), "say True for rows as Python objects, False for columns, or leave it out"
)


# ---- the declarations -----------------------------------------------------------------------------------------------

_RUN = frozenset({"run", "fit"})
_ROLES = _RUN | {"search"}
_CLUSTERS = ALL_CALLS - {"parallel"}


class SizeOptions(TypedDict, total=False):
    """What calls that make several clusters, or name their nodes, ask for in their own way."""

    cluster_size: Annotated[
        int,
        Option(
            "nodes in all: workers, chief, ps and evaluator",
            1,
            group=OptionGroup.CLUSTER,
            calls=_RUN,
            check=whole(1, too_small="at least one node is needed"),
        ),
    ]
    name: Annotated[
        str,
        Option(
            "label, and in a notebook the name of the variable that holds the cluster afterwards",
            "cluster",
            group=OptionGroup.CELL,
            type=OptionType.LABEL,
            calls=frozenset({"run"}),
            none_is_default=True,
            check=_check_label,
        ),
    ]


class NodeOptions(TypedDict, total=False):
    """What any call that runs nodes may be asked for; each option says which calls do."""

    num_ps: Annotated[
        int,
        Option(
            "how many of them are parameter servers",
            0,
            group=OptionGroup.CLUSTER,
            calls=_ROLES,
            check=whole(too_small="cannot be negative"),
        ),
    ]
    driver_ps: Annotated[
        bool,
        Option(
            "parameter servers run on the notebook's machine instead of Spark's executors",
            default=False,
            group=OptionGroup.CLUSTER,
            calls=frozenset(),
            details="They take none of Spark's task slots. Programs of TensorFlowOnSpark ask for it.",
        ),
    ]
    master_node: Annotated[
        str | None,
        Option(
            "job name of the node that leads; None lets worker:0 lead",
            "chief",
            group=OptionGroup.CLUSTER,
            type=OptionType.CHOICE,
            calls=_ROLES,
            choices=MASTER_CHOICES,
            check=_check_master,
        ),
    ]
    evaluator: Annotated[
        bool, Option("one of them is the evaluator", default=False, group=OptionGroup.CLUSTER, calls=_ROLES)
    ]
    tensorboard: Annotated[
        bool,
        Option(
            "show TensorBoard with the chief's event files under the cell",
            default=False,
            group=OptionGroup.OUTPUT,
            calls=_RUN | {"run_script"},
        ),
    ]
    log_dir: Annotated[
        str | None,
        Option(
            "folder for event files",
            group=OptionGroup.OUTPUT,
            type=OptionType.PATH,
            calls=_RUN | {"run_script"},
            details=(
                "A relative one is taken from the working directory; addresses such as ``gs://bucket/logs`` work too."
            ),
            default_text="the run's folder",
            check=_check_folder,
        ),
    ]
    local: Annotated[
        str,
        Option(
            "where nodes run: `auto` (Spark's executors, or this machine if the session is local or there is none; a "
            "cluster's session that has ended without `spark.stop()` is an error), `processes` (this machine), "
            "`inline` (this very process, for debugging), `off` (insist on Spark)",
            AUTO,
            group=OptionGroup.CLUSTER,
            type=OptionType.CHOICE,
            choices=(AUTO, *(launcher.option for launcher in LAUNCHERS.values())),
        ),
    ]
    restarts: Annotated[
        int,
        Option(
            "how often to start again from the last backup after a lost node",
            0,
            group=OptionGroup.FAILURE,
            calls=_CLUSTERS,
            details=(
                "All nodes start again when one was killed, lost contact, or went with its executor, and are fed the "
                "same rows again. Keras' ``fit`` continues after the last whole epoch with ``ctx.callbacks()``; other "
                "functions find a folder for their own backups in ``ctx.backup_dir``. A worker that serves the chief "
                "of a cluster with parameter servers starts again alone when its process has ended, and training goes "
                "on meanwhile; this counts as one restart, too."
            ),
            check=whole(too_small="cannot be negative"),
        ),
    ]
    gpus: Annotated[
        int | str | Mapping[str, int] | None,
        Option(
            "GPUs of each node that trains, which no other node gets",
            group=OptionGroup.CLUSTER,
            type=OptionType.GPUS,
            details=(
                "Without it, a node gets those that Spark has assigned to its task, else an equal share of its host's."
                " Parameter servers and the evaluator get none, unless a dict says how many each job gets: "
                "``{'worker': 2, 'evaluator': 1}``. With ``all``, all nodes see all GPUs of their host."
            ),
            default_text="what Spark assigned, else an equal share",
            check=check_gpus,
        ),
    ]
    env: Annotated[
        Mapping[str, str],
        Option(
            "environment variables of the nodes, added to their own",
            {},
            group=OptionGroup.CLUSTER,
            type=OptionType.ENVIRONMENT,
            none_is_default=True,
            check=_check_environment,
        ),
    ]
    collect: Annotated[
        Literal["chief", "all"],
        Option(
            "whose `ctx.output_dir` is copied to the notebook: the chief's, or all nodes'",
            "chief",
            group=OptionGroup.OUTPUT,
            calls=_CLUSTERS,
            details=(
                "The copy is in ``output`` in the run's folder. With ``all``, the files of each other node are in a "
                "folder of their own there, such as ``worker-0``."
            ),
        ),
    ]
    keep_runs: Annotated[
        int | None,
        Option(
            "how many runs stay in the folder of runs when this one has ended: the newest, and this one among them",
            group=OptionGroup.OUTPUT,
            details=(
                'Older ones go with all their files, models too; tagged runs (``tfos_lab.runs()[NAME].tag("good")``) '
                "and those that have not ended stay, and do not count."
            ),
            default_text="`$TFOS_LAB_KEEP_RUNS`, else all",
            check=whole(1, too_small="at least this run itself stays"),
        ),
    ]
    run_store: Annotated[
        str | None,
        Option(
            "address at which the run's folder is kept, too, for `%tfos history ADDRESS` on any machine",
            group=OptionGroup.OUTPUT,
            type=OptionType.PATH,
            details=(
                "Such as ``hdfs:///user/ada/runs``. Record and logs are copied there every half minute, and all files "
                "at the end, after a failure, too; nothing is ever removed there. By default only a driver that was "
                "submitted with ``--deploy-mode cluster`` has one, ``tfos_lab/runs`` in the user's home on Spark's "
                "default file system; ``''`` is none."
            ),
            default_text="`$TFOS_LAB_RUN_STORE`, else none",
            check=_check_store,
        ),
    ]
    start_timeout: Annotated[
        float,
        Option("seconds to wait for all nodes to reserve", 600.0, group=OptionGroup.FAILURE),
    ]
    grace: Annotated[
        float,
        Option("seconds between asking a node to end and killing it", 10.0, group=OptionGroup.FAILURE),
    ]
    hang_timeout: Annotated[
        float,
        Option(
            "seconds without a step, a row or a log line after which a node that trains counts as hung; 0 for never",
            60.0,
            group=OptionGroup.FAILURE,
            details=(
                "It counts once training has begun, or where a node waits in `ctx.strategy()` for one that has "
                "returned. A node that waits for others, or for rows that have not come, is not hung: the one that "
                "they wait for is."
            ),
        ),
    ]
    on_hang: Annotated[
        Literal["warn", "fail"],
        Option(
            "what happens then: `warn` (its row says where it is), `fail` (the run ends with its stacks in the error, "
            "or starts again if `restarts` allows it)",
            "warn",
            group=OptionGroup.FAILURE,
        ),
    ]
    on_nan: Annotated[
        Literal["warn", "stop"],
        Option(
            "what a metric that is reported as NaN means: `warn` (the cell says since which step), `stop` (the run "
            "ends with an error that names the node, the metric and the step)",
            "warn",
            group=OptionGroup.FAILURE,
        ),
    ]


class ClusterOptions(SizeOptions, NodeOptions, total=False):
    """The keywords of `tfos_lab.run`."""


class PaceOptions(TypedDict, total=False):
    """How often rows are fed, and how long; `Cluster.train` says ``timeout`` for ``feed_timeout``."""

    epochs: Annotated[
        int,
        Option(
            "how often the nodes read the rows",
            1,
            group=OptionGroup.ROWS,
            check=whole(1, too_small="at least one is needed"),
        ),
    ]
    feed_timeout: Annotated[
        float,
        Option(
            "seconds in which no row may move before the feed fails",
            600.0,
            group=OptionGroup.ROWS,
            check=_check_idle_time,
        ),
    ]


class RowOptions(TypedDict, total=False):
    """What each call that feeds rows takes."""

    columns: Annotated[
        list[str] | None,
        Option(
            "which columns of the data to feed",
            group=OptionGroup.ROWS,
            calls=ALL_CALLS - {"fit"},
            default_text="all",
        ),
    ]
    remainder: Annotated[
        Remainder,
        Option(
            "how an epoch ends: `exact` (short batches), `pad` (static shapes; rows that fill up count nowhere), "
            "`drop` (rows that do not fill a step are left out)",
            "exact",
            group=OptionGroup.ROWS,
            details="For a stream, at the end of each micro-batch.",
        ),
    ]
    objects: Annotated[
        bool | None,
        Option(
            "whether rows go as Python objects, for `ctx.data_feed()`, not as columns",
            group=OptionGroup.ROWS,
            calls=ALL_CALLS - {"fit", "run_script"},
            details=(
                "An RDD goes as objects where Spark can make no columns of its first row, otherwise as the nodes ask: "
                "it waits until one of them has called ``ctx.dataset`` (columns) or ``ctx.data_feed`` (objects)."
            ),
            default_text="for RDDs as the nodes ask",
            check=_check_objects,
        ),
    ]
    spool_bytes: Annotated[
        int | None,
        Option(
            "how much disk the rows may take on each node",
            group=OptionGroup.ROWS,
            calls=frozenset({"search", "train"}),
            details=(
                "Rows that are read once wait for room; rows that are read again, or shuffled, have to fit. By default "
                "most of what is free."
            ),
            default_text="most of what is free",
            check=whole(1, needs="a whole number of bytes is needed"),
        ),
    ]


class FeedOptions(PaceOptions, RowOptions, total=False):
    """How rows are fed."""


class FedClusterOptions(ClusterOptions, FeedOptions, total=False):
    """Keywords of calls that start one cluster and may feed it: `tfos_lab.run`."""


class RunOptions(NodeOptions, FeedOptions, total=False):
    """Keywords of calls that run nodes and feed them, beside what such calls ask for in their own way."""


# ---- what is asked for ----------------------------------------------------------------------------------------------


@settings_of(ClusterOptions)
class ClusterConfig(Settings):
    """One cluster, as asked for.

    Parameters
    ----------
    {options}

    Raises
    ------
    ConfigError
        With every problem found, and what is allowed.
    """

    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[ClusterOptions]) -> None: ...

    def __post_init__(self) -> None:
        problems = [*problems_in(ClusterOptions, vars(self)), *self._shape_problems()]
        if problems:
            raise ConfigError(problems)
        if self.log_dir is not None:
            object.__setattr__(self, "log_dir", absolute(os.fspath(self.log_dir)))

    def _shape_problems(self) -> list[str]:
        """Return what is wrong with options taken together."""
        if not all(is_int(value) for value in (self.cluster_size, self.num_ps, self.restarts)):
            return []
        problems = []
        launcher = launcher_for(self.local)
        if self.restarts > 0 and launcher is not None and launcher.runs_inline:
            problems.append(
                f"restarts={self.restarts}: {launcher.name} runs in this very process, which cannot start again"
            )
        training = self.cluster_size - self.num_ps - int(self.evaluator is True)
        if self.cluster_size >= 1 and training < 1:
            taken = f"num_ps={self.num_ps}" + (" and evaluator" if self.evaluator is True else "")
            problems.append(
                f"{taken}: leaves no node to train in a cluster of {self.cluster_size}; "
                f"ask for cluster_size={self.cluster_size + 1 - training} or more"
            )
        return problems


def make_config(**options: Unpack[ClusterOptions]) -> ClusterConfig:
    """Return the configuration that `tfos_lab.run` is asked for.

    Raises ConfigError with every problem found, and what is allowed; TypeError for a keyword that is no option.
    """
    return ClusterConfig(**given_options(ClusterOptions, "run", options))


@settings_of(FeedOptions)
class FeedConfig(Settings):
    """How `Cluster.train` feeds rows; raises `ConfigError` with every problem found, and what is allowed."""

    if TYPE_CHECKING:

        def __init__(self, **options: Unpack[FeedOptions]) -> None: ...

    def __post_init__(self) -> None:
        problems = problems_in(FeedOptions, vars(self))
        if problems:
            raise ConfigError(problems)


def make_configs(**options: Unpack[FedClusterOptions]) -> tuple[ClusterConfig, FeedConfig]:
    """Return what `tfos_lab.run` is asked for: the cluster, and how it is fed; raises as `make_config` does."""
    given = given_options(FedClusterOptions, "run", options)
    problems: list[str] = []
    made: list[Any] = []
    for kind, owner in ((ClusterConfig, ClusterOptions), (FeedConfig, FeedOptions)):
        try:
            made.append(kind(**part_of(owner, given)))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    cluster, feed = made
    return cluster, feed


def train_keywords(values: Mapping[str, object]) -> dict[str, Any]:
    """Return values of `FeedOptions` as the keywords of `Cluster.train`."""
    return {"timeout" if name == "feed_timeout" else name: value for name, value in values.items()}


def assign_roles(config: ClusterConfig) -> list[NodeSpec]:
    """Return one spec for each node, in TensorFlowOnSpark's order: ps, chief, evaluator, workers."""
    jobs = [Role.PS] * config.num_ps
    if config.master_node is not None:
        jobs.append(Role(config.master_node))
    if config.evaluator:
        jobs.append(Role.EVALUATOR)
    jobs += [Role.WORKER] * (config.cluster_size - len(jobs))
    counts: dict[str, int] = {}
    node_specs = []
    for rank, job in enumerate(jobs):
        node_specs.append(NodeSpec(rank, job.value, counts.get(job, 0)))
        counts[job] = counts.get(job, 0) + 1
    return node_specs
