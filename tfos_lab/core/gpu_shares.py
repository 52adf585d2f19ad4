"""The option ``gpus``: how many GPUs each node of a cluster is to have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tfos_lab.core.options import whole
from tfos_lab.core.roles import Role

# The value of the option with which all nodes see all GPUs.
ALL = "all"
# What a node wants that gets as many as each other node of its host that trains.
EQUAL = -1

GpuOption = int | str | Mapping[str, int] | None

_check_count = whole(needs="a whole number of GPUs per node is needed")
_JOBS = tuple(role.value for role in Role)


def check_gpus(name: str, value: object) -> Iterable[str]:
    """Require a whole number, one for each job in a mapping, or ``"all"``."""
    if isinstance(value, str):
        if value != ALL:
            yield f"{name}={value!r}: a whole number of GPUs per node is needed, or {ALL!r} for all nodes to see all"
    elif isinstance(value, Mapping):
        for job, count in value.items():
            if job not in _JOBS:
                yield f"{name}[{job!r}]: not a job name; there are {', '.join(_JOBS)}"
            else:
                yield from _check_count(f"{name}[{job!r}]", count)
    else:
        yield from _check_count(name, value)


def gpus_wanted(gpus: GpuOption, job: str, env: Mapping[str, str]) -> int | None:
    """Return how many GPUs a node of a job wants: a number, `EQUAL`, or None where the environment decides.

    CUDA_VISIBLE_DEVICES in ``env``, the user's variables for all nodes, says which GPUs they see.
    """
    if gpus == ALL or (gpus is None and "CUDA_VISIBLE_DEVICES" in env):
        return None
    if isinstance(gpus, Mapping):
        return gpus.get(job, 0)
    # Parameter servers hold variables in memory, and an evaluator would take a GPU from those that train.
    if not Role(job).trains:
        return 0
    return EQUAL if gpus is None else int(gpus)
