"""Errors of the machines that nodes are to run on: no session, too few slots or too little memory, unfit Pythons."""

from __future__ import annotations

from tfos_lab.errors.base import TfosError
from tfos_lab.errors.text import format_count


class NoSession(TfosError, RuntimeError):
    """The cluster has to run on Spark, but there is no usable SparkSession."""

    reason: str
    advice: str

    def __init__(self, *, reason: str, advice: str = "") -> None:
        super().__init__(reason=reason, advice=advice)

    def __str__(self) -> str:
        advice = self.advice or "make one with SparkSession.builder.getOrCreate() (or pass spark=...)"
        return f"{self.reason}. {advice[0].upper()}{advice[1:]}, or run on this machine with local=processes."


class NotEnoughSlots(TfosError, RuntimeError):
    """Spark has fewer free task slots than the cluster needs.

    Attributes
    ----------
    wanted, free, total : int
        How many slots the nodes need, how many are free, and how many there are.
    elsewhere : int
        Nodes that need none.
    pending : str
        Which executors have not come, and why; "" where nothing is known of that.
    """

    wanted: int
    free: int
    total: int
    elsewhere: int
    pending: str

    def __init__(self, *, wanted: int, free: int, total: int, elsewhere: int = 0, pending: str = "") -> None:
        super().__init__(wanted=wanted, free=free, total=total, elsewhere=elsewhere, pending=pending)

    def __str__(self) -> str:
        fitting = self.free + self.elsewhere
        use = f"Ask for cluster_size={fitting}" if self.free else "Stop what holds the slots (%tfos stop all)"
        others = f" for the {self.wanted} nodes that are not parameter servers" if self.elsewhere else ""
        free = f"{format_count(self.free, 'free task slot')} of {self.total}"
        return (
            f"cluster_size={self.wanted + self.elsewhere}, but Spark has {free}{others}"
            f"{self.pending and f': {self.pending}'}. "
            f"{use}, add executors or cores (spark.executor.instances, spark.executor.cores, spark.cores.max), "
            "or run on this machine with local=processes."
        )


class NotEnoughRoom(TfosError, RuntimeError):
    """This machine cannot hold as many nodes as ``option`` asks for. ``limit`` says what there is too little of."""

    wanted: int
    fits: int
    limit: str
    option: str

    def __init__(self, *, wanted: int, fits: int, limit: str, option: str = "cluster_size") -> None:
        super().__init__(wanted=wanted, fits=fits, limit=limit, option=option)

    def __str__(self) -> str:
        fits = format_count(self.fits, "node")
        return (
            f"{self.option}={self.wanted}, but this machine has room for {fits}: {self.limit}. "
            f"Ask for {self.option}={self.fits} or fewer, or run on the executors of a Spark cluster."
        )


class NotEnoughGpus(TfosError, RuntimeError):
    """Hosts have fewer GPUs than their nodes were to have.

    ``wanted`` is per node; ``hosts`` has, by host, the number of nodes, of GPUs, and of those that the nodes got.
    """

    wanted: int
    hosts: dict[str, list[int]]

    def __init__(self, *, wanted: int, hosts: dict[str, list[int]]) -> None:
        super().__init__(wanted=wanted, hosts=dict(hosts))

    def __str__(self) -> str:
        return (
            f"gpus={self.wanted}, but {'; '.join(map(self._host_text, sorted(self.hosts)))}. Ask for fewer GPUs, for "
            "fewer nodes on a host, or for gpus=all to let them share, or wait until others have ended."
        )

    def _host_text(self, host: str) -> str:
        nodes, there, got = self.hosts[host]
        short = got < nodes * self.wanted <= there
        taken = f", {there - got} of them taken by others" if short else ""
        return f"{host} has {format_count(there, 'GPU')} for {format_count(nodes, 'node')}{taken}"


class ExecutorMismatch(TfosError, RuntimeError):
    """Executors lack a package, have one that is too old, or run another minor version of Python.

    ``problems`` says which, by host; ``unchosen`` whether they run what happens to be the first Python of their PATH.
    """

    problems: dict[str, str]
    unchosen: bool

    def __init__(self, *, problems: dict[str, str], unchosen: bool = False) -> None:
        super().__init__(problems=dict(problems), unchosen=unchosen)

    def __str__(self) -> str:
        hosts = "; ".join(f"{host}: {what}" for host, what in sorted(self.problems.items()))
        why = ": PYSPARK_PYTHON is not set, so that they run the first python3 of their PATH" if self.unchosen else ""
        return (
            f"executors cannot run a node ({hosts}){why}. Give the executors the driver's environment: install the "
            "packages there, ship them (tfos-lab pack), or point spark.pyspark.python / PYSPARK_PYTHON at a Python "
            "that has them."
        )
