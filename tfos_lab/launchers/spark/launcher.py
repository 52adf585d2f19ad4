"""The `spark` launcher: one task per node on the session's executors, through the DataFrame API.

Classic sessions and Spark Connect share this path. Each task starts its node's agent and holds the rank. When a feed
needs the slots, the tasks hand over to the agents and return; from then on the agents end with their executor's JVM, or
when the driver stops sending heartbeats. Under dynamic allocation the tasks' results stay cached on the executors until
the cluster ends, because Spark does not take back executors that hold cached data.

With ``driver_ps``, parameter servers run on the driver's machine, and all other nodes here. Both report to the same
head; ranks count all nodes.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable
from concurrent.futures import wait
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core.code_archive import make_task
from tfos_lab.core.crossing import own_error_in
from tfos_lab.core.threads import on_a_thread
from tfos_lab.data.frames import is_connect
from tfos_lab.data.spark_python import killed_worker
from tfos_lab.errors import FeedError, NodeFailed, NoSession, NotEnoughSlots, ReservationTimeout, TfosError
from tfos_lab.launchers.base import Launcher
from tfos_lab.launchers.capacity import require_room
from tfos_lab.launchers.gpus import check_assigned, wanted_of
from tfos_lab.launchers.local import LocalLauncher
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.executors import ExecutorWatch, check_executors, loss_reason, mismatch_in
from tfos_lab.launchers.spark.session import (
    ADVICE,
    ask_no_more,
    end_without_lost_server,
    lost_connect_server,
    lost_server,
    while_server_answers,
)
from tfos_lab.launchers.spark.slots import Arrival, gpus_per_task, slots_of
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tfos_lab.core.roles import NodeSpec
    from tfos_lab.driver.head import Head

_HAND_OVER_TIMEOUT_S = 20.0
# The client retries for minutes when a Connect server does not answer.
_UNPERSIST_TIMEOUT_S = 5.0
_SCHEMA = "rank long, ended string"
_LOST_EXECUTOR = re.compile(
    r"ExecutorLostFailure \(executor (\S+) [^)]*\) Reason:(.*?)(?:\n\n?Driver stack|\n\tat |\Z)", re.DOTALL
)
# Spark's name for the task of a rank: the nodes' tasks are those of one barrier stage.
_BARRIER_TASK = re.compile(r"barrier task ResultTask\(\d+, (\d+)\)")


class SparkLauncher(Launcher):
    """One Spark job with a task for each rank."""

    def __init__(self, head: Head, node_specs: list[NodeSpec] | None = None) -> None:
        super().__init__(head, node_specs)
        cluster = self._cluster
        assert cluster.spark is not None
        self._spark = spark = cluster.spark
        self._tag = f"tfos-{cluster.id}"
        self._inspection = f"tfos-inspect-{cluster.id}"
        self._closed = False
        self._cached: DataFrame | None = None
        self._arrival = Arrival(head, spark)
        self._watch = ExecutorWatch(head, spark, self._lose_server)
        self._thread = threading.Thread(target=self._run_job, name=f"tfos-launch-{cluster.id}", daemon=True)

    def launch(self) -> None:
        """Check slots and executors, then start the job on its own thread."""
        check_assigned(self._cluster.config, gpus_per_task(self._spark))
        if is_connect(self._spark):
            end_without_lost_server(self._spark)
        wanted = len(self._node_specs)
        slots = self._arrival.await_slots(wanted, lambda: self._closed)
        if slots is not None and slots.free < wanted and not self._closed:
            elsewhere = self._cluster.config.cluster_size - wanted
            pending = self._arrival.pending()
            raise NotEnoughSlots(
                wanted=wanted, free=slots.free, total=slots.total, elsewhere=elsewhere, pending=pending
            )
        if not self._closed:
            self._check_executors()
        if not self._closed:
            self._thread.start()
            self._watch.start()

    def _check_executors(self) -> None:
        """Check executors; under dynamic allocation they may all be still to come."""
        head = self._head
        wanted = len(self._node_specs)
        try:
            with self._watching("inspect", lambda: spark_session.cancel_tagged(self._spark, self._inspection)):
                while_server_answers(
                    self._spark,
                    lambda: check_executors(self._spark, wanted, dict(self._cluster.config.env), tag=self._inspection),
                    name=self._inspection,
                )
        except Exception as error:
            if isinstance(error, TfosError) or not self._arrival.is_late:
                raise
            waited_s, missing = self._cluster.config.start_timeout, head.missing()
            raise ReservationTimeout(
                reserved=0, wanted=wanted, waited_s=waited_s, missing=missing, hint=self.hint()
            ) from None

    def _watching(self, what: str, cancel: Callable[[], object]) -> contextlib.AbstractContextManager[None]:
        """Tell what executors wait for, where they come when there are tasks for them."""
        if not spark_session.allocates_dynamically(self._spark):
            return contextlib.nullcontext()
        return self._arrival.watched(f"tfos-{what}-{self._cluster.id}", cancel)

    def _run_job(self) -> None:
        spark = self._spark
        wanted = len(self._node_specs)
        template = self._launch_spec(rank=-1, node="", owner=spark_session.owner_of(spark), watched_pid=0)
        task = make_task(
            "tfos_lab.node.spark_task",
            "node_task",
            msgspec.msgpack.encode(template),
            [(spec.rank, spec.node, wanted_of(self._cluster.config, spec)) for spec in self._node_specs],
        )
        dynamic = spark_session.allocates_dynamically(spark)
        description = f"tfos_lab: nodes of '{self._cluster.config.name}' ({wanted})"
        try:
            with spark_session.tagged(spark, self._tag, description), self._watching("await", lambda: None):
                # Spark refuses barrier stages under dynamic allocation.
                held = spark.range(0, wanted, 1, wanted).mapInArrow(task, _SCHEMA, barrier=not dynamic)
                if dynamic:
                    self._cached = held = held.persist(spark_session.lasting_storage(spark))
                held.collect()
        except Exception as error:  # noqa: BLE001 - any error of Spark's ends the nodes; the cluster reports it
            if not self._closed:
                self._explain(error)

    def _explain(self, error: Exception) -> None:
        """Report why Spark has ended the nodes' tasks, and that all nodes are lost."""
        head = self._head
        lost_executor = _LOST_EXECUTOR.search(str(error))
        own = own_error_in(error)
        ranks = {spec.node: spec.rank for spec in self._node_specs}
        if lost_executor is not None:
            why = f"Spark has lost its executor: {loss_reason(lost_executor[2])}"
            head.lose_executor(lost_executor[1], "; ".join(filter(None, [why, lost_server(self._spark)])))
        elif isinstance(own, NodeFailed) and own.node in ranks:
            head.lose(ranks[own.node], own.message)
        elif (killed := killed_worker(error)) and (task := _BARRIER_TASK.search(str(error))):
            head.lose(self._node_specs[int(task[1])].rank, str(killed))
        else:
            own = own or mismatch_in(error, lambda: spark_session.hosts_of_failed_tasks(self._spark, self._tag))
            # Spark does not say by whom.
            ended = spark_session.death_of(self._spark) if "SparkContext was shut down" in str(error) else None
            causes = [ended] if ended else [spark_session.cause_of(error), lost_server(self._spark)]
            head.fail_launch(own, str(own or f"Spark ended the nodes' job: {'; '.join(filter(None, causes))}"))
        for spec in self._node_specs:
            head.lose(spec.rank, "Spark has ended its task")

    def _lose_server(self, lost: str) -> None:
        """Report that Spark Connect's server has gone, which is why its executors go."""
        gone = NoSession(reason=f"{lost}, and its nodes have ended with it", advice=ADVICE)
        self._head.fail_launch(gone, str(gone))
        ask_no_more(self._spark)

    def free_slots(self) -> None:
        """If the nodes hold every slot, have their tasks hand over to the agents and return."""
        slots = slots_of(self._spark)
        if not self._thread.is_alive() or (slots is not None and slots.free > 0):
            return
        self._head.free_slots()
        self._thread.join(_HAND_OVER_TIMEOUT_S)
        if self._thread.is_alive():
            raise FeedError(
                reason=f"Spark has no free task slot to feed from, and the nodes did not give theirs back within "
                f"{_HAND_OVER_TIMEOUT_S:g} s"
            )

    def on_executor_end(self, executor: str) -> None:
        """Ask Spark why the executor has ended."""
        self._watch.on_executor_end(executor)

    def cancel(self) -> None:
        """Cancel what Spark has not begun, and the inspection of executors; running nodes end with their agents."""
        self._closed = True
        if self._thread.ident is None:
            spark_session.cancel_tagged(self._spark, self._inspection)

    def hint(self) -> str:
        """Count Spark's task slots."""
        slots = slots_of(self._spark)
        if slots is None:
            return "Ask for fewer nodes, or give the Spark Connect server more executors"
        pending = self._arrival.pending()
        numbers = f"Spark has {format_count(slots.total, 'task slot')}, {slots.free} of them free"
        return f"{numbers}{pending and f', and {pending}'}. Ask for fewer nodes, or add executors"

    def close(self) -> None:
        """Cancel the rest of the job, and give Spark its executors back; may be called twice."""
        self._closed = True
        self._watch.close()
        # Without its server, Spark Connect's client asks again for minutes; the thread ends with the process then.
        if self._thread.is_alive() and not lost_connect_server(self._spark):
            self._thread.join(1.0)
            if self._thread.is_alive() and spark_session.cancel_tagged(self._spark, self._tag):
                self._thread.join(5.0)
        self._unpersist()

    def _unpersist(self) -> None:
        cached, self._cached = self._cached, None
        if cached is None:
            return

        def unpersist() -> None:
            with contextlib.suppress(Exception):  # the session has gone, and its cached data with it
                cached.unpersist()

        wait([on_a_thread(unpersist, name=f"tfos-unpersist-{self._cluster.id}")], _UNPERSIST_TIMEOUT_S)


# ---- parameter servers on the driver's machine -----------------------------------------------------------------------


class DriverPsLauncher(SparkLauncher):
    """A `LocalLauncher` for the parameter servers beside what launches the rest."""

    def __init__(self, head: Head) -> None:
        node_specs = head.cluster.node_specs
        super().__init__(head, [spec for spec in node_specs if not spec.role.serves])
        self._servers = [spec for spec in node_specs if spec.role.serves]
        self._local = LocalLauncher(head, self._servers)

    def launch(self) -> None:
        """Launch the nodes on Spark, which may refuse them; then the parameter servers."""
        require_room(len(self._servers), option="num_ps")
        super().launch()
        self._local.launch()

    def cancel(self) -> None:
        """Stop launching what has not begun, on both sides."""
        super().cancel()
        self._local.cancel()

    def hint(self) -> str:
        """Count Spark's task slots, and name the log of the parameter servers' parent process."""
        return f"{super().hint()}. {self._local.hint()}"

    def close(self) -> None:
        """Release everything; may be called twice."""
        self._local.close()
        super().close()
