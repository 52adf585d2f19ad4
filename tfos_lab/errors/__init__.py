"""Every error that tfos_lab raises: what happened with numbers, why, and what to do next.

    TfosError
    ├── ConfigError          (ValueError)      options that cannot work, all of them at once
    ├── NoSession            (RuntimeError)    no SparkSession, or a dead one
    ├── NotEnoughSlots       (RuntimeError)    Spark has fewer free task slots than nodes were asked for
    ├── NotEnoughRoom        (RuntimeError)    this machine cannot hold so many nodes
    ├── ExecutorMismatch     (RuntimeError)    executors that lack a package or run another Python
    ├── PayloadError         (TypeError)       the function or a captured name cannot travel
    ├── ReservationTimeout   (TimeoutError)    fewer nodes than asked for reserved in time
    ├── LaunchFailed         (RuntimeError)    a node could not be started at all
    ├── NodeFailed           (RuntimeError)    the user's function failed on a node, or the node was lost
    ├── ClusterEnded         (RuntimeError)    something was asked of a cluster that is no longer there
    ├── NoModel              (RuntimeError)    a run's model is not there, or cannot be loaded in this kernel
    ├── WaitTimeout          (TimeoutError)    `wait(timeout_s=...)` ran out; the cluster goes on
    ├── FeedError            (RuntimeError)    rows could not be fed
    │   └── FeedTimeout      (TimeoutError)    the nodes took no rows for too long
    ├── NoKeyboard           (EOFError)        a node's function asked for input, or for a debugger
    ├── RecordError          (ValueError)      a TFRecord file or a row of one that cannot be read or written
    └── ResultNotSendable    (TypeError)       what a node returned cannot travel; with ResultTooLarge and
                                               ResultUnreadable (ValueError), in `tfos_lab.values`

    ClusterInterrupted       (KeyboardInterrupt)   the user interrupted the cell; the nodes are stopped

Fields are given by keyword, survive pickling, and are the attributes of the error.
"""

from __future__ import annotations

from typing import Any


class TfosError(Exception):
    """Base of all errors of tfos_lab; its fields are attributes and survive pickling."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.__dict__.update(fields)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), dict(self.__dict__))

    def __str__(self) -> str:
        return str(self.__dict__.get("reason", type(self).__name__))


def _rebuild(kind: type[TfosError], fields: dict[str, Any]) -> TfosError:
    # An error that is also a TimeoutError has that one's layout, and only its `__new__` will do.
    error: TfosError = kind.__base__.__new__(kind)  # type: ignore[call-overload]
    error.__dict__.update(fields)
    return error


class ConfigError(TfosError, ValueError):
    """Options that cannot work; all problems are reported together."""

    problems: list[str]

    def __init__(self, problems: list[str]) -> None:
        super().__init__(problems=list(problems))

    def __str__(self) -> str:
        return "; ".join(self.problems)


class NoSession(TfosError, RuntimeError):
    """A Spark cluster was insisted on, but no usable SparkSession exists."""

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
    """This machine cannot hold so many nodes; ``limit`` says what there is too little of."""

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
    """Executors that lack a package or run another Python minor version; ``problems`` maps host to what is wrong."""

    problems: dict[str, str]

    def __init__(self, *, problems: dict[str, str]) -> None:
        super().__init__(problems=dict(problems))

    def __str__(self) -> str:
        hosts = "; ".join(f"{host}: {what}" for host, what in sorted(self.problems.items()))
        return (
            f"executors cannot run a node ({hosts}). Give the executors the driver's environment: install the packages "
            "there, or point spark.pyspark.python / PYSPARK_PYTHON at a Python that has them."
        )


class PayloadError(TfosError, TypeError):
    """A function or a captured name cannot travel to the nodes."""

    name: str
    type_name: str
    reason: str
    advice: str

    def __init__(self, *, name: str, type_name: str, reason: str, advice: str) -> None:
        super().__init__(name=name, type_name=type_name, reason=reason, advice=advice)

    def __str__(self) -> str:
        return f"'{self.name}' ({self.type_name}) cannot be sent to the nodes: {self.reason}. {self.advice}"


class ReservationTimeout(TfosError, TimeoutError):
    """Fewer nodes than asked for reserved in time."""

    reserved: int
    wanted: int
    waited_s: float
    missing: list[str]
    hint: str

    def __init__(self, *, reserved: int, wanted: int, waited_s: float, missing: list[str], hint: str = "") -> None:
        super().__init__(reserved=reserved, wanted=wanted, waited_s=waited_s, missing=list(missing), hint=hint)

    def __str__(self) -> str:
        hint = self.hint or "Ask for fewer nodes, or raise reservation_timeout"
        return (
            f"{self.reserved} of {self.wanted} nodes reserved within {self.waited_s:g} s; "
            f"missing: {', '.join(self.missing)}. {hint}."
        )


class LaunchFailed(TfosError, RuntimeError):
    """The launcher could not start the nodes; ``reason`` is the first cause it established."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)


