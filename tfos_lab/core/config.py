"""What the user asks for, as values: built once, checked once, then only read.

Each option is declared here and nowhere else, with its default, check and documentation; see `tfos_lab.core.options`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict, Unpack

from tfos_lab.core.gpu_shares import check_gpus
from tfos_lab.core.launchers import AUTO, launcher_for, local_choices
from tfos_lab.core.options import (
    OptionGroup,
    OptionType,
    documented,
    is_int,
    one_of,
    option,
    problems_in,
    resolve_options,
    seconds,
    whole,
)
from tfos_lab.core.paths import absolute, is_local
from tfos_lab.core.roles import NodeSpec, Role
from tfos_lab.errors import ConfigError

MASTER_CHOICES = tuple(role.value for role in Role if role.leads)
COLLECT_CHOICES = ("chief", "all")
ON_HANG_CHOICES = ("warn", "fail")
ON_NAN_CHOICES = ("warn", "stop")
ON_EVALUATOR_FAILURE_CHOICES = ("warn", "fail")
REMAINDER_CHOICES = ("exact", "pad", "drop")

# Every node gets its own value of these variables; a user's value would break the cluster.
RESERVED_ENV = ("TF_CONFIG",)


# ---- checks of single options ---------------------------------------------------------------------------------------


def _check_master(name: str, value: object) -> Iterable[str]:
    if value not in MASTER_CHOICES:
        allowed = " or ".join(repr(choice) for choice in MASTER_CHOICES)
        yield f"{name}={value!r}: not a job name that can lead; use {allowed}, or None to let worker:0 lead"


def _check_local(name: str, value: object) -> Iterable[str]:
    # Asked each time: launchers may be registered after this module was imported.
    return one_of(*local_choices())(name, value)


def _check_label(name: str, value: object) -> Iterable[str]:
    if not isinstance(value, str) or not value:
        yield f"{name}={value!r}: a label is needed"


def _check_folder(name: str, value: object) -> Iterable[str]:
    if not isinstance(value, str | os.PathLike) or not str(value):
        yield f"{name}={value!r}: a folder is needed"


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


def _check_idle_time(name: str, value: object) -> Iterable[str]:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        yield f"{name}={value!r}: a number of seconds, more than 0, is needed"


def _check_objects(name: str, value: object) -> Iterable[str]:
    if not isinstance(value, bool):
        yield f"{name}={value!r}: say True for rows as Python objects, False for columns, or leave it out"


# ---- the options ----------------------------------------------------------------------------------------------------


class ClusterOptions(TypedDict, total=False):
    """The keywords of `tfos_lab.run`, for type checkers; a test compares them with the fields of `ClusterConfig`."""

    cluster_size: int
    num_ps: int
    driver_ps: bool
    master_node: str | None
    evaluator: bool
    tensorboard: bool
    log_dir: str | None
    name: str | None
    local: str
    restarts: int
    gpus: int | str | Mapping[str, int] | None
    env: Mapping[str, str] | None
    collect: str
    output_limit_bytes: int
    log_limit_bytes: int
    keep_runs: int | None
    keep_days: int | None
    run_store: str | None
    start_timeout: float
    grace: float
    hang_timeout: float
    on_hang: str
    on_nan: str
    on_evaluator_failure: str


@documented
@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """One cluster, as asked for.

    Parameters
    ----------
    {options}

    Raises
    ------
    ConfigError
        With every problem found, and what is allowed.
    """

    cluster_size: int = option(
        1,
        OptionType.WHOLE,
        "nodes in all: workers, chief, ps and evaluator",
        check=whole(1, too_small="at least one node is needed"),
        group=OptionGroup.CLUSTER,
    )
    num_ps: int = option(
        0,
        OptionType.WHOLE,
        "how many of them are parameter servers",
        check=whole(too_small="cannot be negative"),
        group=OptionGroup.CLUSTER,
    )
    driver_ps: bool = option(
        default=False,
        type=OptionType.FLAG,
        meaning="parameter servers run on the notebook's machine instead of Spark's executors",
        details="They take none of Spark's task slots. The executors must be able to connect to that machine.",
        group=OptionGroup.CLUSTER,
    )
    master_node: str | None = option(
        "chief",
        OptionType.CHOICE,
        "job name of the node that leads; None lets worker:0 lead",
        choices=MASTER_CHOICES,
        optional=True,
        check=_check_master,
        group=OptionGroup.CLUSTER,
    )
    evaluator: bool = option(
        default=False, type=OptionType.FLAG, meaning="one of them is the evaluator", group=OptionGroup.CLUSTER
    )
    tensorboard: bool = option(
        default=False,
        type=OptionType.FLAG,
        meaning="show TensorBoard with the chief's event files under the cell",
        group=OptionGroup.OUTPUT,
    )
    log_dir: str | None = option(
        None,
        OptionType.PATH,
        "folder for event files",
        details="A relative one is taken from the working directory; addresses such as ``gs://bucket/logs`` work too.",
        default_text="the run's folder",
        optional=True,
        check=_check_folder,
        group=OptionGroup.OUTPUT,
    )
    name: str = option(
        "cluster",
        OptionType.LABEL,
        "label, and in a notebook the name of the variable that holds the cluster afterwards",
        none_is_default=True,
        check=_check_label,
        group=OptionGroup.CELL,
    )
    local: str = option(
        AUTO,
        OptionType.CHOICE,
        "where nodes run: `auto` (Spark's executors, or this machine if the session is local or there is none; a "
        "cluster's session that has ended without `spark.stop()` is an error), `processes` (this machine), "
        "`inline` (this very process, for debugging), `off` (insist on Spark)",
        choices=local_choices(),
        check=_check_local,
        group=OptionGroup.CLUSTER,
    )
    restarts: int = option(
        0,
        OptionType.WHOLE,
        "how often to start again from the last backup after a lost node",
        details=(
            "All nodes start again when one was killed, lost contact, or went with its executor, and are fed the same "
            "rows again. Keras' ``fit`` continues after the last whole epoch with ``ctx.callbacks()``; other functions "
            "find a folder for their own backups in ``ctx.backup_dir``. A worker that serves the chief of a cluster "
            "with parameter servers starts again alone when its process has ended, and training goes on meanwhile; "
            "this counts as one restart, too."
        ),
        check=whole(too_small="cannot be negative"),
        group=OptionGroup.FAILURE,
    )
    gpus: int | str | Mapping[str, int] | None = option(
        None,
        OptionType.GPUS,
        "GPUs of each node that trains, which no other node gets",
        details=(
            "Without it, a node gets those that Spark has assigned to its task, else an equal share of its host's. "
            "Parameter servers and the evaluator get none, unless a dict says how many each job gets: "
            "``{'worker': 2, 'evaluator': 1}``. With ``all``, all nodes see all GPUs of their host."
        ),
        default_text="what Spark assigned, else an equal share",
        optional=True,
        check=check_gpus,
        group=OptionGroup.CLUSTER,
    )
    env: Mapping[str, str] = option(
        {},
        OptionType.ENVIRONMENT,
        "environment variables of the nodes, added to their own",
        none_is_default=True,
        check=_check_environment,
        group=OptionGroup.CLUSTER,
    )
    collect: str = option(
        "chief",
        OptionType.CHOICE,
        "whose `ctx.output_dir` is copied to the notebook: the chief's, or all nodes'",
        details=(
            "The copy is in ``output`` in the run's folder. With ``all``, the files of each other node "
            "are in a folder of their own there, such as ``worker-0``."
        ),
        choices=COLLECT_CHOICES,
        group=OptionGroup.OUTPUT,
    )
    output_limit_bytes: int = option(
        8 << 30,
        OptionType.WHOLE,
        "how many bytes of it a node on another host sends at most",
        details=(
            "The newest files are sent first, the others stay on that host. A node that sees the run's folder writes "
            "there directly, without a limit."
        ),
        default_text="8 GiB",
        check=whole(needs="a whole number of bytes is needed"),
        group=OptionGroup.OUTPUT,
    )
    log_limit_bytes: int = option(
        0,
        OptionType.WHOLE,
        "how large each node's log file may become in the run's folder",
        details=(
            "By default, as large as the disk allows: 1 GiB of it stays free, or 5 % of a small one. What comes later "
            "is shown and not kept, but for the end of the log; the file says how much is missing."
        ),
        default_text="as the disk allows",
        check=whole(needs="a whole number of bytes is needed, or 0"),
        group=OptionGroup.OUTPUT,
    )
    keep_runs: int | None = option(
        None,
        OptionType.WHOLE,
        "how many runs stay in the folder of runs when this one has ended: the newest, and this one among them",
        details=(
            "Older ones go with all their files, models too, as with ``%tfos prune``; pinned runs (``%tfos pin``) and "
            "those that have not ended stay, and do not count."
        ),
        default_text="`$TFOS_LAB_KEEP_RUNS`, else all",
        check=whole(1, too_small="at least this run itself stays"),
        optional=True,
        group=OptionGroup.OUTPUT,
    )
    keep_days: int | None = option(
        None,
        OptionType.WHOLE,
        "for how many days runs stay after their end",
        details="With ``keep_runs``, too, a run goes if neither keeps it.",
        default_text="`$TFOS_LAB_KEEP_DAYS`, else for ever",
        check=whole(1, too_small="at least one day is needed"),
        optional=True,
        group=OptionGroup.OUTPUT,
    )
    run_store: str | None = option(
        None,
        OptionType.PATH,
        "address at which the run's folder is kept, too, for `%tfos history ADDRESS` on any machine",
        details=(
            "Such as ``hdfs:///user/ada/runs``. Record and logs are copied there every half minute, and all files at "
            "the end, after a failure, too; nothing is ever removed there. By default only a driver that was "
            "submitted with ``--deploy-mode cluster`` has one, ``tfos_lab/runs`` in the user's home on Spark's "
            "default file system; ``''`` is none."
        ),
        default_text="`$TFOS_LAB_RUN_STORE`, else none",
        check=_check_store,
        optional=True,
        group=OptionGroup.OUTPUT,
    )
    start_timeout: float = option(
        600.0, OptionType.SECONDS, "seconds to wait for all nodes to reserve", check=seconds, group=OptionGroup.FAILURE
    )
    grace: float = option(
        10.0,
        OptionType.SECONDS,
        "seconds between asking a node to end and killing it",
        check=seconds,
        group=OptionGroup.FAILURE,
    )
    hang_timeout: float = option(
        60.0,
        OptionType.SECONDS,
        "seconds without a step, a row or a log line after which a node that trains counts as hung; 0 for never",
        details=(
            "It counts once training has begun. A node that waits for others, or for rows that have not come, is not "
            "hung: the one that they wait for is."
        ),
        check=seconds,
        group=OptionGroup.FAILURE,
    )
    on_hang: str = option(
        "warn",
        OptionType.CHOICE,
        "what happens then: `warn` (its row says where it is), `fail` (the run ends with its stacks in the error, or "
        "starts again if `restarts` allows it)",
        choices=ON_HANG_CHOICES,
        group=OptionGroup.FAILURE,
    )
    on_nan: str = option(
        "warn",
        OptionType.CHOICE,
        "what a metric that is reported as NaN means: `warn` (the cell says since which step), `stop` (the run ends "
        "with an error that names the node, the metric and the step)",
        choices=ON_NAN_CHOICES,
        group=OptionGroup.FAILURE,
    )
    on_evaluator_failure: str = option(
        "warn",
        OptionType.CHOICE,
        "what the end of the evaluator's function by an error means, or that of its process: `warn` (training goes "
        "on, and the cell says why), `fail` (the run ends, as for any other node; always so with `%tfos start`, whose "
        "cells wait for all nodes)",
        choices=ON_EVALUATOR_FAILURE_CHOICES,
        group=OptionGroup.FAILURE,
    )

    def __post_init__(self) -> None:
        problems = [*problems_in(type(self), vars(self)), *self._shape_problems()]
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
        if self.driver_ps and self.num_ps == 0:
            problems.append(
                "driver_ps: there is no parameter server to run on the notebook's machine; ask for num_ps=1 or more"
            )
        training = self.cluster_size - self.num_ps - int(bool(self.evaluator))
        if self.cluster_size >= 1 and training < 1:
            taken = f"num_ps={self.num_ps}" + (" and evaluator" if self.evaluator else "")
            problems.append(
                f"{taken}: leaves no node to train in a cluster of {self.cluster_size}; "
                f"ask for cluster_size={self.cluster_size + 1 - training} or more"
            )
        return problems


def make_config(**options: Unpack[ClusterOptions]) -> ClusterConfig:
    """Return the configuration that `tfos_lab.run` is asked for.

    Raises
    ------
    ConfigError
        With every problem found, and what is allowed.
    TypeError
        For a keyword that is no option.
    """
    return ClusterConfig(**resolve_options(ClusterConfig, dict(options), function="run"))  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class FeedConfig:
    """How `Cluster.train` feeds rows; raises `ConfigError` with every problem found, and what is allowed."""

    epochs: int = option(
        1,
        OptionType.WHOLE,
        "how often the nodes read the rows",
        check=whole(1, too_small="at least one is needed"),
        group=OptionGroup.ROWS,
    )
    columns: list[str] | None = option(
        None,
        OptionType.COLUMNS,
        "which columns of the data to feed",
        default_text="all",
        optional=True,
        group=OptionGroup.ROWS,
    )
    remainder: str = option(
        "exact",
        OptionType.CHOICE,
        "how an epoch ends: `exact` (short batches), `pad` (static shapes; rows that fill up count nowhere), "
        "`drop` (rows that do not fill a step are left out)",
        choices=REMAINDER_CHOICES,
        group=OptionGroup.ROWS,
    )
    feed_timeout: float = option(
        600.0,
        OptionType.SECONDS,
        "seconds in which no row may move before the feed fails",
        check=_check_idle_time,
        group=OptionGroup.ROWS,
    )
    objects: bool | None = option(
        None,
        OptionType.FLAG,
        "whether rows go as Python objects, for `ctx.data_feed()`, not as columns",
        default_text="for RDDs as the nodes ask",
        optional=True,
        check=_check_objects,
        group=OptionGroup.ROWS,
    )

    def __post_init__(self) -> None:
        problems = problems_in(type(self), vars(self))
        if problems:
            raise ConfigError(problems)


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
