"""Which node has which job, in TensorFlowOnSpark's order: ps, chief, evaluator, worker."""

from __future__ import annotations

from dataclasses import dataclass

from tfos_lab.core.config import ClusterConfig

# Jobs whose nodes train: the run is over when all of them are done.
TRAINING_JOBS = ("chief", "master", "worker")


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
    def trains(self) -> bool:
        """Whether the run waits for this node."""
        return self.job_name in TRAINING_JOBS


def assign_roles(config: ClusterConfig) -> list[NodeSpec]:
    """Return one spec for each node: parameter servers first, then the chief, the evaluator and the workers."""
    jobs = ["ps"] * config.num_ps
    if config.master_node is not None:
        jobs.append(config.master_node)
    if config.eval_node:
        jobs.append("evaluator")
    jobs += ["worker"] * (config.cluster_size - len(jobs))
    counts: dict[str, int] = {}
    node_specs = []
    for rank, job in enumerate(jobs):
        node_specs.append(NodeSpec(rank, job, counts.get(job, 0)))
        counts[job] = counts.get(job, 0) + 1
    return node_specs


def chief_of(node_specs: list[NodeSpec]) -> NodeSpec:
    """Return the spec of the node that leads: the chief (or master), else ``worker:0``."""
    for job in ("chief", "master", "worker"):
        for spec in node_specs:
            if spec.job_name == job:
                return spec
    raise LookupError("a cluster without a training node has no chief")


def cluster_spec(node_specs: list[NodeSpec], addresses: dict[int, str]) -> dict[str, list[str]]:
    """Return ``{job: ["host:port", ...]}`` in task order, as ``tf.train.ClusterSpec`` takes it."""
    tasks: dict[str, list[str]] = {}
    for spec in node_specs:
        tasks.setdefault(spec.job_name, []).append(addresses[spec.rank])
    return tasks
