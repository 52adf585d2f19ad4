"""Which node has which job: the seats of a cluster, in TensorFlowOnSpark's order (ps, chief, evaluator, worker)."""

from __future__ import annotations

from dataclasses import dataclass

from tfos_lab.core.config import ClusterConfig

# Jobs whose nodes train: the run is over when all of them are done.
TRAINING_JOBS = ("chief", "master", "worker")


@dataclass(frozen=True)
class Seat:
    """One node's place in the cluster."""

    index: int
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


def assign_seats(config: ClusterConfig) -> list[Seat]:
    """Return one seat for each node: parameter servers first, then the chief, the evaluator and the workers."""
    jobs = ["ps"] * config.num_ps
    if config.master_node is not None:
        jobs.append(config.master_node)
    if config.eval_node:
        jobs.append("evaluator")
    jobs += ["worker"] * (config.cluster_size - len(jobs))
    counts: dict[str, int] = {}
    seats = []
    for index, job in enumerate(jobs):
        seats.append(Seat(index, job, counts.get(job, 0)))
        counts[job] = counts.get(job, 0) + 1
    return seats


def chief_of(seats: list[Seat]) -> Seat:
    """Return the seat that leads: the chief (or master), else ``worker:0``."""
    for job in ("chief", "master", "worker"):
        for seat in seats:
            if seat.job_name == job:
                return seat
    raise LookupError("a cluster without a training node has no chief")


def cluster_spec(seats: list[Seat], addresses: dict[int, str]) -> dict[str, list[str]]:
    """Return ``{job: ["host:port", ...]}`` in task order, as ``tf.train.ClusterSpec`` takes it."""
    spec: dict[str, list[str]] = {}
    for seat in seats:
        spec.setdefault(seat.job_name, []).append(addresses[seat.index])
    return spec
