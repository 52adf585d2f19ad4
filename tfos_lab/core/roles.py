"""The roles of nodes, and which node of a cluster has which.

`Role` is the only list of roles, and says what each of them does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """A job name, in the order in which ranks are given out."""

    PS = "ps"
    CHIEF = "chief"
    # What TensorFlow 1 called the chief.
    MASTER = "master"
    EVALUATOR = "evaluator"
    WORKER = "worker"

    @property
    def serves(self) -> bool:
        """Whether these nodes only hold variables for others, and have nothing of their own to finish."""
        return self is Role.PS

    @property
    def leads(self) -> bool:
        """Whether a node of this role is its cluster's chief."""
        return self in (Role.CHIEF, Role.MASTER)

    @property
    def trains(self) -> bool:
        """Whether rows are shared out to these nodes, and the run waits for them: it is over when all are done."""
        return self.leads or self is Role.WORKER

    @property
    def in_tf_cluster(self) -> bool:
        """Whether the node is part of TensorFlow's cluster spec; an evaluator works beside it."""
        return self is not Role.EVALUATOR


@dataclass(frozen=True)
class NodeSpec:
    """One node of a cluster: its rank (its number among all nodes), its job, and its index within the job."""

    rank: int
    job_name: str
    task_index: int

    @property
    def node(self) -> str:
        """The node's name, such as ``"worker:1"``."""
        return f"{self.job_name}:{self.task_index}"

    @property
    def role(self) -> Role:
        """What the node does."""
        return Role(self.job_name)


def role_of(node: str) -> Role:
    """Return the role of a node, from its name."""
    return Role(node.partition(":")[0])


def chief_of(node_specs: list[NodeSpec]) -> NodeSpec:
    """Return the node that leads: the chief (or master), else the first that trains."""
    training = [spec for spec in node_specs if spec.role.trains]
    return next((spec for spec in training if spec.role.leads), training[0])


def cluster_spec(node_specs: list[NodeSpec], addresses: dict[int, str]) -> dict[str, list[str]]:
    """Return ``{job: ["host:port", ...]}`` in task order, as ``tf.train.ClusterSpec`` takes it."""
    tasks: dict[str, list[str]] = {}
    for spec in node_specs:
        tasks.setdefault(spec.job_name, []).append(addresses[spec.rank])
    return tasks


def count_training(cluster_spec: Mapping[str, list[str]]) -> int:
    """Return how many nodes of a cluster spec train."""
    return sum(len(tasks) for job, tasks in cluster_spec.items() if Role(job).trains)


def rank_in_training(cluster_spec: Mapping[str, list[str]], job_name: str, task_index: int) -> int | None:
    """Return a node's number among those that train, from 0 and with the chief first; None if it does not train.

    Examples
    --------
    >>> spec = {"ps": ["p:1"], "chief": ["c:1"], "evaluator": ["e:1"], "worker": ["w:1", "w:2"]}
    >>> [rank_in_training(spec, *node) for node in (("chief", 0), ("worker", 1), ("evaluator", 0))]
    [0, 2, None]
    """
    if not Role(job_name).trains:
        return None
    before = [job for job in cluster_spec if Role(job).leads and job != job_name]
    return task_index + (0 if Role(job_name).leads else sum(len(cluster_spec[job]) for job in before))


def tf_config(cluster_spec: Mapping[str, list[str]], job_name: str, task_index: int) -> str:
    """Return TF_CONFIG for a node, as TensorFlow documents it."""
    task = {"type": job_name, "index": task_index}
    return json.dumps({"cluster": tf_cluster_spec(cluster_spec), "task": task})


def tf_cluster_spec(cluster_spec: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the part of a cluster spec that is TensorFlow's: without the evaluator, which works beside it."""
    return {job: tasks for job, tasks in cluster_spec.items() if Role(job).in_tf_cluster}
