"""Agrees on how many steps an epoch has, so that nodes in lock-step end it together.

Pure state beside the feed state. A plan needs two things: the rows of each node, known when a feed is complete, and the
batch size of each node that reads, known when all of them have opened the dataset.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from tfos_lab import messages as m
from tfos_lab.engine.state.driver_feed import DriverFeed
from tfos_lab.engine.state.instructions import Instruction, SendTo
from tfos_lab.engine.state.readers import Readers
from tfos_lab.node.feed.schedule import count_steps, grouped


class EpochPlanner:
    """The datasets that nodes have opened, and the plans for them.

    Parameters
    ----------
    readers : Readers
        The nodes that read.
    returned : set of int
        The nodes whose function has returned; the feed state adds to it.
    lock_step : bool
        Whether all nodes must take the same number of steps (not under parameter servers).
    """

    def __init__(self, readers: Readers, returned: AbstractSet[int], *, lock_step: bool) -> None:
        self._readers = readers
        self._returned = returned
        self._lock_step = lock_step
        self._opened: dict[int, dict[int, m.DatasetOpened]] = {}

    def add(self, message: m.DatasetOpened) -> None:
        """Record that a node has opened a dataset."""
        self._opened.setdefault(message.dataset_id, {})[message.rank] = message

    def plan(self, feed: DriverFeed, now_s: float) -> list[Instruction]:
        """Plan a complete feed, for each dataset that all nodes have opened."""
        instructions: list[Instruction] = []
        for dataset_id, opened in self._opened.items():
            if not self._lock_step:
                instructions += _plan_each(feed, opened)
            elif dataset_id not in feed.steps and self._is_open_everywhere(dataset_id):
                plan = _plan(feed, [message for rank, message in opened.items() if rank not in self._returned])
                feed.steps[dataset_id] = plan.steps
                instructions += [*(SendTo(rank, plan) for rank in feed.ranks), feed.progress(now_s)]
        return instructions

    def answer(self, feed: DriverFeed, dataset_id: int, rank: int, now_s: float) -> list[Instruction]:
        """Answer a node that has opened a dataset: its plan, or that its length is not known yet.

        Nodes in lock-step wait for one another, so they all get the same answer.
        """
        if feed.state == "complete":
            return self.plan(feed, now_s)
        if feed.state != "open":
            return []
        sizes = {message.batch_size for message in self._opened[dataset_id].values()}
        later = m.PlanLater(feed=feed.number, dataset_id=dataset_id, alike=len(sizes) == 1 or not self._lock_step)
        if not self._lock_step:
            return [SendTo(rank, later)]
        return [SendTo(each, later) for each in feed.ranks] if self._is_open_everywhere(dataset_id) else []

    def without(self, rank: int, feeds: list[DriverFeed], now_s: float) -> list[Instruction]:
        """Agree without a node that reads nothing more, on what the others were waiting for."""
        if not self._lock_step:
            return []
        return [i for feed in feeds for dataset_id in self._opened for i in self.answer(feed, dataset_id, rank, now_s)]

    def _is_open_everywhere(self, dataset_id: int) -> bool:
        reading = set(self._readers.ranks) - self._returned
        return bool(reading) and reading <= self._opened[dataset_id].keys()


def _plan_each(feed: DriverFeed, opened: dict[int, m.DatasetOpened]) -> list[Instruction]:
    """Plan for nodes that do not wait for one another: each reads its own rows to the end."""
    return [SendTo(rank, _plan(feed, [message])) for rank, message in opened.items() if rank in feed.ranks]


def _plan(feed: DriverFeed, opened: list[m.DatasetOpened]) -> m.EpochPlan:
    """Return the plan of nodes that read together: those that have opened the same dataset."""
    shares = [(feed.rows.get(message.rank, 0), message.batch_size) for message in opened]
    steps = count_steps(shares, drop=any((message.remainder or feed.remainder) == "drop" for message in opened))
    return m.EpochPlan(feed=feed.number, dataset_id=opened[0].dataset_id, steps=steps, shares=grouped(shares))
