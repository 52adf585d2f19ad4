"""What is simulated: a cluster, its work, and the faults that befall it; drawn from a seed, or written down."""

from __future__ import annotations

import dataclasses
import functools
import random
from dataclasses import dataclass

from tfos_lab import ClusterConfig
from tfos_lab.core.config import assign_roles
from tfos_lab.core.roles import NodeSpec

GRACE_S = 1.0
HANG_TIMEOUT_S = 20.0
# Faults begin until then: while nodes are launched, work, and end.
_FAULTS_UNTIL_S = 8.0
# Of kinds that last: moments that nobody may notice, and longer than a node is waited for.
_LASTS_S = {
    "pause the kernel": (1.0, 3.0, 8.0, 40.0),
    "cut": (0.5, 2.0, 3.0, 20.0, 90.0),
    "slow": (3.0, 10.0),
    "stop the agent": (1.0, 3.0, 20.0, 1e6),
    "the agent hangs": (3.0, 20.0, 55.0, 70.0),
    "stop the child": (2.0, 1e6),
    "late task": (3.0, 10.0),
}
_HERE = (
    "pause the kernel",
    "kill the kernel",
    "kill the child",
    "kill the agent",
    "kill the fork server",
    "stop the agent",
    "the agent hangs",
    "stop the child",
    "raise",
    "exit",
    "the user stops",
    "late task",
    "lost task",
)
_ON_SPARK = (*_HERE, "cut", "cut", "slow", "lose the executor", "lose the executor", "second task")
_WITH_ROWS = ("lose a feed task", "late feed task", "feed task twice", "stop reading")

