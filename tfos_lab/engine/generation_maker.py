"""How an attempt is put together: state, server, launcher, and the wires between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.roles import Seat, chief_of
from tfos_lab.engine.generation import Attempt
from tfos_lab.engine.launchers.base import Launcher, LaunchPlan
from tfos_lab.engine.server import Server
from tfos_lab.engine.start_messages import ReleaseMaker, backup_home
from tfos_lab.engine.state.cluster_state import Roster
from tfos_lab.engine.state.feed_state import FeedLedger
from tfos_lab.engine.tensorboard.tunnel import Tunnel
from tfos_lab.transport.link import Listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.engine.lifecycle import Lifecycle


@dataclass(frozen=True)
class AttemptMaker:
    """Makes the attempts of one cluster, each with keys of its own.

    Attributes
    ----------
    config, seats
        What was asked for, and the places that follow from it.
    launcher : str
        ``"spark"``, ``"local"`` or ``"inline"``.
    spark : SparkSession or None
        Whose executors to use.
    call : tuple
        The user's function and its ``args``; ``payload`` holds them pickled, for nodes in other processes.
    hosts : tuple of str
        Where the driver listens, and by which name the nodes reach it.
    default_fs : str
        The file system that paths without a scheme are on; empty without a session.
    """

    config: ClusterConfig
    seats: list[Seat]
    launcher: str
    spark: SparkSession | None
    call: tuple[Callable[..., Any], Any]
    payload: bytes
    hosts: tuple[str, str]
    default_fs: str

    def make(self, cluster: Lifecycle, number: int) -> Attempt:
        """Make the ``number``-th attempt of ``cluster``, from 0; nothing runs yet."""
        roster = Roster(self.seats, grace_s=self.config.grace_s, may_restart=number < self.config.restarts)
        trainers = {seat.index: seat.node for seat in self.seats if seat.trains}
        ledger = FeedLedger(trainers, lock_step=self.config.num_ps == 0, resumes=number > 0)

        def hear_of_end(executor: str) -> None:
            attempt.launcher.hear_of_end(executor)  # the attempt is made below, before anybody is heard

        server = Server(
            cluster_id=cluster.id,
            listener=Listener(*self.hosts),
            roster=roster,
            ledger=ledger,
            bus=cluster.bus,
            logs=cluster.log_keeper,
            event_files=cluster.event_files,
            output=cluster.output,
            make_release=self._release_maker(cluster, number),
            note_saving=cluster.note_saving,
            note_executor_gone=hear_of_end,
        )
        has_board = self.config.tensorboard and self.launcher != "inline"
        tunnel = Tunnel(chief_of(self.seats).index, server.request) if has_board else None
        attempt = Attempt(number, roster, ledger, server, tunnel)
        attempt.launcher = self._make_launcher(self._plan(cluster, attempt))
        return attempt

    def _release_maker(self, cluster: Lifecycle, number: int) -> ReleaseMaker:
        return ReleaseMaker(
            cluster.run_dir,
            cluster.output,
            self.config,
            self.seats,
            self.payload,
            called_s=cluster.called_s,
            restart=number,
            default_fs=self.default_fs,
            note=cluster.note_release,
        )

    def _plan(self, cluster: Lifecycle, attempt: Attempt) -> LaunchPlan:
        return LaunchPlan(
            cluster_id=cluster.id,
            config=self.config,
            seats=self.seats,
            driver=attempt.server.address,
            shared_dir=backup_home(self.config, cluster.run_dir),
            fail=lambda error, reason: cluster.launch_failed(error, reason, attempt),
            lose=attempt.lose,
            lose_executor=attempt.lose_executor,
            executors=attempt.executors,
            free_slots=attempt.free_slots,
        )

    def _make_launcher(self, plan: LaunchPlan) -> Launcher:
        if self.launcher == "inline":
            from tfos_lab.engine.launchers.inline import InlineLauncher

            return InlineLauncher(plan, self.call)
        if self.launcher == "local":
            from tfos_lab.engine.launchers.local import LocalLauncher

            return LocalLauncher(plan)
        from tfos_lab.engine.launchers.spark import SparkLauncher

        assert self.spark is not None
        return SparkLauncher(plan, self.spark)
