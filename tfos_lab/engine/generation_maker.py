"""Puts a generation together: state, server, launcher, and the connections between them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tfos_lab import messages as m
from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.launchers import LauncherTraits
from tfos_lab.core.roles import NodeSpec, chief_of
from tfos_lab.data.session_stores import SessionStores
from tfos_lab.engine.bus import Bus
from tfos_lab.engine.cells import Cells
from tfos_lab.engine.files.output import OutputReceiver, saving_note
from tfos_lab.engine.generation import Generation, NodeControl
from tfos_lab.engine.history import History
from tfos_lab.engine.launchers.base import Launcher, LaunchPlan, make_launcher
from tfos_lab.engine.launchers.gpus import shortage, uneven
from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.payloads import PayloadSender
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.server import Server
from tfos_lab.engine.state.cluster_state import ClusterState
from tfos_lab.engine.state.events import NodeView
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.hangs import Hangs
from tfos_lab.engine.state.restart_budget import RestartBudget
from tfos_lab.engine.state.unread import UnreadWatch
from tfos_lab.engine.tensorboard.event_files import EventFileReceiver
from tfos_lab.transport.listener import Listener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class RunServices:
    """What all generations of a cluster share: the run's folder, and everything that writes into it or reports on it.

    Attributes
    ----------
    run_dir : RunDir
        The run's folder.
    history : History
        What has happened.
    bus : Bus
        What happens, as it happens.
    log_writer, event_files, output
        What stores the logs, event files and output that nodes send.
    cells : Cells
        The cells of an interactive cluster.
    """

    run_dir: RunDir
    history: History
    bus: Bus
    log_writer: LogWriter
    event_files: EventFileReceiver
    output: OutputReceiver
    cells: Cells

    @classmethod
    def make(cls, config: ClusterConfig, run_dir: RunDir, *, history: History, bus: Bus) -> RunServices:
        """Return the services of one run."""
        return cls(
            run_dir=run_dir,
            history=history,
            bus=bus,
            log_writer=LogWriter(run_dir, history.add_note, config.log_limit_bytes),
            event_files=EventFileReceiver(run_dir.event_home, run_dir.events, history.add_note),
            output=OutputReceiver(run_dir, limit_bytes=config.output_limit_bytes, of_all=config.output == "all"),
            cells=Cells(),
        )

    def record_start(self) -> None:
        """Record that the nodes are being sent their start messages."""
        self.history.mark_released(time.time())

    def record_saving(self, saving: m.SavesTo, node: NodeView) -> None:
        """Add a note if the chief saves its model where this machine will not find it."""
        note = saving_note(saving, node)
        if note:
            self.history.add_note(note)


@dataclass(frozen=True)
class GenerationMaker:
    """Makes the generations of one cluster, each with keys of its own.

    Attributes
    ----------
    config, node_specs
        What was asked for, and the nodes that follow from it.
    launcher : LauncherTraits
        Who starts the nodes.
    spark : SparkSession or None
        Whose executors to use.
    call : tuple
        The user's function and its ``args``; ``payload`` holds them pickled, for nodes in other processes.
    called_s : float
        When the cluster was asked for, in seconds since the epoch.
    hosts : tuple of str
        The interface on which the driver listens, and the host name by which the nodes reach it.
    stores : SessionStores
        Where the session's files are.
    working_dir : str
        The folder where the cluster was asked for.
    chief_stays_here : bool
        Whether a chief on this machine works there, and not in a folder of its own.
    make_listener, make_launcher : callable
        Open the driver's socket, given ``hosts``, and make the launcher, given its plan; tests put fakes here.
    """

    config: ClusterConfig
    node_specs: list[NodeSpec]
    launcher: LauncherTraits
    spark: SparkSession | None
    call: tuple[Callable[..., Any], Any]
    payload: bytes
    called_s: float
    hosts: tuple[str, str]
    stores: SessionStores
    working_dir: str = ""
    chief_stays_here: bool = True
    make_listener: Callable[[str, str, int], Listener] = Listener
    make_launcher: Callable[[LaunchPlan], Launcher] = make_launcher

    def make(self, services: RunServices, number: int, restarts: RestartBudget) -> Generation:
        """Make the ``number``-th generation of a cluster, from 0; nothing runs yet."""
        cluster_state = ClusterState(
            self.node_specs,
            grace_s=self.config.grace_s,
            needs_evaluator=self.config.on_evaluator_failure == "fail",
            restarts=restarts,
            find_lack=lambda views: self._find_lack(views, services, control),
        )
        trainers = {spec.rank: spec.node for spec in self.node_specs if spec.role.is_fed}
        feed_state = FeedState(trainers, lock_step=self.config.num_ps == 0, resumes=number > 0)
        # A function in the kernel is watched by its user, who may be at a breakpoint.
        hang_timeout_s = 0.0 if self.launcher.runs_inline else self.config.hang_timeout_s
        fails = self.config.on_hang == "fail"
        hangs = Hangs(cluster_state, lambda: feed_state.with_rows, timeout_s=hang_timeout_s, fails=fails)
        listener = self.make_listener(*self.hosts, len(self.node_specs))
        payload = PayloadSender(self.payload)
        server = Server(
            cluster_id=services.run_dir.id,
            listener=listener,
            cluster_state=cluster_state,
            feed_state=feed_state,
            hangs=hangs,
            unread=UnreadWatch(cluster_state, feed_state, warn_s=hang_timeout_s),
            bus=services.bus,
            logs=services.log_writer,
            event_files=services.event_files,
            output=services.output,
            cells=services.cells,
            make_start=self._start_maker(services, number, payload),
            payload=payload,
            on_saving=services.record_saving,
        )
        control = NodeControl(cluster_state, server)
        try:
            launcher = self.make_launcher(self._plan(services, server, control))
        except BaseException:
            listener.close()  # a context that nobody closes would hang the kernel when it is collected
            raise
        return Generation(number, cluster_state, feed_state, server, control, launcher, caught_up=number == 0)

    def _find_lack(self, views: tuple[NodeView, ...], services: RunServices, control: NodeControl) -> str:
        """Return why nodes that have reserved cannot start: too few GPUs; what is merely uneven becomes a note."""
        if note := uneven(self.config, self.node_specs, views):
            services.history.add_note(note)
        control.launch_error = control.launch_error or shortage(self.config, self.node_specs, views)
        return str(control.launch_error or "")

    def _start_maker(self, services: RunServices, number: int, payload: PayloadSender) -> StartMaker:
        return StartMaker(
            services.run_dir,
            services.output,
            self.config,
            self.node_specs,
            payload,
            called_s=self.called_s,
            restart=number,
            stores=self.stores,
            working_dir=self.working_dir,
            on_start=services.record_start,
        )

    def _plan(self, services: RunServices, server: Server, control: NodeControl) -> LaunchPlan:
        return LaunchPlan(
            traits=self.launcher,
            cluster_id=services.run_dir.id,
            config=self.config,
            node_specs=self.node_specs,
            driver=server.address,
            shared_dir=services.run_dir.backup_home if self.config.restarts else "",
            fail=control.fail_launch,
            lose=control.lose,
            lose_executor=control.lose_executor,
            executors=control.executors,
            free_slots=control.free_slots,
            missing=control.missing,
            note=services.history.add_note,
            spark=self.spark,
            call=self.call,
            chief_stays_here=self.chief_stays_here,
        )


class StartMaker:
    """Makes the start message of each node; ``on_start`` is called for each one."""

    def __init__(
        self,
        run_dir: RunDir,
        output: OutputReceiver,
        config: ClusterConfig,
        node_specs: list[NodeSpec],
        payload: PayloadSender,
        *,
        called_s: float,
        restart: int,
        stores: SessionStores,
        working_dir: str,
        on_start: Callable[[], None],
    ) -> None:
        self._run_dir = run_dir
        self._output = output
        self._config = config
        self._node_specs = node_specs
        self._payload = payload
        self._stores = stores
        self._working_dir = working_dir
        self._on_start = on_start
        self._called_s = called_s
        self._restart = restart
        self._chief = chief_of(node_specs)

    def __call__(self, rank: int, cluster_spec: dict[str, list[str]]) -> m.Start:
        """Return the start message of the node with this rank."""
        spec = self._node_specs[rank]
        output_dir = self._output.folder_of(spec.node, is_chief=spec == self._chief)
        self._on_start()
        start = m.Start(
            cluster_id=self._run_dir.id,
            rank=rank,
            cluster_spec=cluster_spec,
            job_name=spec.job_name,
            task_index=spec.task_index,
            is_chief=spec == self._chief,
            payload=b"",
            env=self._stores.env,
            log_dir=self._run_dir.log_dir,
            events_dir=self._run_dir.event_home,
            backup_dir=self._run_dir.backup if self._config.restarts else "",
            default_fs=self._stores.default_fs,
            working_dir=self._working_dir,
            grace_s=self._config.grace_s,
            stop_on_nan=self._config.on_nan == "stop",
            restart=self._restart,
            age_s=max(0.0, time.time() - self._called_s),
            output_dir=str(output_dir or ""),
            output_probe=str(self._output.probe),
            output_limit_bytes=self._output.limit_bytes,
        )
        return self._payload.add_to(start)
