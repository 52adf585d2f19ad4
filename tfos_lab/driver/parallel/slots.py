"""How many independent runs may go on at once: on this machine, on Spark's executors, or in this very process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfos_lab.core.gpu_shares import GpuOption, gpus_wanted
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.roles import Role
from tfos_lab.data.frames import is_connect
from tfos_lab.errors import ConfigError
from tfos_lab.launchers.capacity import cores, room
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.executors import inspect_executors
from tfos_lab.launchers.spark.slots import await_slots, gpus_per_task, slots_of
from tfos_lab.node.gpus import devices_in, free_gpus, visible_gpus
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Slots:
    """Where runs find a slot: of a number that stays, such as one in this very process, which runs one after the other.

    ``limit`` is the most runs at once, None for as many as there are slots; ``total`` the number of slots, as far as it
    is known. Of ``gpus``, each run has ``per_run`` that no other has at the same time. `is_waiting` says whether the
    last call of `free` found that others hold the slots.
    """

    def __init__(self, limit: int | None, total: int, gpus: Sequence[str] = (), per_run: int = 0) -> None:
        self.limit = limit
        self.total = total
        self.is_waiting = False
        self._gpus, self._per_run = gpus, per_run

    def free(self, taken: int, launching: int, wanted: int = 1) -> int:
        """Return how many slots are free for runs that begin now, of which the next one needs ``wanted``.

        The runs that go on take ``taken`` slots, of which they may not have taken ``launching`` yet.
        """
        free = self._free(taken, launching, wanted)
        self.is_waiting = free < wanted and taken == 0
        return max(0, free if self.limit is None else min(free, self.limit - taken))

    def _free(self, taken: int, launching: int, wanted: int) -> int:  # noqa: ARG002 - what others ask for
        free = self.total - taken
        # Others may hold some GPUs, and nodes that launch may not have taken theirs yet.
        return min(free, len(free_gpus(self._gpus)) // self._per_run - launching) if self._per_run else free

    def most(self) -> int | None:
        """Return how many slots one run may take at most; None if their number changes, or is not known."""
        return self.total if self.limit is None else min(self.total, self.limit)


class SparkSlots(Slots):
    """The free task slots of a session; others may hold some, and under dynamic allocation their number changes.

    The executors' GPUs are enough for ``gpu_runs`` runs; None where that does not matter.
    """

    def __init__(self, limit: int | None, spark: SparkSession, gpu_runs: int | None = None) -> None:
        super().__init__(limit, 0)
        self._spark = spark
        self._gpu_runs = gpu_runs
        self._dynamic = spark_session.allocates_dynamically(spark)

    def most(self) -> int | None:
        """Return the number of slots, unless executors come and go."""
        slots = None if self._dynamic else await_slots(self._spark, 1)
        if slots is None:
            return self.limit
        self.total = slots.total if self._gpu_runs is None else min(slots.total, self._gpu_runs)
        return super().most()

    def _free(self, taken: int, launching: int, wanted: int) -> int:
        slots = slots_of(self._spark)
        self.total = (self.total or self._count_partitions()) if slots is None else slots.total
        free = self.total - taken
        if slots is not None:
            # Tasks of runs that launch are not among Spark's running ones yet.
            unused = slots.free - launching
            # Under dynamic allocation, a task that waits makes Spark ask for another executor; otherwise, nodes that
            # are fed may have given their slots back, for Spark's feed tasks.
            free = max(unused, wanted - launching) if self._dynamic else min(unused, free)
        return free if self._gpu_runs is None else min(free, self._gpu_runs - taken)

    def _count_partitions(self) -> int:
        """Return how many slots a Connect server has: it makes a partition for each, and does not report them."""
        numbers = self._spark.range(1 << 16).selectExpr("spark_partition_id() as number")
        row = numbers.agg({"number": "max"}).first()
        return int(row[0]) + 1 if row is not None else 1


def slots_for(
    launcher: LauncherTraits, spark: SparkSession | None, *, limit: int | None, gpus: GpuOption, largest: int = 1
) -> Slots:
    """Return the slots of a launcher, for runs of up to ``largest`` nodes.

    On this machine, there is a slot for each core, or for each task slot of a local session, and at least as many as
    the largest run has nodes, which may share cores. Raises ConfigError if the machine has no room for so many runs, or
    there are too few GPUs for one.
    """
    if launcher.runs_inline:
        return Slots(1, 1)
    per_run = (None if gpus is None else gpus_wanted(gpus, Role.CHIEF, {})) or 0
    if launcher.spans_hosts and spark is not None:
        return SparkSlots(limit, spark, _gpu_runs(spark, per_run))
    fits, why = room()
    if limit is not None and limit > fits:
        raise ConfigError([f"slots={limit}: this machine has room for {format_count(fits, 'run')} at once: {why}"])
    of_session = None if spark is None or is_connect(spark) else slots_of(spark)
    default = of_session.total if of_session is not None and of_session.total else cores()
    total = min(fits, limit or max(default, largest))
    if not per_run:
        return Slots(limit, total)
    there = visible_gpus()
    if per_run > len(there):
        raise ConfigError(
            [f"gpus={per_run}: this machine has {len(there)} for all runs; ask for fewer, or leave it out"]
        )
    return Slots(limit, min(total, len(there) // per_run), there, per_run)


def _gpu_runs(spark: SparkSession, per_run: int) -> int | None:
    """Return for how many nodes the executors' GPUs are enough; None if they want none, or Spark assigns them."""
    if not per_run or gpus_per_task(spark) is not None:
        return None
    there = {fact.host: len(devices_in(fact.gpus)) for fact in inspect_executors(spark, 1, {})}
    runs = sum(count // per_run for count in there.values())
    if not runs:
        hosts = ", ".join(f"{host} has {count}" for host, count in sorted(there.items()))
        raise ConfigError([f"gpus={per_run}: no host of Spark's executors has so many for a run ({hosts})"])
    return runs
