"""Errors of rows: on their way to the nodes and back, and in TFRecord files."""

from __future__ import annotations

from tfos_lab.errors.base import TfosError


class FeedError(TfosError, RuntimeError):
    """Rows could not be fed to the nodes."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)


class FeedTimeout(FeedError, TimeoutError):
    """Nothing moved for ``feed_timeout`` seconds: Spark ended no task, and no node received or took a row."""


class PythonWorkerKilled(FeedError):
    """A Python worker process of Spark's was killed, or has crashed, while it worked on rows or held a node's slot.

    ``host`` and ``executor`` say where, as far as Spark tells, and ``times`` how often for the same task.
    """

    host: str
    executor: str
    times: int

    def __init__(self, *, host: str = "", executor: str = "", times: int = 1) -> None:
        TfosError.__init__(self, host=host, executor=executor, times=times)

    def __str__(self) -> str:
        where = f" on {self.host} (executor {self.executor})" if self.host else ""
        often = f", {self.times} times for the same rows" if self.times > 1 else ""
        return (
            f"a Python worker process of Spark's{where} was killed or has crashed{often}: as a rule its host or "
            "container has run out of memory (dmesg there, and the executor's stderr, tell). Give executors more "
            "memory beside the JVM (spark.executor.memoryOverhead), let fewer tasks run at once "
            "(spark.executor.cores), or use more and smaller partitions"
        )


class NodeUnreachable(FeedError, ConnectionError):
    """A Spark task could not reach the node that its rows are for."""


class RecordError(TfosError, ValueError):
    """A TFRecord file that cannot be read, or a row that cannot become a record."""

    reason: str

    def __init__(self, *, reason: str) -> None:
        super().__init__(reason=reason)
