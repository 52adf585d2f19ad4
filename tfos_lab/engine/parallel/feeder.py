"""Feeds the node of one run its rows, on a thread of its own, so that what the node reports is passed on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfos_lab.engine.runtime import ClusterRuntime
from tfos_lab.errors import ClusterEnded


class Feeder(threading.Thread):
    """A feed that is under way.

    Parameters
    ----------
    feed : callable
        Feeds a cluster, and returns when its nodes have stored all rows.
    runtime : ClusterRuntime
        The cluster; it runs.
    """

    def __init__(self, feed: Callable[[ClusterRuntime], None], runtime: ClusterRuntime) -> None:
        super().__init__(name=f"tfos-feed-{runtime.id}", daemon=True)
        self._feed = feed
        self._runtime = runtime
        self._error: BaseException | None = None

    def run(self) -> None:
        """Feed."""
        try:
            self._feed(self._runtime)
        except ClusterEnded:
            pass  # the function wanted no more rows, or the run was stopped: its runtime knows which
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            self._error = error

    def has_ended(self, timeout_s: float) -> bool:
        """Return whether all rows have been fed, or no more are wanted, within this time; raise why they were not."""
        self.join(timeout_s)
        if self._error is not None:
            raise self._error
        return not self.is_alive()
