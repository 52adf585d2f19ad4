"""Restarts a cluster's nodes when one of them was lost, and feeds the new ones what the old ones had been fed.

Only a node that was taken away is a reason: killed, silent for too long, or lost with its executor. A function that
raised would raise again. What the nodes had learned is the function's own to keep: `ctx.callbacks()` does so for Keras'
``fit``.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Protocol

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.states import RunState
from tfos_lab.engine.feed.job import GenerationLost
from tfos_lab.engine.generations import STOP_EXTRA_S
from tfos_lab.errors import NotEnoughSlots, TfosError

if TYPE_CHECKING:
    from tfos_lab.engine.generation import Generation

logger = logging.getLogger(__name__)

# Spark takes a while to replace a lost executor.
_SLOTS_POLL_S = 1.0


class RestartedCluster(Protocol):
    """What a restart needs of a cluster."""

    @property
    def id(self) -> str:
        """Unique identifier."""
        ...

    @property
    def config(self) -> ClusterConfig:
        """What the user asked for."""
        ...

    @property
    def generation(self) -> Generation:
        """The nodes as they are now."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the cluster has ended."""
        ...

    def next_generation(self) -> Generation | None:
        """Make the generation that follows a lost one, or return None if the user has stopped the cluster."""
        ...

    def listen(self, generation: Generation) -> None:
        """Start to receive messages of a generation's nodes."""
        ...

    def wait_until_running(self, *, generation: Generation) -> None:
        """Wait until all nodes run, or the generation is over."""
        ...


class Feeds(Protocol):
    """What a restart needs of the cluster's feeds."""

    def catch_up(self, generation: Generation) -> None:
        """Feed a generation what the earlier ones were fed."""
        ...


class Restarter(threading.Thread):
    """Waits for the end of each generation (thread ``tfos-restarts-<cluster>``); ends with the cluster."""

    def __init__(self, cluster: RestartedCluster, feeds: Feeds) -> None:
        super().__init__(name=f"tfos-restarts-{cluster.id}", daemon=True)
        self._cluster = cluster
        self._feeds = feeds

    def run(self) -> None:
        """Start another generation whenever one ends with a lost node."""
        while True:
            lost = self._cluster.generation
            lost.server.over.wait()
            if lost.state is not RunState.RESTARTING:
                return
            lost.launcher.close()
            lost.server.join(STOP_EXTRA_S)  # its port may be the only one that the next may listen on
            generation = self._cluster.next_generation()
            if generation is None:
                return
            self._begin(generation)

    def _begin(self, generation: Generation) -> None:
        try:
            self._cluster.listen(generation)
            self._launch(generation)
            self._cluster.wait_until_running(generation=generation)
            if generation.state is RunState.RESTARTING:
                return  # lost before it ran, such as with a host that Spark does not know to be gone
            self._feeds.catch_up(generation)
        except GenerationLost:
            pass  # another generation follows, and catches up
        except Exception as error:
            if len(generation.feed_state.returned) == len(generation.feed_state.ranks):
                return  # the functions have returned: nobody was left to read the rows
            if not generation.state.stop_requested:
                logger.exception("restart %d of cluster %s failed", generation.number, self._cluster.id)
            generation.control.fail_launch(error if isinstance(error, TfosError) else None, str(error))

    def _launch(self, generation: Generation) -> None:
        deadline = time.monotonic() + self._cluster.config.reservation_timeout_s
        while True:
            try:
                generation.launcher.launch()
                return
            except NotEnoughSlots:
                if time.monotonic() > deadline or self._cluster.ended:
                    raise
            time.sleep(_SLOTS_POLL_S)
