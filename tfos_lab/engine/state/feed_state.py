"""The rules of feeding: which rows count, when a feed is complete, and how many steps all nodes take.

A pure state machine beside the cluster state, called by the server's thread. Each partition is committed once, by the
first attempt that has stored all its rows; when Spark's job is over, what was committed must add up to what Spark
produced. Once the rows of each node and their batch sizes are known, one number of steps is agreed on for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from tfos_lab import messages as m
from tfos_lab.engine.state.events import FeedProgressed, InferenceProgressed
from tfos_lab.engine.state.instructions import Instruction, Publish, SendTo
from tfos_lab.engine.state.readers import Readers
from tfos_lab.node.feed.schedule import count_steps, grouped, share_of


@dataclass
class DriverFeed:
    """One feed's books."""

    number: int
    ranks: list[int]
    remainder: str
    epochs: int
    source: int = 0
    stream: bool = False
    locations: dict[int, list[str]] = field(default_factory=dict)
    committed: dict[int, str] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    leftover: int = 0
    size_bytes: int = 0
    expected_rows: int | None = None
    expected_partitions: int | None = None
    foreseen_partitions: int | None = None
    steps: dict[int, int] = field(default_factory=dict)
    read_by: set[int] = field(default_factory=set)
    state: str = "open"
    is_cut: bool = False

    @property
    def total_partitions(self) -> int | None:
        """How many partitions there will be, as far as Spark has said."""
        return self.foreseen_partitions if self.expected_partitions is None else self.expected_partitions

    @property
    def total_rows(self) -> int:
        """Rows committed on all nodes, those included that are not dealt out yet."""
        return sum(self.rows.values()) + self.leftover


@dataclass
class Answered:
    """How much of one inference the nodes have answered."""

    rows: dict[str, int] = field(default_factory=dict)
    partitions: int = 0


