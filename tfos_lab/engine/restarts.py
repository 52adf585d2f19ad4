"""Starts a cluster's nodes again when one of them was lost, and feeds the new ones what the old ones were fed.

Only nodes that were taken away are a reason: killed, out of sight, or with their executor. A function that failed would
fail again. What was learnt so far is the function's own to keep: `ctx.callbacks()` does it for Keras' ``fit``.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from tfos_lab.core.states import RunState
from tfos_lab.engine.feed.job import GenerationLost
from tfos_lab.errors import NotEnoughSlots, TfosError

if TYPE_CHECKING:
    from tfos_lab.engine.feed.feeding import Feeding
    from tfos_lab.engine.generation import Generation
    from tfos_lab.engine.lifecycle import Lifecycle

logger = logging.getLogger(__name__)

# A lost executor's place is filled by a new one only after a while.
_SLOTS_POLL_S = 1.0


class Restarter(threading.Thread):
    """Watches over one cluster (``tfos-restarts-<cluster>``); ends with it."""

    def __init__(self, cluster: Lifecycle, feeding: Feeding) -> None:
        super().__init__(name=f"tfos-restarts-{cluster.id}", daemon=True)
        self._cluster = cluster
        self._feeding = feeding

    def run(self) -> None:
        """Begin another generation whenever one ends with a lost node."""
        while True:
            lost = self._cluster.generation
            lost.server.over.wait()
            if lost.state is not RunState.RESTARTING:
                return
            lost.launcher.close()
            generation = self._cluster.next_generation()
            if generation is None:
                return
            self._begin(generation)

    def _begin(self, generation: Generation) -> None:
        try:
            generation.listen()
            self._launch(generation)
            self._cluster.wait_until_running()
            self._feeding.catch_up(generation)
        except GenerationLost:
            pass  # the next one will do it
        except Exception as error:
            if len(generation.feed_state.returned) == len(generation.feed_state.ranks):
                return  # they had nothing left to read
            if not generation.state.stop_requested:
                logger.exception("restart %d of cluster %s went wrong", generation.number, self._cluster.id)
            self._cluster.launch_failed(error if isinstance(error, TfosError) else None, str(error))

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
