"""Executors that have not come yet: nodes wait for them, and the cell tells what they wait for themselves."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from tfos_lab.data.spark_python import unchosen_text
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.engine.spark.asked import coming_slots, ungranted_text
from tfos_lab.engine.spark.servers import lost_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.engine.spark.session import Slots

_POLL_S = 0.1
# Tasks of a cluster that has just ended hold their slots for so long.
_LEAVING_S = 3.0
# Pods take a moment to start; those that take longer are worth a note.
_QUIET_S = 3.0

logger = logging.getLogger(__name__)


class Arrival:
    """One cluster's wait for executors.

    Parameters
    ----------
    spark : SparkSession
        Whose executors they are.
    missing : callable
        Returns the nodes that are still waited for.
    note : callable
        Called with a sentence on what they wait for, once for each.
    timeout_s : float
        How long to wait, from now on.
    """

    def __init__(
        self,
        spark: SparkSession,
        missing: Callable[[], Collection[str]],
        note: Callable[[str], None],
        *,
        timeout_s: float,
    ) -> None:
        self._spark = spark
        self._missing = missing
        self._note = note
        self._look_s = time.monotonic() + _QUIET_S
        self._deadline = time.monotonic() + timeout_s
        self._told: set[str] = set()
        self._given_up = ""

    @property
    def is_late(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self._deadline

    def await_slots(self, wanted: int, is_cancelled: Callable[[], bool]) -> Slots | None:
        """Return Spark's slots once ``wanted`` are free, no more can be expected, or the time is up.

        None where Spark does not report them, or brings executors when there are tasks for them.
        """
        slots = spark_session.await_slots(self._spark, wanted, self.tell)
        leaving_until_s = time.monotonic() + _LEAVING_S
        while slots is not None and slots.free < wanted and not self.is_late and not is_cancelled():
            coming = coming_slots(self._spark)
            leaving = slots.total - slots.free if time.monotonic() < leaving_until_s else 0
            if not coming or slots.free + coming + leaving < wanted:
                break
            self.tell()
            time.sleep(_POLL_S)
            slots = spark_session.slots_of(self._spark)
        return slots

    @contextlib.contextmanager
    def watched(self, name: str, cancel: Callable[[], object]) -> Iterator[None]:
        """While the block runs and nodes are missing, tell why; call ``cancel`` when the time is up.

        Parameters
        ----------
        name : str
            For the thread.
        cancel : callable
            Ends the block; may be called more than once.
        """
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_POLL_S) and self._missing():
                self.tell()
                if self.is_late:
                    self._given_up = self.pending()  # Spark forgets executors that it no longer needs
                    cancel()

        thread = threading.Thread(target=watch, name=name, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()

    def pending(self) -> str:
        """Return a clause on executors that have not come, or had not when they were given up; "" if unknown."""
        if self._given_up:
            return self._given_up
        return lost_server(self._spark) or ungranted_text(self._spark)

    def tell(self) -> None:
        """Add a note on what executors wait for, now and then."""
        now_s = time.monotonic()
        if now_s < self._look_s:
            return
        self._look_s = now_s + _QUIET_S
        for text in filter(None, (self.pending(), unchosen_text(self._spark))):
            if text not in self._told:
                self._told.add(text)
                self._note(f"waiting for Spark's executors: {text}")
                logger.warning("waiting for Spark's executors: %s", text)
