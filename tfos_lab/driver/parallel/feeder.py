"""Feeds the nodes of one run their rows, on a thread of its own, so that what they report is passed on meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfos_lab.driver.cluster import Cluster
from tfos_lab.errors import ClusterEnded

# Gives rows to the nodes of a run, and returns when they have stored all.
Feed = Callable[[Cluster], object]


class Feeder(threading.Thread):
    """A feed that is under way.

    Parameters
    ----------
    feed : callable
        Feeds a cluster, and returns when its nodes have stored all rows.
    cluster : Cluster
        The cluster; it runs.
    """

    def __init__(self, feed: Feed, cluster: Cluster) -> None:
        super().__init__(name=f"tfos-feed-{cluster.id}", daemon=True)
        self._feed = feed
        self._cluster = cluster
        self._error: BaseException | None = None

    def run(self) -> None:
        """Feed."""
        try:
            self._feed(self._cluster)
        except ClusterEnded:
            pass  # the function wanted no more rows, or the run was stopped: its cluster knows which
        except BaseException as error:  # noqa: BLE001 - raised on the thread that waits
            self._error = error

    def has_ended(self, timeout_s: float) -> bool:
        """Return whether all rows have been fed, or no more are wanted, within this time; raise why they were not."""
        self.join(timeout_s)
        if self._error is not None:
            raise self._error
        return not self.is_alive()
