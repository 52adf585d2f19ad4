"""Whose log text a page gets live: everybody's, or in a large cluster that of the nodes that have a row."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from tfos_lab.engine.state.events import Event, LogText
from tfos_lab.jupyter.display.base import WatchedCluster

# What a node has written before somebody saw its row.
_TAIL_LINES = 20


class FollowedLogs:
    """Picks the events of the nodes that are followed.

    Parameters
    ----------
    cluster : WatchedCluster
        The cluster; its logs are read where a node gets a row later.

    Attributes
    ----------
    is_chosen : bool
        Whether only some nodes are followed.
    """

    def __init__(self, cluster: WatchedCluster) -> None:
        self._cluster = cluster
        self.is_chosen = False
        self._nodes: frozenset[str] = frozenset()
        self._new: list[str] = []

    def choose(self, nodes: Iterable[str]) -> None:
        """Follow these nodes and no others from now on."""
        chosen = frozenset(nodes)
        self._new += sorted(chosen - self._nodes)
        self._nodes, self.is_chosen = chosen, True

    def among(self, events: Sequence[Event]) -> list[Event]:
        """Return the text of the followed nodes, which for new ones begins with the end of their files."""
        if not self.is_chosen:
            return list(events)
        new, self._new = self._new, []
        known = self._nodes.difference(new)
        old = [event for event in events if isinstance(event, LogText) and event.node in known]
        return [*self._tails(new), *old]

    def _tails(self, nodes: Iterable[str]) -> Iterator[Event]:
        for node in nodes:
            if text := self._cluster.logs(node, tail=_TAIL_LINES):
                yield LogText(time_s=time.time(), node=node, stream="stdout", text=f"{text}\n")
