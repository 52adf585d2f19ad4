"""Errors of the machines that nodes are to run on: no session, too few slots or too little memory, unfit Pythons."""

from __future__ import annotations

from tfos_lab.errors.base import TfosError


class NoSession(TfosError, RuntimeError):
    """The cluster has to run on Spark, but there is no usable SparkSession."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)

    def __str__(self) -> str:
        return (
            f"{self.reason}. Make one with SparkSession.builder.getOrCreate() (or pass spark=...), "
            "or run on this machine with local=processes."
        )


class NotEnoughSlots(TfosError, RuntimeError):
    """Spark has fewer free task slots than the cluster needs nodes."""

    wanted: int
    free: int
    total: int

    def __init__(self, *, wanted: int, free: int, total: int) -> None:
        super().__init__(wanted=wanted, free=free, total=total)

    def __str__(self) -> str:
        use = f"Ask for cluster_size={self.free}" if self.free else "Stop what holds the slots (%tfos stop all)"
        return (
            f"cluster_size={self.wanted}, but Spark has {self.free} free task slots of {self.total}. "
            f"{use}, add executors or cores (spark.executor.instances, spark.executor.cores, spark.cores.max), "
            "or run on this machine with local=processes."
        )


class NotEnoughRoom(TfosError, RuntimeError):
    """This machine cannot hold so many nodes. ``limit`` says what there is too little of."""

    wanted: int
    fits: int
    limit: str

    def __init__(self, *, wanted: int, fits: int, limit: str) -> None:
        super().__init__(wanted=wanted, fits=fits, limit=limit)

    def __str__(self) -> str:
        return (
            f"cluster_size={self.wanted}, but this machine has room for {self.fits} nodes: {self.limit}. "
            f"Ask for cluster_size={self.fits} or fewer, or run on the executors of a Spark cluster."
        )


class ExecutorMismatch(TfosError, RuntimeError):
    """Executors lack a package or run another minor version of Python. ``problems`` says which, by host."""

    problems: dict[str, str]

    def __init__(self, *, problems: dict[str, str]) -> None:
        super().__init__(problems=dict(problems))

    def __str__(self) -> str:
        hosts = "; ".join(f"{host}: {what}" for host, what in sorted(self.problems.items()))
        return (
            f"executors cannot run a node ({hosts}). Give the executors the driver's environment: install the packages "
            "there, or point spark.pyspark.python / PYSPARK_PYTHON at a Python that has them."
        )