EVERY_KIND = frozenset({*_ON_SPARK, *_WITH_ROWS})


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong ``at_s`` seconds after the start; ``node`` and ``for_s`` where the kind has such."""

    kind: str
    at_s: float
    node: str = ""
    for_s: float = 0.0

    def __str__(self) -> str:
        where = f" of {self.node}" if self.node else ""
        return f"{self.kind}{where}" + (f" for {self.for_s:g} s" if self.for_s else "")

    def __repr__(self) -> str:
        return _call(self)


@dataclass(frozen=True)
class Plan:
    """One run; all that is left to chance within it follows from its ``seed``.

    Executors run the nodes if ``spark``, ``together`` on each, and else this machine. With a ``barrier``, Spark ends
    the tasks of all nodes with the first that fails; else it retries that one. Nothing is fed if there are no
    partitions; a function that is fed nothing works for ``works_s`` at most. Nodes in lock-step fail with a peer that
    is gone as likely as ``peers_notice``, and wait for it for ever otherwise. If ``hang_fails``, a node that hangs
    fails the run.
    """

    seed: int = 0
    nodes: int = 2
    ps: int = 0
    evaluator: bool = False
    spark: bool = False
    together: int = 1
    barrier: bool = True
    restarts: int = 0
    rows: int = 0
    partitions: int = 0
    works_s: float = 8.0
    peers_notice: float = 0.7
    hang_fails: bool = True
    faults: tuple[Fault, ...] = ()

    def __repr__(self) -> str:
        return _call(self)

    @property
    def config(self) -> ClusterConfig:
        """What the cluster is asked for."""
        return _config(self.nodes, self.ps, self.evaluator, self.hang_fails)

    @property
    def specs(self) -> list[NodeSpec]:
        """The nodes, in rank order."""
        return _specs(self.nodes, self.ps, self.evaluator)

    @classmethod
    def drawn(cls, seed: int) -> Plan:
        """Return the plan of a seed: every tenth is without a fault, the others have one to three."""
        rng = random.Random(seed)
        nodes = rng.randint(1, 4)
        ps = int(nodes > 1 and rng.random() < 0.25)
        spark = rng.random() < 0.5
        is_fed = rng.random() < 0.35
        plan = cls(
            seed=seed,
            nodes=nodes,
            ps=ps,
            evaluator=nodes - ps > 1 and rng.random() < 0.25,
            spark=spark,
            together=rng.choice((1, 2)),
            barrier=rng.random() < 0.7,
            restarts=rng.choice((0, 0, 1, 2)),
            rows=rng.randint(0, 60) if is_fed else 0,
            partitions=rng.randint(1, 4) if is_fed else 0,
            works_s=100.0 if seed % 100 == 50 else 8.0,
            hang_fails=rng.random() < 0.7,
        )
        kinds = (_ON_SPARK if spark else _HERE) + (_WITH_ROWS if is_fed else ())
        names = [spec.node for spec in plan.specs]
        chosen = rng.choices(kinds, k=rng.choice((1, 1, 1, 1, 2, 2, 3))) if seed % 10 else ()
        return dataclasses.replace(plan, faults=tuple(_drawn(kind, names, rng) for kind in chosen))

    def simpler(self) -> list[Plan]:
        """Return plans with less in them, for a search for the least that fails: the boldest first."""
        fewer = [self.faults[:index] + self.faults[index + 1 :] for index in range(len(self.faults))]
        plans = [dataclasses.replace(self, faults=faults) for faults in fewer]
        plans += [dataclasses.replace(self, seed=seed) for seed in range(min(self.seed, 20))]
        for name, value in _defaults(Plan).items():
            if name not in ("seed", "nodes", "faults") and getattr(self, name) != value:
                plans.append(dataclasses.replace(self, **{name: value}))
        named = {fault.node for fault in self.faults if fault.node}
        if self.nodes > 1:
            smaller = dataclasses.replace(self, nodes=self.nodes - 1, ps=min(self.ps, self.nodes - 2))
            if not (smaller.evaluator and smaller.nodes - smaller.ps < 2) and named <= {s.node for s in smaller.specs}:
                plans.append(smaller)
        for index, fault in enumerate(self.faults):
            rounded = dataclasses.replace(fault, at_s=round(fault.at_s, 1))
            if rounded != fault:
                plans.append(
                    dataclasses.replace(self, faults=(*self.faults[:index], rounded, *self.faults[index + 1 :]))
                )
        return plans


@functools.cache
def _config(nodes: int, ps: int, evaluator: bool, hang_fails: bool) -> ClusterConfig:
    return ClusterConfig(
        cluster_size=nodes,
        num_ps=ps,
        evaluator=evaluator,
        grace=GRACE_S,
        hang_timeout=HANG_TIMEOUT_S,
        on_hang="fail" if hang_fails else "warn",
    )


@functools.cache
def _specs(nodes: int, ps: int, evaluator: bool) -> list[NodeSpec]:
    return assign_roles(ClusterConfig(cluster_size=nodes, num_ps=ps, evaluator=evaluator))


def _drawn(kind: str, names: list[str], rng: random.Random) -> Fault:
    at_once = kind in ("late task", "lost task", "lose a feed task", "late feed task", "feed task twice")
    of_all = kind in ("pause the kernel", "kill the kernel", "the user stops") or kind in _WITH_ROWS
    return Fault(
        kind,
        at_s=0.0 if at_once else round(rng.uniform(0.05, _FAULTS_UNTIL_S), 2),
        node="" if of_all else rng.choice(names),
        for_s=rng.choice(_LASTS_S.get(kind, (0.0,))),
    )


def _call(value: Plan | Fault) -> str:
    """Return how to write a value, without what it has by default."""
    usual = _defaults(type(value))
    fields = {name: getattr(value, name) for name in value.__dataclass_fields__}
    given = ", ".join(f"{name}={field!r}" for name, field in fields.items() if usual.get(name, ...) != field)
    return f"{type(value).__name__}({given})"


def _defaults(kind: type[Plan | Fault]) -> dict[str, object]:
    fields = dataclasses.fields(kind)
    return {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
