"""The nodes that `tfos_lab.run_script` is asked for: checked, and put in the order of their ranks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from tfos_lab.core.config import ClusterConfig, assign_roles
from tfos_lab.core.options import is_int
from tfos_lab.core.roles import Role
from tfos_lab.errors import ConfigError
from tfos_lab.node.script import named_placeholders
from tfos_lab.texts import nearest

_KEYS = ("job_name", "task_index", "params")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
ONE_WORKER: tuple[Mapping[str, Any], ...] = ({"job_name": "worker"},)


class NodeCounts(TypedDict):
    """The options of `tfos_lab.run` that say which nodes there are."""

    cluster_size: int
    num_ps: int
    master_node: str | None
    evaluator: bool


@dataclass(frozen=True)
class NodePlan:
    """The nodes, as the driver knows them: the options of a cluster of these, and each node's parameters, by rank."""

    options: NodeCounts
    params: tuple[dict[str, Any], ...]

    @property
    def reads_data(self) -> bool:
        """Whether some node's parameters name ``{data_dir}``."""
        return "data_dir" in named_placeholders(list(self.params))


def plan_nodes(nodes: Sequence[Mapping[str, Any]] = ONE_WORKER) -> NodePlan:
    """Return the nodes of ``[{"job_name": "worker", "params": {"lr": 0.1}}, …]``.

    Raises ConfigError with every problem found, and what is allowed.
    """
    if isinstance(nodes, str | bytes | Mapping) or not isinstance(nodes, Sequence) or not nodes:
        raise ConfigError(
            [f"nodes={nodes!r}: a list with a dict for each node is needed, such as [{{'job_name': 'worker'}}]"]
        )
    problems = [problem for place, node in enumerate(nodes) for problem in _problems_of(place, node)]
    if not problems:
        problems = list(_problems_together(nodes))
    if problems:
        raise ConfigError(problems)
    jobs = [_job(node) for node in nodes]
    leaders = [job for job in jobs if Role(job).leads]
    options: NodeCounts = {
        "cluster_size": len(nodes),
        "num_ps": jobs.count(Role.PS),
        "master_node": leaders[0] if leaders else None,
        "evaluator": Role.EVALUATOR in jobs,
    }
    by_node = {f"{_job(node)}:{index}": node.get("params") or {} for node, index in _with_index(nodes)}
    specs = assign_roles(ClusterConfig(**options))
    return NodePlan(options, tuple(dict(by_node[spec.node]) for spec in specs))


def _job(node: Mapping[str, Any]) -> str:
    return str(node.get("job_name", Role.WORKER.value))


def _with_index(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yield the nodes with their numbers within their jobs: those given, or those of their order."""
    counts: dict[str, int] = {}
    for node in nodes:
        job = _job(node)
        yield node, node.get("task_index", counts.get(job, 0))
        counts[job] = counts.get(job, 0) + 1


# ---- problems -------------------------------------------------------------------------------------------------------


def _problems_of(place: int, node: Any) -> Iterator[str]:
    """Yield what is wrong with one node taken by itself."""
    where = f"nodes[{place}]"
    if not isinstance(node, Mapping):
        yield f"{where} is a {type(node).__name__}: a dict is needed, such as {{'job_name': 'worker', 'params': {{…}}}}"
        return
    yield from (f"{where}: there is no key {key!r}; {_advice(key, _KEYS)}" for key in node if key not in _KEYS)
    job, index = node.get("job_name", Role.WORKER.value), node.get("task_index", 0)
    if job not in list(Role):
        yield f"{where}: job_name={job!r}: there is no such role; {_advice(job, [role.value for role in Role])}"
    if not is_int(index) or index < 0:
        yield f"{where}: task_index={index!r}: a whole number from 0 on is needed"
    yield from _param_problems(where, node.get("params"))


def _param_problems(where: str, params: Any) -> Iterator[str]:
    if params is None:
        return
    if not isinstance(params, Mapping):
        yield f"{where}: params is a {type(params).__name__}: a dict of names and values is needed"
        return
    for name, value in params.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"{where}: params[{name!r}]: a name of letters, digits and _ is needed, for the option --name"
            continue
        try:
            json.dumps(value)
        except (TypeError, ValueError) as error:
            yield f"{where}: params[{name!r}]: {error}; numbers, texts, flags, lists and dicts can be parameters"


def _problems_together(nodes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what is wrong with nodes that are right one by one."""
    jobs = [_job(node) for node in nodes]
    leaders = [place for place, job in enumerate(jobs) if Role(job).leads]
    yield from _too_many("chief", leaders, "make the others workers")
    evaluators = [place for place, job in enumerate(jobs) if job == Role.EVALUATOR]
    yield from _too_many("evaluator", evaluators, "leave the others out")
    if not any(Role(job).trains for job in jobs):
        yield f"nodes: none of {', '.join(jobs)} trains: add a worker or a chief"
    by_job: dict[str, list[int]] = {}
    for node, index in _with_index(nodes):
        by_job.setdefault(_job(node), []).append(index)
    for job, indices in by_job.items():
        if sorted(indices) != list(range(len(indices))):
            wanted = ", ".join(map(str, range(len(indices))))
            given = ", ".join(map(str, indices))
            yield f"nodes: the task_index of job_name={job!r} is {given}: each of {wanted} is needed once"


def _too_many(role: str, places: list[int], advice: str) -> Iterator[str]:
    if len(places) > 1:
        which = " and ".join(f"nodes[{place}]" for place in places)
        yield f"{which}: a cluster has one {role} at most; {advice}"


def _advice(word: object, candidates: Iterable[str]) -> str:
    known = list(candidates)
    near = nearest(str(word).lower(), known)
    return f"did you mean {near!r}?" if near else f"use {', '.join(known[:-1])} or {known[-1]}"
