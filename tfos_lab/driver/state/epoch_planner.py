"""Agrees on how many steps an epoch has, so that nodes in lock-step end it together.

Pure state beside the feed state. A plan needs two things: the rows of each node, known when a feed is complete, and the
batch size of each node that reads, known when all of them have opened the dataset.
"""

from __future__ import annotations

from tfos_lab.core import messages as m
from tfos_lab.driver.state.driver_feed import DriverFeed
from tfos_lab.driver.state.instructions import Instruction, SendTo, SendToAll
from tfos_lab.driver.state.readers import Readers
from tfos_lab.node.feed.schedule import count_steps, grouped


class EpochPlanner:
    """The datasets that nodes have opened, and the plans for them.

    Parameters
    ----------
    readers : Readers
        The nodes that read.
    lock_step : bool
        Whether all nodes must take the same number of steps (not under parameter servers).
    """

    def __init__(self, readers: Readers, *, lock_step: bool) -> None:
        self._readers = readers
        self._lock_step = lock_step
        self._opened: dict[int, dict[int, m.DatasetOpened]] = {}
        self._put_off: set[tuple[int, int]] = set()

    def add(self, message: m.DatasetOpened) -> None:
        """Record that a node has opened a dataset."""
        self._opened.setdefault(message.dataset_id, {})[message.rank] = message

    def plan(self, feed: DriverFeed, now_s: float) -> list[Instruction]:
        """Plan a complete feed, for each dataset that all nodes have opened."""
        if self._lock_step:
            return [i for dataset_id in self._opened for i in self._plan_together(feed, dataset_id, now_s)]
        opened = [one for by_rank in self._opened.values() for one in by_rank.values() if one.queue == feed.queue]
        return [i for message in opened for i in _plan_alone(feed, message)]

    def _plan_together(self, feed: DriverFeed, dataset_id: int, now_s: float) -> list[Instruction]:
        if dataset_id in feed.steps or not self._reads(dataset_id, feed) or not self._is_open_everywhere(dataset_id):
            return []
        opened, returned = self._opened[dataset_id], self._readers.returned
        plan = _plan(feed, [message for rank, message in opened.items() if rank not in returned])
        feed.steps[dataset_id] = plan.steps
        return [SendToAll(feed.ranks, plan), *feed.progress(now_s)]

    def answer(self, feed: DriverFeed, dataset_id: int, rank: int, now_s: float) -> list[Instruction]:
        """Answer a node that has opened a dataset: its plan, or that its length is not known yet.

        Nodes in lock-step wait for one another, so they all get the same answer.
        """
        if feed.state == "aborted" or not self._reads(dataset_id, feed):
            return []
        if not self._lock_step:
            if feed.state == "complete":
                return _plan_alone(feed, self._opened[dataset_id][rank])
            return [SendTo(rank, m.PlanLater(feed=feed.number, dataset_id=dataset_id))]
        if feed.state == "complete":
            return self._plan_together(feed, dataset_id, now_s)
        if (feed.number, dataset_id) in self._put_off or not self._is_open_everywhere(dataset_id):
            return []
        self._put_off.add((feed.number, dataset_id))
        sizes = {message.batch_size for message in self._opened[dataset_id].values()}
        later = m.PlanLater(feed=feed.number, dataset_id=dataset_id, alike=len(sizes) == 1)
        return [SendToAll(feed.ranks, later)]

    def without(self, rank: int, feeds: list[DriverFeed], now_s: float) -> list[Instruction]:
        """Agree without a node that reads nothing more, on what the others were waiting for."""
        if not self._lock_step:
            return []
        return [i for feed in feeds for dataset_id in self._opened for i in self.answer(feed, dataset_id, rank, now_s)]

    def _reads(self, dataset_id: int, feed: DriverFeed) -> bool:
        """Whether a dataset is of the rows of a feed's queue; nodes open the same datasets in the same order."""
        return all(message.queue == feed.queue for message in self._opened[dataset_id].values())

    def _is_open_everywhere(self, dataset_id: int) -> bool:
        opened = self._opened[dataset_id]
        reading = [rank for rank in self._readers.candidates if self._readers.is_reading(rank)]
        return bool(reading) and all(rank in opened for rank in reading)


def _plan_alone(feed: DriverFeed, opened: m.DatasetOpened) -> list[Instruction]:
    """Plan for a node that does not wait for others: it reads its own rows to the end."""
    return [SendTo(opened.rank, _plan(feed, [opened]))] if opened.rank in feed.names else []


def _plan(feed: DriverFeed, opened: list[m.DatasetOpened]) -> m.EpochPlan:
    """Return the plan of nodes that read together: those that have opened the same dataset."""
    shares = [(feed.rows_of(message.rank), message.batch_size) for message in opened]
    steps = count_steps(shares, drop=any((message.remainder or feed.remainder) == "drop" for message in opened))
    return m.EpochPlan(feed=feed.number, dataset_id=opened[0].dataset_id, steps=steps, shares=grouped(shares))
