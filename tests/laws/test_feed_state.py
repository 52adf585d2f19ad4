"""The feed state under any order of what nodes and tasks do: every row has its node, and nobody waits for ever."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.laws.random_data import fuzzed
from tests.support.instructions import sends
from tfos_lab.core import messages as m
from tfos_lab.driver.state.feed_state import FeedState
from tfos_lab.driver.state.instructions import Publish, SendTo, SendToAll

NOW_S = 50.0
PARTITIONS = st.integers(0, 4)


class FeedLife(RuleBasedStateMachine):
    """Feeds one after another, stored in attempts, read through datasets that nodes open when they like."""

    @initialize(nodes=st.integers(1, 3), lock_step=st.booleans())
    def begin(self, nodes, lock_step):
        self.names = {rank: f"worker:{rank}" for rank in range(nodes)}
        self.lock_step = lock_step
        self.state = FeedState(self.names, lock_step=lock_step)
        self.returned = set()
        # By feed: what was first stored of each partition, what nodes were told, and the epochs agreed on.
        self.stored = []
        self.committed = {}
        self.told = {}
        self.plans = {}
        self.opened = {}

    @property
    def feed(self):
        return self.state.current

    def has_open_feed(self):
        return self.feed is not None and self.feed.state == "open"

    def do(self, instructions):
        for instruction in instructions:
            assert isinstance(instruction, SendTo | SendToAll | Publish)
        for rank, message in sends(instructions):
            assert rank in self.names
            m.decode_to_agent(m.encode(message))
            self.record(rank, message)

    def record(self, rank, message):
        match message:
            case m.Commit(feed=feed, partition=partition, rows=rows):
                assert (feed, partition, rank) not in self.committed, "committed twice"
                self.committed[feed, partition, rank] = rows
            case m.FeedComplete(feed=feed, rows=rows):
                assert (feed, rank) not in self.told, "completed twice"
                self.told[feed, rank] = rows
            case m.EpochPlan(feed=feed, dataset_id=dataset_id, steps=steps):
                assert self.plans.setdefault((feed, dataset_id, rank), steps) == steps, "another plan"

    def receive(self, message):
        self.do(self.state.handle(message, NOW_S))

    # ---- Spark and the user -----------------------------------------------------------------------------------------

    @precondition(lambda self: not self.has_open_feed() and self.state.ranks and len(self.stored) < 3)
    @rule(epochs=st.integers(1, 2), remainder=st.sampled_from(["exact", "pad", "drop"]))
    def open_feed(self, epochs, remainder):
        self.do(self.state.open(m.FeedOpen(-1, epochs, remainder, "{}", "token")))
        self.stored.append({})

    @precondition(has_open_feed)
    @rule(partition=PARTITIONS, attempt=st.sampled_from(["a", "b"]), rows=st.integers(0, 40))
    def store(self, partition, attempt, rows):
        ranks = self.feed.ranks
        leftover = rows % len(ranks)
        self.stored[-1].setdefault(partition, rows)
        self.receive(
            m.AttemptStored(self.feed.number, partition, attempt, rows // len(ranks), 10, leftover, rank=ranks[0])
        )

    @precondition(has_open_feed)
    @rule()
    def job_ends(self):
        stored = self.stored[-1]
        self.do(self.state.job_done(self.feed.number, sum(stored.values()), len(stored), NOW_S))

    @precondition(has_open_feed)
    @rule()
    def cut(self):
        self.do(self.state.cut(self.feed.number, NOW_S))

    @precondition(has_open_feed)
    @rule()
    def abort(self):
        self.do(self.state.abort(self.feed.number, "no more"))

    @rule()
    def feeds_end(self):
        self.do(self.state.end())

    # ---- nodes ------------------------------------------------------------------------------------------------------

    @rule(data=st.data(), dataset_id=st.integers(0, 1), batch_size=st.integers(1, 16))
    def open_dataset(self, data, dataset_id, batch_size):
        rank = data.draw(st.sampled_from([*self.names]))
        if rank not in self.returned and rank not in self.opened.setdefault(dataset_id, {}):
            self.opened[dataset_id][rank] = batch_size
            self.receive(m.DatasetOpened(dataset_id, batch_size, None, rank=rank))

    @rule(data=st.data())
    def return_from_function(self, data):
        rank = data.draw(st.sampled_from([*self.names]))
        if rank not in self.returned:
            self.returned.add(rank)
            self.receive(m.Ended(m.Outcome(kind="returned"), rank=rank))

    @rule(data=st.data(), rows=st.integers(0, 50))
    def take_rows(self, data, rows):
        rank = data.draw(st.sampled_from([*self.names]))
        self.receive(m.RowsTaken(rows, 0, dict.fromkeys(range(len(self.stored)), (0, rows)), rank=rank))

    @rule(data=st.data(), rows=st.integers(0, 50))
    def answer(self, data, rows):
        rank = data.draw(st.sampled_from([*self.names]))
        self.receive(m.RowsAnswered(0, rows, last=rows == 0, rank=rank))

    @rule(rank=st.integers(-1, 4))
    def beat(self, rank):
        self.receive(m.Heartbeat(100, rank=rank))

    # ---- what always holds ------------------------------------------------------------------------------------------

    @invariant()
    def every_row_has_one_node(self):
        for number, stored in enumerate(self.stored):
            told = [rows for (feed, _), rows in self.told.items() if feed == number]
            if told:
                assert len(told) == len(self.names)
                assert sum(told) == sum(stored.values())
                assert max(told) - min(told) <= len(stored) + 1

    @invariant()
    def what_was_committed_first_counts(self):
        for (feed, partition, _), rows in self.committed.items():
            assert rows == self.stored[feed][partition] // len(self.names)

    @invariant()
    def the_views_can_be_asked_for(self):
        assert set(self.state.with_rows) <= set(self.names.values())
        assert isinstance(self.state.nothing_read, str)
        assert isinstance(self.state.undecided, list)

    @invariant()
    def no_node_waits_for_a_plan_that_can_be_made(self):
        """A complete feed is planned for each dataset that all nodes have opened that still read."""
        reading = set(self.names) - self.returned
        complete = {feed for feed, _ in self.told}
        for dataset_id, opened in self.opened.items():
            if self.lock_step and reading and not reading <= opened.keys():
                continue
            for feed in complete:
                for rank in reading & opened.keys():
                    assert (feed, dataset_id, rank) in self.plans, f"{rank} waits for feed {feed}"

    @invariant()
    def lock_step_has_one_plan(self):
        if self.lock_step:
            for feed, dataset_id, _ in self.plans:
                assert len({steps for key, steps in self.plans.items() if key[:2] == (feed, dataset_id)}) == 1

    def teardown(self):
        """Whatever has been: once Spark's job is over, the feed is; and each node is told that none follows."""
        if not hasattr(self, "state"):
            return
        if self.has_open_feed():
            self.job_ends()
        assert self.feed is None or self.feed.state != "open"
        for dataset_id in (0, 1):
            for rank in set(self.names) - self.returned:
                if rank not in self.opened.setdefault(dataset_id, {}):
                    self.opened[dataset_id][rank] = 4
                    self.receive(m.DatasetOpened(dataset_id, 4, None, rank=rank))
        self.no_node_waits_for_a_plan_that_can_be_made()
        self.every_row_has_one_node()
        self.state.end()
        assert self.state.end() == []


FeedLife.TestCase.settings = fuzzed(50, steps=25)
TestFeedLife = FeedLife.TestCase