class FeedState:
    """All feeds of one cluster, one open at a time.

    Parameters
    ----------
    names : dict of int to str
        The nodes that train, by rank: those that are fed, unless they say that they only serve others.
    lock_step : bool
        Whether they must all take the same number of steps (not under parameter servers).
    resumes : bool
        Whether these nodes have been started again: their functions may go on after epochs that others have read.
    """

    def __init__(self, names: dict[int, str], *, lock_step: bool, resumes: bool = False) -> None:
        self._names = names
        self._lock_step = lock_step
        self._resumes = resumes
        self._readers = Readers(names, all_read=lock_step)
        self._opened: dict[int, dict[int, m.DatasetOpened]] = {}
        self._feeds: list[DriverFeed] = []
        self._answered: dict[int, Answered] = {}
        self._ended = False
        self._amounts: dict[tuple[type[m.FromAgent], int], int] = {}
        self.moves = 0
        self._returned: set[int] = set()
        self._unread_published = False
        self.stopped_by: str | None = None
        self.answering: dict[int, list[str]] = {}

    @property
    def ranks(self) -> list[int]:
        """The nodes that are fed."""
        return self._readers.ranks

    @property
    def undecided(self) -> list[str]:
        """The nodes that may yet turn out to read, or not to: no feed is opened before that is known."""
        return self._readers.undecided(self._returned)

    @property
    def nothing_read(self) -> bool:
        """Whether nodes hold rows, or are sent some, and no node has taken any, nor said that it wants none."""
        if self._readers.has_read or self.stopped_by is not None or self.answering or self._resumes:
            return False
        return any(feed.total_rows or feed.is_cut for feed in self._feeds if not feed.stream)

    @property
    def returned(self) -> list[str]:
        """The nodes whose function has returned: nobody reads their rows any more."""
        return [name for rank, name in self._names.items() if rank in self._returned]

    @property
    def current(self) -> DriverFeed | None:
        """The newest feed, or None."""
        return self._feeds[-1] if self._feeds else None

    # ---- requests ---------------------------------------------------------------------------------------------------

    def open(self, dataset_id: m.FeedOpen, source: int = 0) -> list[Instruction]:
        """Begin a feed: every training node opens an endpoint. The feed state gives the feed its number."""
        number = len(self._feeds)
        feed = DriverFeed(number, self.ranks, dataset_id.remainder, dataset_id.epochs, source, dataset_id.stream)
        self._feeds.append(feed)
        message = msgspec.structs.replace(dataset_id, feed=number)
        return [SendTo(rank, message) for rank in feed.ranks]

    def foresee(self, number: int, partitions: int | None, now_s: float) -> list[Instruction]:
        """Spark's job has begun; it will produce so many partitions, if Spark says so. Only to be shown."""
        feed = self._feeds[number]
        feed.foreseen_partitions = partitions
        return [self._progress(feed, now_s)] if feed.state == "open" else []

    def job_done(self, number: int, rows: int, partitions: int, now_s: float) -> list[Instruction]:
        """Spark's job is over: it produced this many rows and partitions."""
        feed = self._feeds[number]
        feed.expected_rows, feed.expected_partitions = rows, partitions
        return self._when_complete(feed, now_s)

    def cut(self, number: int, now_s: float) -> list[Instruction]:
        """A node wants no more rows: what has been committed by now is the whole feed."""
        feed = self._feeds[number]
        if feed.state != "open":
            return []
        feed.is_cut = True
        return self.job_done(number, feed.total_rows, len(feed.committed), now_s)

    def abort(self, number: int, reason: str) -> list[Instruction]:
        """The feed failed, or nobody wants its rows any more."""
        feed = self._feeds[number]
        if feed.state != "open":
            return []
        feed.state = "aborted"
        return [SendTo(rank, m.FeedAborted(feed=number, reason=reason)) for rank in feed.ranks]

    def open_inference(self, schema: str, token: str, tls: m.TlsIdentity | None) -> list[Instruction]:
        """Rows will come that are to be answered; ``answering`` then tells where each node takes them."""
        dataset_id = m.InferenceOpen(schema=schema, token=token, tls=tls)
        return [SendTo(rank, dataset_id) for rank in self.ranks if rank not in self.answering]

    def end(self) -> list[Instruction]:
        """No further feed will come."""
        if self._ended:
            return []
        self._ended = True
        return [SendTo(rank, m.FeedsEnded()) for rank in self._names]

    # ---- messages ---------------------------------------------------------------------------------------------------

    def handle(self, message: m.FromAgent, now_s: float) -> list[Instruction]:
        """Take one agent's message in; return what must now be done."""
        self._readers.handle(message)
        match message:
            case m.FeedReady(rank=rank, feed=number, locations=locations):
                self._feeds[number].locations[rank] = locations
            case m.FeedRead(rank=rank, feed=number):
                self._feeds[number].read_by.add(rank)
            case m.InferenceReady(rank=rank, locations=locations):
                self.answering[rank] = locations
            case m.RowsAnswered(rank=rank) if rank in self._names:
                return [self._record_answers(message, now_s)]
            case m.Heartbeat(rank=rank, spooled_bytes=amount) | m.RowsTaken(rank=rank, rows=amount):
                self._record_move((type(message), rank), amount)
            case m.AttemptStored():
                return self._store(message, now_s)
            case m.DatasetOpened():
                self._opened.setdefault(message.dataset_id, {})[message.rank] = message
                return [i for feed in self._feeds for i in self._answer(feed, message.dataset_id, message.rank, now_s)]
            case m.FeedStopped(rank=rank):
                self.stopped_by = self._names.get(rank, str(rank))
            case m.Ended(outcome=m.Outcome(kind="returned")) | m.Progressed(state="serving"):
                return self._leave(message, now_s) if message.rank in self._names else []
        return []

    def _record_move(self, what: tuple[type[m.FromAgent], int], amount: int) -> None:
        """Count in ``moves`` that rows have come to a node, or that it has taken some."""
        self.moves += amount != self._amounts.get(what, 0)
        self._amounts[what] = amount

    def _leave(self, message: m.Ended | m.Progressed, now_s: float) -> list[Instruction]:
        """A node reads nothing more: the others agree without it on what they were waiting to agree on."""
        rank = message.rank
        if isinstance(message, m.Ended):
            self._returned.add(rank)
        instructions: list[Instruction] = []
        if self._lock_step:
            for feed in self._feeds:
                for dataset_id in self._opened:
                    instructions += self._answer(feed, dataset_id, rank, now_s)
        return [*instructions, *self._publish_unread(now_s)]

    def _publish_unread(self, now_s: float) -> list[Instruction]:
        """Once the functions of all nodes that read have returned, say what they have left."""
        if not self._returned.issuperset(self.ranks) or self._unread_published:
            return []
        self._unread_published = True
        if self.stopped_by is not None or self._resumes:
            return []
        # Of a feed that was cut short it is said elsewhere; a stream has no end to read to.
        whole = [feed for feed in self._feeds if feed.state == "complete" and not (feed.is_cut or feed.stream)]
        events = [self._readers.unread(feed.number, feed.epochs, feed.rows, now_s) for feed in whole]
        return [Publish(event) for event in events if event is not None]

    def _record_answers(self, message: m.RowsAnswered, now_s: float) -> Publish:
        answered = self._answered.setdefault(message.inference, Answered())
        node = self._names[message.rank]
        answered.rows[node] = answered.rows.get(node, 0) + message.rows
        answered.partitions += message.last
        rows = {name: answered.rows.get(name, 0) for name in self._names.values()}
        return Publish(
            InferenceProgressed(time_s=now_s, inference=message.inference, rows=rows, partitions=answered.partitions)
        )

    def _store(self, message: m.AttemptStored, now_s: float) -> list[Instruction]:
        feed = self._feeds[message.feed]
        if feed.state != "open" or message.partition in feed.committed:
            return []
        feed.committed[message.partition] = message.attempt
        self.moves += 1
        feed.size_bytes += message.size_bytes
        feed.leftover += message.leftover
        instructions: list[Instruction] = []
        for rank in feed.ranks:
            rows = message.rows.get(rank, 0)
            feed.rows[rank] = feed.rows.get(rank, 0) + rows
            instructions.append(
                SendTo(
                    rank,
                    m.Commit(
                        feed=feed.number,
                        partition=message.partition,
                        attempt=message.attempt,
                        rows=rows,
                        leftover=message.leftover,
                        shapes=message.shapes,
                    ),
                )
            )
        return [*instructions, self._progress(feed, now_s), *self._when_complete(feed, now_s)]

    def _when_complete(self, feed: DriverFeed, now_s: float) -> list[Instruction]:
        if feed.state != "open" or feed.expected_partitions is None:
            return []
        if len(feed.committed) < feed.expected_partitions:
            return []
        feed.state = "complete"
        instructions = self._deal_leftover(feed)
        return [*instructions, self._progress(feed, now_s), *self._plan(feed, now_s)]

    def _deal_leftover(self, feed: DriverFeed) -> list[Instruction]:
        """Give each node its part of the rows that lie on all of them, and tell it how many it has in all."""
        instructions: list[Instruction] = []
        for index, rank in enumerate(feed.ranks):
            leftovers = share_of(feed.leftover, len(feed.ranks), index)
            rows = feed.rows[rank] = feed.rows.get(rank, 0) + leftovers[1] - leftovers[0]
            instructions.append(SendTo(rank, m.FeedComplete(feed=feed.number, rows=rows, leftovers=leftovers)))
        feed.leftover = 0
        return instructions

    # ---- equal ends -------------------------------------------------------------------------------------------------

    def _plan(self, feed: DriverFeed, now_s: float) -> list[Instruction]:
        """Agree on the steps of an epoch, for each dataset whose batch sizes all nodes have told."""
        instructions: list[Instruction] = []
        for dataset_id, opened in self._opened.items():
            if not self._lock_step:
                instructions += self._plan_alone(feed, opened)
            elif dataset_id not in feed.steps and self._is_open_everywhere(dataset_id):
                plan = _plan_of(feed, [told for rank, told in opened.items() if rank not in self._returned])
                feed.steps[dataset_id] = plan.steps
                instructions += [*(SendTo(rank, plan) for rank in feed.ranks), self._progress(feed, now_s)]
        return instructions

    def _is_open_everywhere(self, dataset_id: int) -> bool:
        """Whether all nodes that still read have opened this dataset."""
        reading = set(self.ranks) - self._returned
        return bool(reading) and reading <= self._opened[dataset_id].keys()

    def _answer(self, feed: DriverFeed, dataset_id: int, rank: int, now_s: float) -> list[Instruction]:
        """Tell whether the length of a dataset is known: the same to all nodes that wait for one another."""
        if feed.state == "complete":
            return self._plan(feed, now_s)
        if feed.state != "open":
            return []
        sizes = {told.batch_size for told in self._opened[dataset_id].values()}
        later = m.PlanLater(feed=feed.number, dataset_id=dataset_id, alike=len(sizes) == 1 or not self._lock_step)
        if not self._lock_step:
            return [SendTo(rank, later)]
        return [SendTo(each, later) for each in feed.ranks] if self._is_open_everywhere(dataset_id) else []

    def _plan_alone(self, feed: DriverFeed, opened: dict[int, m.DatasetOpened]) -> list[Instruction]:
        """Nodes that do not wait for one another each read their own rows to the end."""
        return [SendTo(rank, _plan_of(feed, [message])) for rank, message in opened.items() if rank in feed.ranks]

    def _progress(self, feed: DriverFeed, now_s: float) -> Publish:
        return Publish(
            FeedProgressed(
                time_s=now_s,
                feed=feed.number,
                rows={self._names[rank]: feed.rows.get(rank, 0) for rank in feed.ranks},
                partitions=len(feed.committed),
                size_bytes=feed.size_bytes,
                complete=feed.state == "complete",
                steps=feed.steps.get(0),
                epochs=feed.epochs,
                total_partitions=feed.total_partitions,
                source=feed.source,
                stream=feed.stream,
            )
        )


def _remainder(feed: DriverFeed, opened: m.DatasetOpened) -> str:
    return opened.remainder or feed.remainder


def _plan_of(feed: DriverFeed, opened: list[m.DatasetOpened]) -> m.EpochPlan:
    """Return the plan of nodes that read together: those that have opened the same dataset."""
    shares = [(feed.rows.get(told.rank, 0), told.batch_size) for told in opened]
    steps = count_steps(shares, drop=any(_remainder(feed, told) == "drop" for told in opened))
    return m.EpochPlan(feed=feed.number, dataset_id=opened[0].dataset_id, steps=steps, shares=grouped(shares))
