"""The rules of feeding: which rows count, and when a feed is complete.

A pure state machine beside the cluster state, called by the head's thread. Each partition is committed once, by the
first attempt that has stored all its rows. When Spark's job is over, what was committed must add up to what Spark
produced. `EpochPlanner` then agrees on the steps of an epoch.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.driver.state.even_steps import EvenSteps
from tfos_lab.driver.state.events import FeedProgressed, InferenceProgressed, Noted
from tfos_lab.driver.state.instructions import Fail, Failure, Instruction, Publish, SendTo
from tfos_lab.driver.state.readers import NOTHING_READ, Readers, queue_unread, returned_unread
from tfos_lab.node.feed.schedule import count_steps, grouped, leftover_places


@dataclass
class DriverFeed:
    """The rows of one feed; `FeedState` alone changes it."""

    number: int
    # The nodes that are fed, by rank.
    names: Mapping[int, str]
    epochs: int
    # Which call of `Cluster.train` it belongs to, and which ``ctx.data_feed`` reads it.
    source: int = 0
    stream: bool = False
    queue: str = m.INPUT_QUEUE
    # Of the nodes whose endpoints are open, by rank.
    locations: dict[int, list[str]] = field(default_factory=dict)
    # The attempt that counts, by partition.
    committed: dict[int, str] = field(default_factory=dict)
    # Rows committed on each node by tasks, which deal them out evenly: one number for thousands of nodes. Beside these,
    # the rows of single nodes, by rank: leftover rows, or their shares of files.
    each: int = 0
    own: Counter[int] = field(default_factory=Counter)
    size_bytes: int = 0
    # What Spark's job has produced; None until it is over. What Spark says it will produce is only shown.
    expected_rows: int | None = None
    expected_partitions: int | None = None
    foreseen_partitions: int | None = None
    tasks: tuple[int, int] | None = None
    # Steps of an epoch that the nodes have agreed on, by dataset.
    steps: dict[int, int] = field(default_factory=dict)
    # Nodes that have read this feed of a stream.
    read_by: set[int] = field(default_factory=set)
    state: Literal["open", "complete", "aborted"] = "open"
    # How long its rows may lie still, and when all had come.
    timeout_s: float = 0.0
    complete_s: float | None = None
    # Whether it ended early, as a node wants no more rows.
    is_cut: bool = False
    # Of a feed of files: the blocks of those that nodes have counted, by the number of the file; and what the nodes
    # that have looked at all theirs have found wrong, by rank: mostly nothing.
    blocks: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    problems: dict[int, str] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        """Whether these are the rows of a split: kept to be read whenever the function asks, or never."""
        return self.epochs == m.KEPT

    @property
    def is_to_be_read(self) -> bool:
        """Whether all of its rows are to be read: a stream has no end to read to, and a split may be left alone."""
        return not (self.stream or self.kept)

    def rows_of(self, rank: int) -> int:
        """Return the rows committed on a node; none if it is not fed."""
        return self.each + self.own.get(rank, 0) if rank in self.names else 0

    @property
    def rows(self) -> dict[int, int]:
        """Rows committed, by rank."""
        return {rank: self.rows_of(rank) for rank in self.names}

    @functools.cached_property
    def ranks(self) -> tuple[int, ...]:
        """The nodes that are fed."""
        return tuple(self.names)

    @property
    def late(self) -> list[str]:
        """The nodes whose endpoints are not open yet, by name."""
        return [name for rank, name in self.names.items() if rank not in self.locations]

    @property
    def total_partitions(self) -> int | None:
        """How many partitions there will be, as far as Spark has said."""
        return self.foreseen_partitions if self.expected_partitions is None else self.expected_partitions

    @property
    def total_rows(self) -> int:
        """Rows committed on all nodes."""
        return self.each * len(self.names) + self.own.total()

    def progress(self, now_s: float) -> list[Instruction]:
        """Return the event that shows how far it is."""
        return [
            Publish(
                FeedProgressed(
                    time_s=now_s,
                    feed=self.number,
                    rows={name: self.rows_of(rank) for rank, name in self.names.items()},
                    partitions=len(self.committed),
                    size_bytes=self.size_bytes,
                    complete=self.state == "complete",
                    steps=self.steps.get(0),
                    epochs=1 if self.kept else self.epochs,
                    total_partitions=self.total_partitions,
                    tasks=self.tasks,
                    source=self.source,
                    stream=self.stream,
                    split=self.queue if self.kept else "",
                )
            )
        ]


@dataclass(frozen=True)
class Untouched:
    """Rows of a node that has read none at all: since when all have come, and how long they may lie still.

    ``fails`` says whether the run fails then.
    """

    rows: int
    since_s: float
    timeout_s: float
    fails: bool


@dataclass(eq=False)
class Patience:
    """How long somebody waits for nodes or rows: it lasts for as long as its owner holds it.

    It `is_over` after ``limit_s`` in which the driver was running and, if it is of ``rows``, no row moved.
    """

    limit_s: float
    rows: bool
    is_over: bool = False
    moves: int = -1
    until_s: float = 0.0


class FeedState:
    """All feeds of one cluster, one open at a time.

    ``names`` are the nodes that train, by rank: those that are fed, unless they only serve others. In ``lock_step``, as
    without parameter servers, they all take the same number of steps. Nodes that were started again ``resume``: their
    functions may continue after epochs that earlier nodes have read.

    `moves` grows whenever rows arrive at a node, are committed, or are taken, and when a task of Spark's ends.
    `stopped_by` is the node that wants no more rows, and `answering` has the locations of those that answer inferences,
    by rank. When it has `ended`, no further feed will come. If the `caller_waits`, the one who feeds waits until the
    rows are taken, and fails the run where they are not. If rows are `expected`, functions that return before they come
    have missed them.

    `missed` is the sentence for functions that have returned without any of the rows that were there for them; or None.
    """

    def __init__(self, names: dict[int, str], *, lock_step: bool, resumes: bool = False) -> None:
        self._names = names
        self._resumes = resumes
        self._lock_step = lock_step
        self._readers = Readers(names, all_read=lock_step)
        self._planner = EpochPlanner(self._readers, lock_step=lock_step)
        self._even_steps = EvenSteps(names if lock_step else {})
        self._feeds: list[DriverFeed] = []
        # Rows that each node has answered, by inference and rank; and finished partitions.
        self._answered: Counter[tuple[int, int]] = Counter()
        self._partitions_answered: Counter[int] = Counter()
        self._served: set[tuple[str, bool]] = set()
        self.ended = False
        self.caller_waits = self.expected = False
        self._amounts: dict[tuple[type[m.FromAgent], int], int] = {}
        self.moves = 0
        self._unread_published = False
        self.missed: str | None = None
        self.stopped_by: str | None = None
        self.answering: dict[int, list[str]] = {}
        self._waiting: weakref.WeakSet[Patience] = weakref.WeakSet()

    @property
    def ranks(self) -> list[int]:
        """The nodes that are fed."""
        return self._readers.ranks

    @property
    def names(self) -> list[str]:
        """The names of the nodes that are fed."""
        return [self._names[rank] for rank in self.ranks]

    @property
    def undecided(self) -> list[str]:
        """The nodes of which it is not known yet whether they read; until it is, no feed is opened."""
        return self._readers.undecided

    @property
    def not_answering(self) -> list[str]:
        """The nodes that read, and do not answer inferences."""
        return [self._names[rank] for rank in self.ranks if rank not in self.answering]

    @property
    def wants_objects(self) -> bool | None:
        """Whether nodes want rows as Python objects, by what was asked for last; None until a node asks for rows."""
        return bool(self._readers.objects) if self._readers.has_asked else None

    @property
    def _may_be_unread(self) -> bool:
        """Whether rows that nobody reads are no mistake: none are wanted, or they are answered, or read already."""
        return self.stopped_by is not None or bool(self.answering) or self._resumes

    @property
    def is_ignored(self) -> bool:
        """Whether a function has returned and no node has taken rows, nor asked for any if it still may."""
        readers = self._readers
        has_reader = readers.has_asked if readers.any_reading else readers.has_read
        return bool(readers.returned) and not has_reader and not self._may_be_unread

    @property
    def nothing_read(self) -> str:
        """A sentence if there are rows for the nodes, and no node has taken any, nor said that it wants none.

        Also if so for the rows of one queue; else nothing.
        """
        if self._may_be_unread:
            return ""
        fed = [feed for feed in self._feeds if feed.is_to_be_read and (feed.total_rows or feed.is_cut)]
        if fed and not self._readers.has_read:
            return NOTHING_READ if {feed.queue for feed in fed} == {m.INPUT_QUEUE} else queue_unread(fed[0].queue)
        read = {feed.queue for feed in self._feeds if feed.stream or self._readers.has_read_of(feed.number)}
        whole = [feed for feed in fed if feed.state != "open" and not feed.is_cut]
        return next((queue_unread(feed.queue) for feed in whole if feed.queue not in read), "")

    @property
    def with_rows(self) -> list[str]:
        """The nodes that hold rows which they have not taken, and may yet take: their function has not returned."""
        if self.stopped_by is not None:
            return []
        held = {}
        for feed in self._feeds:
            held.update(self._readers.left(feed.number, feed.epochs, feed.rows) if feed.is_to_be_read else {})
        return [self._names[rank] for rank in held if rank not in self._readers.returned]

    @property
    def untouched(self) -> dict[int, Untouched]:
        """The nodes that have taken no row at all though all rows of a feed have come, by rank."""
        if self.stopped_by is not None or self._resumes:
            return {}
        found: dict[int, Untouched] = {}
        for rank in self._readers.never_read:
            for feed in self._feeds:
                if feed.complete_s is None or not feed.timeout_s or not feed.is_to_be_read or feed.is_cut:
                    continue
                if rows := feed.rows_of(rank):
                    found.setdefault(rank, Untouched(rows, feed.complete_s, feed.timeout_s, not self.caller_waits))
        return found

    @property
    def returned(self) -> list[str]:
        """The nodes whose function has returned, so that nobody reads their rows any more."""
        returned = self._readers.returned
        return [name for rank, name in self._names.items() if rank in returned] if returned else []

    @property
    def current(self) -> DriverFeed | None:
        """The newest feed, or None."""
        return self._feeds[-1] if self._feeds else None

    def feed(self, number: int) -> DriverFeed | None:
        """Return a feed by its number; None if there is none."""
        return self._feeds[number] if 0 <= number < len(self._feeds) else None

    def has_asked_to_answer(self, rank: int) -> bool:
        """Whether a node was ever asked to open its endpoints for inferences."""
        return bool(self._served) and rank in self._names

    # ---- requests ---------------------------------------------------------------------------------------------------

    def open(self, message: m.FeedOpen, source: int = 0, timeout_s: float = 0.0) -> list[Instruction]:
        """Open a feed on every node that reads, and give it its number; its rows may lie still for ``timeout_s``."""
        message = msgspec.structs.replace(message, feed=len(self._feeds))
        names = {rank: self._names[rank] for rank in self.ranks}
        feed = DriverFeed(message.feed, names, message.epochs, source, message.stream, message.queue)
        feed.timeout_s = timeout_s
        self._feeds.append(feed)
        return [SendTo(feed.ranks, message)]

    def foresee(
        self, number: int, partitions: int | None, now_s: float, tasks: tuple[int, int] | None = None
    ) -> list[Instruction]:
        """Record how many partitions Spark's job will produce, and its tasks that have ended, and all; to be shown."""
        feed = self._feeds[number]
        self.moves += (feed.tasks or (0, 0))[0] != (tasks or (0, 0))[0]
        feed.foreseen_partitions, feed.tasks = partitions, tasks
        return feed.progress(now_s) if feed.state == "open" else []

    def job_done(self, number: int, rows: int, partitions: int, now_s: float) -> list[Instruction]:
        """Record that Spark's job is over, and how many rows and partitions it has produced."""
        feed = self._feeds[number]
        feed.expected_rows, feed.expected_partitions = rows, partitions
        return self._when_complete(feed, now_s)

    def deal(self, shares: Mapping[int, m.FilesDealt], size_bytes: int, now_s: float) -> list[Instruction]:
        """Give each node its share of a feed of files, by which the feed is complete: all rows are where they are."""
        feed = self._feeds[next(iter(shares.values())).feed]
        if feed.state != "open":
            return []
        feed.own = Counter({rank: share.rows for rank, share in shares.items()})
        feed.expected_rows = feed.total_rows
        feed.state, feed.size_bytes, feed.complete_s = "complete", size_bytes, now_s
        instructions: list[Instruction] = [SendTo(rank, share) for rank, share in shares.items()]
        return [*instructions, *feed.progress(now_s), *self._planner.plan(feed, now_s)]

    def cut(self, number: int, now_s: float) -> list[Instruction]:
        """End a feed early, as a node wants no more rows: what has been committed by now is the whole feed."""
        feed = self._feeds[number]
        if feed.state != "open":
            return []
        feed.is_cut = True
        return self.job_done(number, feed.total_rows, len(feed.committed), now_s)

    def abort(self, number: int, reason: str) -> list[Instruction]:
        """Drop what is not committed: the feed failed, or nobody wants its rows any more."""
        feed = self._feeds[number]
        if feed.state != "open":
            return []
        feed.state = "aborted"
        return [SendTo(feed.ranks, m.FeedAborted(feed=number, reason=reason))]

    def open_inference(self, message: m.InferenceOpen) -> list[Instruction]:
        """Have the nodes open their endpoints for inferences of this kind; `answering` then has their locations."""
        kind = message.queue, message.objects
        ranks = tuple(rank for rank in self.ranks if rank not in self.answering or kind not in self._served)
        self._served.add(kind)
        return [SendTo(ranks, message)]

    def end(self) -> list[Instruction]:
        """Tell the nodes, once, that no further feed will come; those that have not started hear it when they do."""
        if self.ended:
            return []
        self.ended = True
        return [SendTo(tuple(self._names), m.FeedsEnded())]

    # ---- time -------------------------------------------------------------------------------------------------------

    def patience(self, limit_s: float, *, rows: bool = False) -> Patience:
        """Return when somebody is to wait no longer, from now on."""
        patience = Patience(limit_s, rows)
        self._waiting.add(patience)
        return patience

    def tick(self, attended_s: float) -> None:
        """Time passes, in which the driver was running; called often."""
        for one in self._waiting:
            moves = self.moves if one.rows else 0
            if moves != one.moves:
                one.moves, one.until_s = moves, attended_s + one.limit_s
            one.is_over = attended_s > one.until_s

    # ---- messages ---------------------------------------------------------------------------------------------------

    def handle(  # noqa: C901 - one case for each kind
        self, message: m.FromAgent, now_s: float
    ) -> list[Instruction]:
        """Handle one agent's message; return what must now be done."""
        self._readers.handle(message)
        match message:
            case m.FeedReady(rank=rank, feed=number, locations=locations):
                self._feeds[number].locations[rank] = locations
            case m.FeedRead(rank=rank, feed=number):
                self._feeds[number].read_by.add(rank)
            case m.InferenceReady(rank=rank, locations=locations):
                self.answering[rank] = locations
            case m.AttemptStored():
                return self._store(message, now_s)
            case m.FilesFound():
                return self._find(message, now_s)
            case m.RowsAnswered(rank=rank) if rank in self._names:
                return self._count_answer(message, now_s)
            case m.Heartbeat(rank=rank, spooled_bytes=amount) | m.RowsTaken(rank=rank, rows=amount):
                kind = type(message), rank
                self.moves += amount != self._amounts.get(kind, 0)
                self._amounts[kind] = amount
            case m.DatasetOpened():
                self._planner.add(message)
                dataset_id, rank = message.dataset_id, message.rank
                return [i for feed in self._feeds for i in self._planner.answer(feed, dataset_id, rank, now_s)]
            case m.StepsAhead():
                return self._even_steps.handle(message)
            case m.FeedStopped(rank=rank):
                self.stopped_by = self._names.get(rank, str(rank))
            case m.Ended(outcome=m.Outcome(kind="returned")) | m.Progressed(state="serving"):
                return self._leave(message, now_s) if message.rank in self._names else []
        return []

    def _count_answer(self, message: m.RowsAnswered, now_s: float) -> list[Instruction]:
        inference = message.inference
        self._answered[inference, message.rank] += message.rows
        self._partitions_answered[inference] += message.last
        event = InferenceProgressed(
            time_s=now_s,
            inference=inference,
            rows={name: self._answered[inference, rank] for rank, name in self._names.items()},
            partitions=self._partitions_answered[inference],
        )
        return [Publish(event)]

    def _find(self, message: m.FilesFound, now_s: float) -> list[Instruction]:
        self.moves += 1
        feed = self._feeds[message.feed]
        feed.blocks.update(message.blocks)
        feed.committed.update(dict.fromkeys(message.blocks, "file"))
        if message.done:
            where = f"{self._names[message.rank]} on {message.host}"
            feed.problems[message.rank] = message.problem and f"{where}: {message.problem}"
        return feed.progress(now_s) if feed.state == "open" else []

    def _leave(self, message: m.Ended | m.Progressed, now_s: float) -> list[Instruction]:
        """Go on without a node that reads nothing more; after the last one, publish which rows they have left."""
        instructions: list[Instruction] = []
        if self._lock_step and isinstance(message, m.Ended):
            # The others take their further steps without it.
            outcome, returned = message.outcome, self._readers.returned
            peer = m.PeerReturned(self._names[message.rank], outcome.steps, outcome.dataset_ended)
            others = tuple(rank for rank in self._names if rank not in returned)
            instructions += [SendTo(others, peer), *self._even_steps.leave(message.rank)]
        instructions += self._planner.without(message.rank, self._feeds, now_s)
        if self._readers.any_reading or self._unread_published:
            return instructions
        self._unread_published = True
        states = [feed.state for feed in self._feeds if feed.is_to_be_read]
        to_come = "open" in states or (self.expected and "complete" not in states)
        if self._readers.returned and (reason := self.nothing_read):
            self.missed = reason
        elif to_come and self.is_ignored:
            self.missed = returned_unread(self.returned)
        if self.missed is not None:
            return [*instructions, Fail(Failure("feed", "FeedError", self.missed))]
        if early := self._readers.stopped_early:
            return [*instructions, Publish(Noted(time_s=now_s, text=early))]
        if self.stopped_by is not None or self._resumes:
            return instructions
        # The feed job reports a feed that was cut short.
        whole = [feed for feed in self._feeds if feed.state == "complete" and feed.is_to_be_read and not feed.is_cut]
        texts = [self._readers.unread(feed.number, feed.epochs, feed.rows) for feed in whole]
        return [*instructions, *(Publish(Noted(time_s=now_s, text=text)) for text in texts if text)]

    def _store(self, message: m.AttemptStored, now_s: float) -> list[Instruction]:
        feed = self._feeds[message.feed]
        if feed.state != "open" or message.partition in feed.committed:
            return []
        feed.committed[message.partition] = message.attempt
        self.moves += 1
        feed.size_bytes += message.size_bytes
        feed.each += message.rows
        dealt, ranks = feed.own.total(), feed.ranks
        feed.own.update(ranks[place] for place in leftover_places(message.leftover, dealt=dealt, nodes=len(ranks)))
        commit = m.Commit(
            feed=message.feed,
            partition=message.partition,
            attempt=message.attempt,
            rows=message.rows,
            leftover=message.leftover,
            dealt=dealt,
            shapes=message.shapes,
        )
        return [SendTo(feed.ranks, commit), *feed.progress(now_s), *self._when_complete(feed, now_s)]

    def _when_complete(self, feed: DriverFeed, now_s: float) -> list[Instruction]:
        is_over = feed.expected_partitions is not None and len(feed.committed) >= feed.expected_partitions
        if feed.state != "open" or not is_over:
            return []
        feed.state, feed.complete_s = "complete", now_s
        complete = SendTo(feed.ranks, m.FeedComplete(feed.number))
        return [complete, *feed.progress(now_s), *self._planner.plan(feed, now_s)]


# ---- the steps of an epoch -------------------------------------------------------------------------------------------


class EpochPlanner:
    """The datasets that nodes have opened, and the plans for them, which are the same for all in ``lock_step``."""

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
        return [SendTo(feed.ranks, plan), *feed.progress(now_s)]

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
        return [SendTo(feed.ranks, later)]

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
    steps = count_steps(shares, drop=any(message.remainder == "drop" for message in opened))
    return m.EpochPlan(feed=feed.number, dataset_id=opened[0].dataset_id, steps=steps, shares=grouped(shares))