class NodeFailed(TfosError, RuntimeError):
    """A node failed: its function raised, its process ended, or the node was lost.

    Attributes
    ----------
    node : str
        The first node that failed, such as ``"worker:1"``.
    kind : str
        Name of the remote exception's type, or ``"Exited"`` / ``"Lost"``.
    message : str
        The remote exception's text.
    traceback : str
        The remote traceback as text, without frames of tfos_lab; empty where there was none.
    also : list of str
        Other nodes that failed in the same way.
    consequences : dict of str to str
        What other nodes raised because this one was gone.
    log_tail : str
        The last lines of the node's log.
    """

    node: str
    kind: str
    message: str
    traceback: str
    also: list[str]
    consequences: dict[str, str]
    log_tail: str

    def __init__(
        self,
        *,
        node: str,
        kind: str,
        message: str,
        traceback: str = "",
        also: list[str] | None = None,
        consequences: dict[str, str] | None = None,
        log_tail: str = "",
    ) -> None:
        super().__init__(
            node=node,
            kind=kind,
            message=message,
            traceback=traceback,
            also=list(also or []),
            consequences=dict(consequences or {}),
            log_tail=log_tail,
        )

    def __str__(self) -> str:
        also = f" (and {', '.join(self.also)})" if self.also else ""
        parts = [f"{self.node}{also}: {self.kind}: {self.message}"]
        if self.traceback:
            parts.append(f"\n--- traceback of {self.node} ---\n{self.traceback.rstrip()}")
        elif self.log_tail:
            parts.append(f"\n--- last lines of {self.node} ---\n{self.log_tail.rstrip()}")
        if self.consequences:
            names = ", ".join(sorted(self.consequences))
            parts.append(f"\n{names} then failed too, because {self.node} was gone.")
        return "".join(parts)


class ClusterEnded(TfosError, RuntimeError):
    """Something was asked of a cluster that has ended."""

    cluster: str
    state: str
    asked: str

    def __init__(self, *, cluster: str, state: str, asked: str) -> None:
        super().__init__(cluster=cluster, state=state, asked=asked)

    def __str__(self) -> str:
        return f"cannot {self.asked}: cluster '{self.cluster}' is {self.state}. Start another with tfos_lab.run(...)."


class NoModel(TfosError, RuntimeError):
    """A run's model is not there, or not yet; or it cannot be loaded in this kernel."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)


class WaitTimeout(TfosError, TimeoutError):
    """``wait(timeout_s=...)`` ran out while nodes were still running; the cluster goes on."""

    waited_s: float
    still_running: list[str]

    def __init__(self, *, waited_s: float, still_running: list[str]) -> None:
        super().__init__(waited_s=waited_s, still_running=list(still_running))

    def __str__(self) -> str:
        return (
            f"after {self.waited_s:g} s still running: {', '.join(self.still_running)}. "
            "The cluster goes on; wait again, or end it with stop()."
        )


class FeedError(TfosError, RuntimeError):
    """Rows could not be fed to the nodes."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)


class FeedTimeout(FeedError, TimeoutError):
    """Nothing has moved for longer than ``feed_timeout``: Spark ended no task, and nodes neither got nor took a row."""


class NoKeyboard(TfosError, EOFError):
    """A function on a node asked for what only a person at a keyboard can give; ``asked`` is what it called."""

    asked: str

    def __init__(self, *, asked: str) -> None:
        super().__init__(asked=asked)

    def __str__(self) -> str:
        return (
            f"{self.asked} waits for somebody to type, and a node has no keyboard: run the cell with local=inline, "
            "which runs it in the notebook's kernel"
        )


class RecordError(TfosError, ValueError):
    """A TFRecord file that cannot be read, or a row that cannot become a record."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)


class ClusterInterrupted(KeyboardInterrupt):
    """The user interrupted the cell; its nodes are stopped."""

    def __init__(self, cluster: str) -> None:
        super().__init__(f"interrupted: the nodes of '{cluster}' are stopped")
        self.cluster = cluster
