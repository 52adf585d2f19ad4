"""How many independent runs may go on at once: on this machine, on Spark's executors, or in this very process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.data.frames import is_connect
from tfos_lab.engine.launchers.capacity import Room, look_around
from tfos_lab.engine.launchers.gpus import visible_gpus
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Slots(ABC):
    """Where runs find a slot.

    Parameters
    ----------
    limit : int or None
        The most runs at once; None for as many as there are slots.

    Attributes
    ----------
    is_waiting : bool
        Whether the last call of `free` found that others hold the slots.
    total : int
        The number of slots, as far as it is known.
    """

    def __init__(self, limit: int | None, total: int) -> None:
        self.limit = limit
        self.is_waiting = False
        self.total = total

    def free(self, going: int, launching: int) -> int:
        """Return how many runs may begin now.

        Parameters
        ----------
        going : int
            How many go on.
        launching : int
            How many of them may not have taken their slots yet.
        """
        free = self._free(going, launching)
        self.is_waiting = free <= 0 and going == 0
        return max(0, free if self.limit is None else min(free, self.limit - going))

    @abstractmethod
    def _free(self, going: int, launching: int) -> int: ...

    def environ(self, index: int) -> dict[str, str]:  # noqa: ARG002 - a hook
        """Return further environment variables for a run that begins, which takes what they stand for."""
        return {}

    def release(self, index: int) -> None:  # noqa: B027 - a hook
        """A run has ended, and gives back what it took."""


class MachineSlots(Slots):
    """This machine: a slot for each core, or for each task slot of a local session; and GPUs, if each run has some.

    Parameters
    ----------
    limit : int or None
        The most runs at once.
    default : int or None
        The number of slots without a limit; the number of cores if None.
    gpus : int or None
        GPUs of each run, which no other has at the same time; None leaves all GPUs visible to each.
    room : Room, optional
        What is free on this machine.

    Raises
    ------
    ConfigError
        If the machine has no room for so many runs, or too few GPUs for one.
    """

    def __init__(
        self, limit: int | None, default: int | None, gpus: int | None = None, room: Room | None = None
    ) -> None:
        room = room or look_around()
        fits, why = room.holds()
        if limit is not None and limit > fits:
            raise ConfigError([f"slots={limit}: this machine has room for {fits} runs at once: {why}"])
        super().__init__(limit, min(fits, limit or default or room.cores))
        self._free_gpus: list[Sequence[str]] | None = None
        self._taken: dict[int, Sequence[str]] = {}
        if gpus:
            self._free_gpus = _shares(visible_gpus(), gpus)
            self.total = min(self.total, len(self._free_gpus))

    def _free(self, going: int, launching: int) -> int:  # noqa: ARG002 - processes have their slots at once
        return self.total - going

    def environ(self, index: int) -> dict[str, str]:
        """Take GPUs for a run."""
        if self._free_gpus is None:
            return {}
        self._taken[index] = self._free_gpus.pop(0)
        return {"CUDA_VISIBLE_DEVICES": ",".join(self._taken[index])}

    def release(self, index: int) -> None:
        """Give a run's GPUs to others."""
        gpus = self._taken.pop(index, None)
        if gpus is not None and self._free_gpus is not None:
            self._free_gpus.append(gpus)


def _shares(gpus: list[str], per_run: int) -> list[Sequence[str]]:
    if per_run > len(gpus):
        raise ConfigError(
            [f"gpus={per_run}: this machine has {len(gpus)} for all runs; ask for fewer, or leave it out"]
        )
    return [gpus[first : first + per_run] for first in range(0, len(gpus) - per_run + 1, per_run)]


class SparkSlots(Slots):
    """The free task slots of a session; others may hold some, and under dynamic allocation their number changes."""

    def __init__(self, limit: int | None, spark: SparkSession) -> None:
        super().__init__(limit, 0)
        self._spark = spark
        self._dynamic = spark_session.allocates_dynamically(spark)

    def _free(self, going: int, launching: int) -> int:
        slots = spark_session.slots_of(self._spark)
        if slots is None:
            self.total = self.total or self._count_partitions()
            return self.total - going
        self.total = slots.total
        # Tasks of runs that launch are not among Spark's running ones yet. Nodes that are fed give back their slots.
        free = min(slots.free - launching, slots.total - going)
        # A task that waits makes Spark ask for another executor.
        return max(free, 1 - launching) if self._dynamic else free

    def _count_partitions(self) -> int:
        """Return how many slots a Connect server has, which it does not tell: it makes a partition for each."""
        numbers = self._spark.range(1 << 16).selectExpr("spark_partition_id() as number")
        row = numbers.agg({"number": "max"}).first()
        return int(row[0]) + 1 if row is not None else 1


class InlineSlots(Slots):
    """This very process, which runs one after the other."""

    def __init__(self) -> None:
        super().__init__(1, 1)

    def _free(self, going: int, launching: int) -> int:  # noqa: ARG002
        return 1 - going


def slots_for(launcher: LauncherTraits, spark: SparkSession | None, *, limit: int | None, gpus: int | None) -> Slots:
    """Return the slots of a launcher; see `MachineSlots` for errors."""
    if launcher.runs_inline:
        return InlineSlots()
    if launcher.spans_hosts and spark is not None:
        return SparkSlots(limit, spark)
    slots = None if spark is None or is_connect(spark) else spark_session.slots_of(spark)
    return MachineSlots(limit, slots.total if slots is not None else None, gpus)
