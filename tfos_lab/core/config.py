"""The configuration of a cluster: built once, checked once, then only read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from tfos_lab.core.launchers import AUTO, launcher_for, local_choices
from tfos_lab.core.paths import absolute
from tfos_lab.core.roles import Role
from tfos_lab.errors import ConfigError

MASTER_CHOICES = tuple(role.value for role in Role if role.leads)
OUTPUT_CHOICES = ("chief", "all")
REMAINDER_CHOICES = ("exact", "pad", "drop")

# Variables that differ between nodes; a user's value would break the cluster.
RESERVED_ENV = ("TF_CONFIG",)


@dataclass(frozen=True, kw_only=True)
class ClusterConfig:
    """One cluster, as asked for.

    Parameters
    ----------
    cluster_size : int
        Nodes in all: workers, chief, parameter servers and evaluator.
    num_ps : int
        How many of them are parameter servers.
    master_node : str or None
        Job name of the leading node, ``"chief"`` or ``"master"``; None makes ``worker:0`` the chief.
    eval_node : bool
        Whether one node is the evaluator.
    tensorboard : bool
        Whether the chief runs TensorBoard.
    log_dir : str or None
        Where event files go: a folder, from here if it is relative, or an address such as ``"gs://bucket/logs"``. None
        means the run's folder.
    name : str
        Label of the cluster.
    local : str
        ``"auto"``, ``"processes"`` (this machine), ``"inline"`` (this very process) or ``"false"`` (insist on Spark).
    restarts : int
        How often to start all nodes again after one of them was lost: killed, out of sight, or with its executor. They
        are fed again what they had been fed. Keras' ``fit`` goes on after the last whole epoch with
        ``ctx.callbacks()``; other functions find a folder for what they want to keep in ``ctx.backup_dir``.
    gpus : int or None
        GPUs per node; None means what Spark assigned.
    env : mapping of str to str
        Environment of the children, on top of the node's own.
    output : str
        Whose ``ctx.output_dir`` comes to the notebook, into the run's folder ``output``: ``"chief"``, or ``"all"``,
        where that of each other node is a folder in it, such as ``worker-0``.
    output_limit_bytes : int
        The most that a node on another host brings, 8 GiB by default; the newest files go first, the others stay on
        that host. A node that sees the run's folder writes there itself, as much as it likes.
    reservation_timeout_s, grace_s : float
        Seconds to wait for all reservations; seconds between SIGTERM and SIGKILL.

    Raises
    ------
    ConfigError
        With every problem found, and what is allowed.
    """

    cluster_size: int = 1
    num_ps: int = 0
    master_node: str | None = "chief"
    eval_node: bool = False
    tensorboard: bool = False
    log_dir: str | None = None
    name: str = "cluster"
    local: str = AUTO
    restarts: int = 0
    gpus: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    output: str = "chief"
    output_limit_bytes: int = 8 << 30
    reservation_timeout_s: float = 600.0
    grace_s: float = 10.0

    def __post_init__(self) -> None:
        problems = [*self._shape_problems(), *self._option_problems(), *self._env_problems()]
        if problems:
            raise ConfigError(problems)
        if self.log_dir is not None:
            object.__setattr__(self, "log_dir", absolute(os.fspath(self.log_dir)))

    def _shape_problems(self) -> list[str]:
        problems = []
        numbers = {"cluster_size": self.cluster_size, "num_ps": self.num_ps, "restarts": self.restarts}
        problems += [
            f"{key}={value!r}: a whole number is needed" for key, value in numbers.items() if not _is_int(value)
        ]
        if problems:
            return problems
        if self.cluster_size < 1:
            problems.append(f"cluster_size={self.cluster_size}: at least one node is needed")
        if self.num_ps < 0:
            problems.append(f"num_ps={self.num_ps}: cannot be negative")
        if self.restarts < 0:
            problems.append(f"restarts={self.restarts}: cannot be negative")
        launcher = launcher_for(self.local)
        if self.restarts > 0 and launcher is not None and launcher.runs_inline:
            problems.append(
                f"restarts={self.restarts}: {launcher.name} runs in this very process, which cannot start again"
            )
        training = self.cluster_size - self.num_ps - int(bool(self.eval_node))
        if self.cluster_size >= 1 and training < 1:
            taken = f"num_ps={self.num_ps}" + (" and eval_node" if self.eval_node else "")
            problems.append(
                f"{taken}: leaves no node to train in a cluster of {self.cluster_size}; "
                f"ask for cluster_size={self.cluster_size + 1 - training} or more"
            )
        if self.master_node is not None and self.master_node not in MASTER_CHOICES:
            allowed = " or ".join(repr(choice) for choice in MASTER_CHOICES)
            problems.append(
                f"master_node={self.master_node!r}: not a job name that can lead; use {allowed}, "
                "or None to let worker:0 lead"
            )
        return problems

    def _option_problems(self) -> list[str]:
        problems = []
        if self.local not in local_choices():
            problems.append(f"local={self.local!r}: use one of {', '.join(local_choices())}")
        if self.output not in OUTPUT_CHOICES:
            problems.append(f"output={self.output!r}: use one of {', '.join(OUTPUT_CHOICES)}")
        if not _is_int(self.output_limit_bytes) or self.output_limit_bytes < 0:
            problems.append(f"output_limit_bytes={self.output_limit_bytes!r}: a whole number of bytes is needed")
        for name in ("reservation_timeout_s", "grace_s"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                problems.append(f"{name}={value!r}: a number of seconds is needed")
        if self.gpus is not None and (not _is_int(self.gpus) or self.gpus < 0):
            problems.append(f"gpus={self.gpus!r}: a whole number of GPUs per node is needed")
        if not isinstance(self.name, str) or not self.name:
            problems.append(f"name={self.name!r}: a label is needed")
        if self.log_dir is not None and (not isinstance(self.log_dir, str | os.PathLike) or not str(self.log_dir)):
            problems.append(f"log_dir={self.log_dir!r}: a folder is needed")
        return problems

    def _env_problems(self) -> list[str]:
        if not isinstance(self.env, Mapping):
            return [f"env={self.env!r}: a dict of names and values is needed"]
        problems = [
            f"env[{key!r}]: names and values must be strings"
            for key, value in self.env.items()
            if not isinstance(key, str) or not isinstance(value, str)
        ]
        problems += [f"env[{key!r}]: is set by tfos_lab on every node" for key in RESERVED_ENV if key in self.env]
        return problems


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
