"""The generations of one cluster: starts the first one, makes another for each restart, and stops the last one."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from tfos_lab.core.states import RunState
from tfos_lab.engine.generation import Generation
from tfos_lab.engine.generation_maker import GenerationMaker, RunServices
from tfos_lab.engine.state.instructions import Publish
from tfos_lab.engine.state.restart_budget import RestartBudget
from tfos_lab.errors import ReservationTimeout, TfosError, WaitTimeout

logger = logging.getLogger(__name__)

# Short enough that ■ in a notebook is quick: Python sees an interrupt between two waits.
WAIT_STEP_S = 0.1
STOP_EXTRA_S = 5.0


class Generations:
    """One cluster's generations; safe to use from any thread.

    Parameters
    ----------
    maker : GenerationMaker
        Makes each of them.
    services : RunServices
        What they share.
    on_over : callable
        Called by the server's thread when a generation has ended, with its state.

    Attributes
    ----------
    current : Generation
        The nodes as they are now.
    """

    def __init__(self, maker: GenerationMaker, services: RunServices, on_over: Callable[[RunState], None]) -> None:
        self._maker = maker
        self._services = services
        self._on_over = on_over
        self._changing = threading.RLock()
        self._stopping = False
        self._restarts = RestartBudget(maker.config.restarts)
        self.current = maker.make(services, 0, self._restarts)

    def launch(self) -> None:
        """Start the nodes of the first one; returns when all are on their way, or `stop` was called meanwhile."""
        with self._changing:
            generation = self.current
            self.listen(generation)
        try:
            generation.launcher.launch()
        except BaseException as error:
            generation.control.fail_launch(error if isinstance(error, TfosError) else None, str(error))
            generation.server.over.wait(STOP_EXTRA_S)
            raise

    def listen(self, generation: Generation) -> None:
        """Start to receive messages of a generation's nodes; may be called twice."""

        def on_over() -> None:
            generation.launcher.close()
            self._on_over(generation.state)

        generation.server.start(on_executor_gone=generation.launcher.on_executor_end, on_over=on_over)

    def next(self) -> Generation | None:
        """Make the one that follows a lost one and return it, or None if the user has stopped the cluster."""
        with self._changing:
            lost = self.current
            if self._stopping:
                self._abandon(lost)
                return None
            restart = f"restart {self._restarts.used} of {self._restarts.total}"
            self._services.history.add_note(f"{restart}, as {lost.cluster_state.reason}")
            try:
                self.current = self._maker.make(self._services, lost.number + 1, self._restarts)
            except Exception as error:  # noqa: BLE001 - such as no free port: the cluster fails as without restarts
                self._services.history.add_note(f"{restart} failed: {error}")
                self._abandon(lost, RunState.FAILED)
                self._on_over(lost.state)
                return None
            return self.current

    def wait_until_running(self, timeout_s: float, *, generation: Generation | None = None) -> None:
        """Wait until all nodes run, or the cluster has ended; after ``timeout_s`` it is stopped.

        With ``generation``, also return when that one is over: its nodes may be lost before they run.

        Raises
        ------
        ReservationTimeout, WaitTimeout
            If nodes have not reserved, or do not run, in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self._has_begun():
            if generation is not None and generation.server.over.is_set():
                return
            if time.monotonic() > deadline:
                self._give_up_waiting(timeout_s)

    def _has_begun(self) -> bool:
        # Inline, the function runs while it is waited for: before that there is no more than a reservation.
        may_start_later = self.current.launcher.traits.runs_inline

        def has_begun() -> bool:
            state = self.current.cluster_state.state
            return state.has_begun or (may_start_later and state is RunState.STARTING)

        return self._services.history.wait_for(has_begun, WAIT_STEP_S)

    def _give_up_waiting(self, limit_s: float) -> None:
        generation = self.current
        with generation.server.lock:
            missing, nodes = generation.cluster_state.missing, generation.cluster_state.views
        hint = generation.launcher.hint()
        self.stop(grace_s=0.0)
        if missing:
            raise ReservationTimeout(
                reserved=len(nodes) - len(missing), wanted=len(nodes), waited_s=limit_s, missing=missing, hint=hint
            )
        late = [view.node for view in nodes if view.state.is_present and not view.state.is_up]
        raise WaitTimeout(waited_s=limit_s, still_running=late)

    def stop(self, *, grace_s: float | None = None) -> None:
        """Stop all nodes; see `Cluster.stop`."""
        with self._changing:
            is_in_haste = self._stopping and grace_s == 0.0
            self._stopping = True
            generation = self.current
            self.listen(generation)  # a cluster that was never launched ends in the same way
        generation.server.request(lambda now_s: generation.cluster_state.stop(now_s, grace_s=grace_s))
        limit_s = (self._maker.config.grace_s if grace_s is None else grace_s) + STOP_EXTRA_S
        generation.launcher.cancel()
        if not self._wait_for_end(generation, limit_s, for_files=not is_in_haste):
            logger.warning("cluster %s did not end within %.0f s", self._services.run_dir.id, limit_s)
        generation.launcher.close()
        generation.server.request(generation.cluster_state.give_up)
        generation.server.join(STOP_EXTRA_S)
        self._abandon(generation)

    def _wait_for_end(self, generation: Generation, limit_s: float, *, for_files: bool) -> bool:
        deadline = time.monotonic() + limit_s
        while not generation.server.over.wait(WAIT_STEP_S):
            if for_files:
                deadline = max(deadline, self._services.output.moved_at + STOP_EXTRA_S)
            if time.monotonic() > deadline:
                return False
        return True

    def _abandon(self, lost: Generation, state: RunState = RunState.STOPPED) -> None:
        """End a cluster that was stopped while it was about to restart, or that cannot restart."""
        with lost.server.lock:
            for instruction in lost.cluster_state.abandon(time.time(), state):
                if isinstance(instruction, Publish):
                    self._services.bus.publish(instruction.event)
                    for event in self._services.output.conclude(time.time(), is_last=True):
                        self._services.bus.publish(event)
