"""How a generation is put together: state, server, launcher, and the wires between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.roles import NodeSpec, chief_of
from tfos_lab.engine.generation import Generation
from tfos_lab.engine.launchers.base import LaunchPlan, make_launcher
from tfos_lab.engine.server import Server
from tfos_lab.engine.start_messages import StartMaker, backup_home
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.tensorboard.tunnel import Tunnel
from tfos_lab.transport.link import Listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.engine.lifecycle import Lifecycle


@dataclass(frozen=True)
class GenerationMaker:
    """Makes the generations of one cluster, each with keys of its own.

    Attributes
    ----------
    config, node_specs
        What was asked for, and the places that follow from it.
    launcher : LauncherTraits
        Who starts the nodes.
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
    node_specs: list[NodeSpec]
    launcher: LauncherTraits
    spark: SparkSession | None
    call: tuple[Callable[..., Any], Any]
    payload: bytes
    hosts: tuple[str, str]
    default_fs: str

    def make(self, cluster: Lifecycle, number: int) -> Generation:
        """Make the ``number``-th generation of ``cluster``, from 0; nothing runs yet."""
        cluster_state = ClusterState(
            self.node_specs, grace_s=self.config.grace_s, may_restart=number < self.config.restarts
        )
        trainers = {spec.rank: spec.node for spec in self.node_specs if spec.role.is_fed}
        feed_state = FeedState(trainers, lock_step=self.config.num_ps == 0, resumes=number > 0)

        def on_executor_end(executor: str) -> None:
            generation.launcher.on_executor_end(executor)  # the generation is made below, before anybody is heard

        server = Server(
            cluster_id=cluster.id,
            listener=Listener(*self.hosts),
            cluster_state=cluster_state,
            feed_state=feed_state,
            bus=cluster.bus,
            logs=cluster.log_writer,
            event_files=cluster.event_files,
            output=cluster.output,
            make_start=self._start_maker(cluster, number),
            on_saving=cluster.on_saving,
            on_executor_gone=on_executor_end,
        )
        has_tensorboard = self.config.tensorboard and not self.launcher.runs_inline
        tunnel = Tunnel(chief_of(self.node_specs).rank, server.request) if has_tensorboard else None
        generation = Generation(number, cluster_state, feed_state, server, tunnel)
        generation.launcher = make_launcher(self._plan(cluster, generation))
        return generation

    def _start_maker(self, cluster: Lifecycle, number: int) -> StartMaker:
        return StartMaker(
            cluster.run_dir,
            cluster.output,
            self.config,
            self.node_specs,
            self.payload,
            called_s=cluster.called_s,
            restart=number,
            default_fs=self.default_fs,
            on_start=cluster.record_start,
        )

    def _plan(self, cluster: Lifecycle, generation: Generation) -> LaunchPlan:
        return LaunchPlan(
            traits=self.launcher,
            cluster_id=cluster.id,
            config=self.config,
            node_specs=self.node_specs,
            driver=generation.server.address,
            shared_dir=backup_home(self.config, cluster.run_dir),
            fail=lambda error, reason: cluster.launch_failed(error, reason, generation),
            lose=generation.lose,
            lose_executor=generation.lose_executor,
            executors=generation.executors,
            free_slots=generation.free_slots,
            spark=self.spark,
            call=self.call,
        )
