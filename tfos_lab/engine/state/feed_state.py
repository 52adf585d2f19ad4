"""The rules of feeding: which rows count, when a feed is complete, and how many steps all nodes take.

A pure state machine beside the roster, called by the server's thread. Each partition is committed once, by the first
attempt that has stored all its rows; when Spark's job is over, what was committed must add up to what Spark produced.
Once the rows of each node and their batch sizes are known, one number of steps is agreed on for all of them.
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
class Feed:
    """One feed's books."""

    number: int
    seats: list[int]
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


class FeedLedger:
    """All feeds of one cluster, one open at a time.

    Parameters
    ----------
    names : dict of int to str
        The nodes that train, by seat: those that are fed, unless they say that they only serve others.
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
        self._openings: dict[int, dict[int, m.DatasetOpened]] = {}
        self._feeds: list[Feed] = []
        self._answered: dict[int, Answered] = {}
        self._ended = False
        self._amounts: dict[tuple[type[m.FromAgent], int], int] = {}
        self.moves = 0
        self._returned: set[int] = set()
        self._told_unread = False
        self.stopped_by: str | None = None
        self.answering: dict[int, list[str]] = {}

    @property
    def seats(self) -> list[int]:
        """The nodes that are fed."""
        return self._readers.seats

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
        return [name for seat, name in self._names.items() if seat in self._returned]

    @property
    def current(self) -> Feed | None:
        """The newest feed, or None."""
        return self._feeds[-1] if self._feeds else None

    # ---- requests ---------------------------------------------------------------------------------------------------

    def open(self, opening: m.FeedOpen, source: int = 0) -> list[Instruction]:
        """Begin a feed: every training node opens an endpoint. The ledger gives the feed its number."""
        number = len(self._feeds)
        feed = Feed(number, self.seats, opening.remainder, opening.epochs, source, opening.stream)
        self._feeds.append(feed)
        message = msgspec.structs.replace(opening, feed=number)
        return [SendTo(seat, message) for seat in feed.seats]

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
        return [SendTo(seat, m.FeedAborted(feed=number, reason=reason)) for seat in feed.seats]

    def open_inference(self, schema: str, token: str, tls: m.TlsIdentity | None) -> list[Instruction]:
        """Rows will come that are to be answered; ``answering`` then tells where each node takes them."""
        opening = m.InferenceOpen(schema=schema, token=token, tls=tls)
        return [SendTo(seat, opening) for seat in self.seats if seat not in self.answering]

    def end(self) -> list[Instruction]:
        """No further feed will come."""
        if self._ended:
            return []
        self._ended = True
        return [SendTo(seat, m.FeedsEnded()) for seat in self._names]

    # ---- messages ---------------------------------------------------------------------------------------------------

    def handle(self, message: m.FromAgent, now_s: float) -> list[Instruction]:
        """Take one agent's message in; return what must now be done."""
        self._readers.handle(message)
        match message:
            case m.FeedReady(seat=seat, feed=number, locations=locations):
                self._feeds[number].locations[seat] = locations
            case m.FeedRead(seat=seat, feed=number):
                self._feeds[number].read_by.add(seat)
            case m.InferenceReady(seat=seat, locations=locations):
                self.answering[seat] = locations
            case m.RowsAnswered(seat=seat) if seat in self._names:
                return [self._note_answers(message, now_s)]
            case m.Beat(seat=seat, spooled_bytes=amount) | m.RowsTaken(seat=seat, rows=amount):
                self._note_move((type(message), seat), amount)
            case m.AttemptStored():
                return self._store(message, now_s)
            case m.DatasetOpened():
                self._openings.setdefault(message.opening, {})[message.seat] = message
                return [i for feed in self._feeds for i in self._answer(feed, message.opening, message.seat, now_s)]
            case m.FeedStopped(seat=seat):
                self.stopped_by = self._names.get(seat, str(seat))
            case m.Ended(outcome=m.Outcome(kind="returned")) | m.Progressed(state="serving"):
                return self._leave(message, now_s) if message.seat in self._names else []
        return []

    def _note_move(self, what: tuple[type[m.FromAgent], int], amount: int) -> None:
        """Count in ``moves`` that rows have come to a node, or that it has taken some."""
        self.moves += amount != self._amounts.get(what, 0)
        self._amounts[what] = amount

    def _leave(self, message: m.Ended | m.Progressed, now_s: float) -> list[Instruction]:
        """A node reads nothing more: the others agree without it on what they were waiting to agree on."""
        seat = message.seat
        if isinstance(message, m.Ended):
            self._returned.add(seat)
        instructions: list[Instruction] = []
        if self._lock_step:
            for feed in self._feeds:
                for opening in self._openings:
                    instructions += self._answer(feed, opening, seat, now_s)
        return [*instructions, *self._tell_unread(now_s)]

    def _tell_unread(self, now_s: float) -> list[Instruction]:
        """Once the functions of all nodes that read have returned, say what they have left."""
        if not self._returned.issuperset(self.seats) or self._told_unread:
            return []
        self._told_unread = True
        if self.stopped_by is not None or self._resumes:
            return []
        # Of a feed that was cut short it is said elsewhere; a stream has no end to read to.
        whole = [feed for feed in self._feeds if feed.state == "complete" and not (feed.is_cut or feed.stream)]
        events = [self._readers.unread(feed.number, feed.epochs, feed.rows, now_s) for feed in whole]
        return [Publish(event) for event in events if event is not None]

    def _note_answers(self, message: m.RowsAnswered, now_s: float) -> Publish:
        answered = self._answered.setdefault(message.inference, Answered())
        node = self._names[message.seat]
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
        for seat in feed.seats:
            rows = message.rows.get(seat, 0)
            feed.rows[seat] = feed.rows.get(seat, 0) + rows
            instructions.append(
                SendTo(
                    seat,
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

    def _when_complete(self, feed: Feed, now_s: float) -> list[Instruction]:
        if feed.state != "open" or feed.expected_partitions is None:
            return []
        if len(feed.committed) < feed.expected_partitions:
            return []
        feed.state = "complete"
        instructions = self._deal_leftover(feed)
        return [*instructions, self._progress(feed, now_s), *self._plan(feed, now_s)]

    def _deal_leftover(self, feed: Feed) -> list[Instruction]:
        """Give each node its part of the rows that lie on all of them, and tell it how many it has in all."""
        instructions: list[Instruction] = []
        for index, seat in enumerate(feed.seats):
            leftovers = share_of(feed.leftover, len(feed.seats), index)
            rows = feed.rows[seat] = feed.rows.get(seat, 0) + leftovers[1] - leftovers[0]
            instructions.append(SendTo(seat, m.FeedComplete(feed=feed.number, rows=rows, leftovers=leftovers)))
        feed.leftover = 0
        return instructions

    # ---- equal ends -------------------------------------------------------------------------------------------------

    def _plan(self, feed: Feed, now_s: float) -> list[Instruction]:
        """Agree on the steps of an epoch, for each dataset whose batch sizes all nodes have told."""
        instructions: list[Instruction] = []
        for opening, opened in self._openings.items():
            if not self._lock_step:
                instructions += self._plan_alone(feed, opened)
            elif opening not in feed.steps and self._is_open_everywhere(opening):
                plan = _plan_of(feed, [told for seat, told in opened.items() if seat not in self._returned])
                feed.steps[opening] = plan.steps
                instructions += [*(SendTo(seat, plan) for seat in feed.seats), self._progress(feed, now_s)]
        return instructions

    def _is_open_everywhere(self, opening: int) -> bool:
        """Whether all nodes that still read have opened this dataset."""
        reading = set(self.seats) - self._returned
        return bool(reading) and reading <= self._openings[opening].keys()

    def _answer(self, feed: Feed, opening: int, seat: int, now_s: float) -> list[Instruction]:
        """Tell whether the length of a dataset is known: the same to all nodes that wait for one another."""
        if feed.state == "complete":
            return self._plan(feed, now_s)
        if feed.state != "open":
            return []
        sizes = {told.batch_size for told in self._openings[opening].values()}
        later = m.PlanLater(feed=feed.number, opening=opening, alike=len(sizes) == 1 or not self._lock_step)
        if not self._lock_step:
            return [SendTo(seat, later)]
        return [SendTo(each, later) for each in feed.seats] if self._is_open_everywhere(opening) else []

    def _plan_alone(self, feed: Feed, opened: dict[int, m.DatasetOpened]) -> list[Instruction]:
        """Nodes that do not wait for one another each read their own rows to the end."""
        return [SendTo(seat, _plan_of(feed, [message])) for seat, message in opened.items() if seat in feed.seats]

    def _progress(self, feed: Feed, now_s: float) -> Publish:
        return Publish(
            FeedProgressed(
                time_s=now_s,
                feed=feed.number,
                rows={self._names[seat]: feed.rows.get(seat, 0) for seat in feed.seats},
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


def _remainder(feed: Feed, opened: m.DatasetOpened) -> str:
    return opened.remainder or feed.remainder


def _plan_of(feed: Feed, opened: list[m.DatasetOpened]) -> m.EpochPlan:
    """Return the plan of nodes that read together: those that have opened the same dataset."""
    shares = [(feed.rows.get(told.seat, 0), told.batch_size) for told in opened]
    steps = count_steps(shares, drop=any(_remainder(feed, told) == "drop" for told in opened))
    return m.EpochPlan(feed=feed.number, opening=opened[0].opening, steps=steps, shares=grouped(shares))
