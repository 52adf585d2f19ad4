"""What a run of a cluster may leave in the kernel and around it, and the memory that it takes."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.support import leftovers
from tests.support.leftovers import scratch_root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# What is to go goes at once; on a busy machine that takes a while.
_PATIENCE_S = 60.0
# Folders of killed agents are removed when they are older (`tfos_lab.node.scratch`).
_KEPT_S = 61.0
# Connections between the session and its JVM come and go, each with a thread.
_SLACK = 4
_KEPT_SOCKETS = ("unix_server-", "tensorboard-")


def rss_bytes() -> int:
    """Return the memory of this process, after a collection."""
    gc.collect()
    return psutil.Process().memory_info().rss


@dataclass
class Traces:
    """Counts what must be as before after each round; made once the session is there.

    Parameters
    ----------
    spark : SparkSession
        The session, which must have no job left.
    """

    spark: SparkSession
    _stock: leftovers.Stock = field(default_factory=leftovers.Stock)
    _began_s: float = 0.0
    _most_fds: int = 0
    _most_threads: int = 0
    _streams: int = 0

    def begin(self, *, is_stream: bool) -> None:
        """Say that a round begins.

        Spark's callbacks leave a thread with its connection for each query with ``foreachBatch``, ours or not (4.2).
        """
        self._began_s = time.time()
        self._streams += is_stream

    def settle(self) -> None:
        """Take what is open now as what may stay: the first rounds open what all later ones use."""
        self._collect()
        self._most_fds = max(self._most_fds, len(_open_files()) - self._streams)
        self._most_threads = max(self._most_threads, threading.active_count() - self._streams)

    def left(self, *, all_is_open: bool) -> list[str]:
        """Return what is left of a round, after some patience; nothing if all is as before.

        Descriptors and threads are counted once ``all_is_open`` that later rounds use as well.
        """
        deadline = time.monotonic() + _PATIENCE_S
        while (found := [*self._find(all_is_open=all_is_open)]) and time.monotonic() < deadline:
            time.sleep(0.05)
            self._collect()
        return found

    def figures(self) -> str:
        """Return how many descriptors and threads there are."""
        return f"{len(_open_files())} descriptors, {threading.active_count()} threads"

    def _collect(self) -> None:
        """Let go of what nobody uses; the JVM so closes the connections of its threads that have ended."""
        gc.collect()
        self.spark._jvm.System.gc()

    def _find(self, *, all_is_open: bool) -> Iterator[str]:
        yield from self._stock.leftovers(within_s=0.0)
        yield from _nodes_folders(self._began_s - _KEPT_S)
        jobs = self.spark.sparkContext.statusTracker().getActiveJobsIds()
        if jobs:
            yield f"Spark's jobs {jobs}"
        for query in self.spark.streams.active:
            yield f"Spark's stream {query.id}"
        if all_is_open:
            yield from self._find_more()

    def _find_more(self) -> Iterator[str]:
        files, slack = _open_files(), self._streams + _SLACK
        if len(files) > self._most_fds + slack:
            kinds = Counter(_kind(target) for target in files)
            yield f"{len(files)} descriptors instead of {self._most_fds + slack} ({dict(kinds)})"
        threads = [thread.name for thread in threading.enumerate()]
        if len(threads) > self._most_threads + slack:
            yield f"{len(threads)} threads instead of {self._most_threads + slack}: {threads}"


def _nodes_folders(swept_until_s: float) -> Iterator[str]:
    """Yield what is in the folder of nodes and not of fork servers or this process.

    An agent that was killed leaves its folder to the agents of a later round.
    """
    for path in scratch_root().iterdir():
        if path.name.startswith(_KEPT_SOCKETS):
            if f"-{os.getpid()}-" not in path.name:
                yield f"the socket {path}"
        elif path.name.rpartition("-")[2].isdigit():
            with contextlib.suppress(FileNotFoundError):
                if psutil.pid_exists(int(path.name.rpartition("-")[2])) or path.stat().st_mtime < swept_until_s:
                    yield f"the folder {path}"


def _open_files() -> list[str]:
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(entry.readlink()))
    return found


def _kind(target: str) -> str:
    return target.partition(":")[0] if ":" in target else "file"
