"""The rules of feeding: which rows count, when a feed is complete, how many steps all nodes take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.instructions import sends
from tfos_lab.core import messages as m
from tfos_lab.driver.state.events import FeedProgressed, RowsUnread
from tfos_lab.driver.state.feed_state import FeedState
from tfos_lab.driver.state.instructions import Publish
from tfos_lab.driver.state.readers import unread_text

NOW_S = 50.0
# Rank 0 is a parameter server: only nodes that train are fed.
NAMES = {1: "chief:0", 2: "worker:0"}


def feed_open(**fields):
    return m.FeedOpen(**{"feed": -1, "epochs": 1, "remainder": "pad", "schema": "schema", "token": "token", **fields})


class Rig:
    """A feed state with one open feed; `asked` are the instructions of the last step."""

    def __init__(self, *, lock_step=True, remainder="pad", epochs=2, resumes=False):
        self.feed_state = FeedState(NAMES, lock_step=lock_step, resumes=resumes)
        self.asked = self.feed_state.open(feed_open(epochs=epochs, remainder=remainder))

    def store(self, partition, attempt, rows, *, feed=0, **fields):
        self.asked = self.feed_state.handle(
            m.AttemptStored(
                rank=1, feed=feed, partition=partition, attempt=attempt, rows=rows, size_bytes=100, **fields
            ),
            NOW_S,
        )
        return self

    def job_done(self, rows, partitions, feed=0):
        self.asked = self.feed_state.job_done(feed, rows, partitions, NOW_S)
        return self

    def opens(self, rank, batch_size, *, dataset_id=0, remainder=None):
        self.asked = self.feed_state.handle(
            m.DatasetOpened(rank=rank, dataset_id=dataset_id, batch_size=batch_size, remainder=remainder), NOW_S
        )
        return self

    def returns(self, rank, *, kind="returned", **outcome):
        self.asked = self.feed_state.handle(m.Ended(rank=rank, outcome=m.Outcome(kind=kind, **outcome)), NOW_S)
        return self

    def both_open(self, batch_size, **how):
        return self.opens(1, batch_size, **how).opens(2, batch_size, **how)

    def complete(self, rows_1, rows_2):
        """Give each node its rows: those of tasks are even, those of files need not be."""
        if rows_1 == rows_2:
            return self.store(0, "a", rows_1).job_done(rows_1 + rows_2, 1)
        shares = {rank: m.FilesDealt(0, "parquet", [], rows) for rank, rows in ((1, rows_1), (2, rows_2))}
        self.asked = self.feed_state.deal(shares, 100, NOW_S)
        return self

    def sent(self, kind):
        """``{rank: message}`` of this kind in the last step."""
        return {rank: message for rank, message in sends(self.asked) if isinstance(message, kind)}

    def plans(self):
        return {rank: plan.steps for rank, plan in self.sent(m.EpochPlan).items()}

    def unread(self):
        return [i.event for i in self.asked if isinstance(i, Publish) and isinstance(i.event, RowsUnread)]

    def progress(self):
        return [i.event for i in self.asked if isinstance(i, Publish) and isinstance(i.event, FeedProgressed)][-1]


# ---- rows that are left ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second", "told"), [(2, 2, 2), (2, 3, 0), (0, 2, 0), (0, 0, 0)])
def test_training_was_stopped_early_if_that_was_after_the_same_epoch_on_all_nodes(first, second, told):
    rig = Rig(epochs=4).both_open(4).complete(8, 8)
    rig.returns(1, stopped_after=first).returns(2, stopped_after=second)
    (event,) = rig.unread()
    assert event.stopped_after == told
    assert (unread_text(event) == f"stopped early after epoch {told}") == (told > 0)


# ---- a node wants no more -----------------------------------------------------------------------------------------


def test_a_feed_that_a_node_has_stopped_is_what_was_committed_by_then():
    rig = Rig().store(0, "a", 5).both_open(4)
    rig.feed_state.handle(m.FeedStopped(rank=2), NOW_S)
    assert rig.feed_state.stopped_by == "worker:0"
    rig.asked = rig.feed_state.cut(0, NOW_S)
    assert {rank: done.rows for rank, done in rig.sent(m.FeedComplete).items()} == {1: 5, 2: 5}
    assert rig.plans() == {1: 2, 2: 2}
    assert rig.feed_state.cut(0, NOW_S) == []


def test_a_node_that_has_returned_is_not_waited_for_by_those_that_read_on():
    rig = Rig().opens(1, 10).complete(30, 20)
    assert rig.plans() == {}
    assert rig.returns(2).plans()[1] == 3
    assert rig.feed_state.returned == ["worker:0"]
    assert rig.opens(1, 30, dataset_id=1).plans()[1] == 1


def test_the_rows_of_a_node_that_has_returned_give_nobody_a_step():
    rig = Rig().both_open(10).returns(2)
    assert rig.complete(20, 90).plans()[1] == 2


# ---- rows that nobody reads ---------------------------------------------------------------------------------------


def test_a_queue_of_which_nobody_took_a_row_is_named():
    rig = Rig().complete(1, 1)
    for number, queue in ((1, "side"), (2, "input"), (3, "none")):
        rig.feed_state.open(feed_open(queue=queue))
        rows = 2 if queue != "none" else 0
        rig.store(0, "a", rows, feed=number).job_done(2 * rows, 1, feed=number)
    assert rig.feed_state.nothing_read.startswith("no node has read any row of the queue 'input'")
    rig.feed_state.handle(m.RowsTaken(rank=2, rows=1, epoch=0, feeds={0: (0, 1)}), NOW_S)
    assert rig.feed_state.nothing_read.startswith("no node has read any row of the queue 'side'")
    rig.feed_state.handle(m.RowsTaken(rank=1, rows=1, epoch=0, feeds={1: (0, 1)}), NOW_S)
    assert not rig.feed_state.nothing_read


def test_only_nodes_that_do_not_serve_are_fed_and_waited_for():
    rig = Rig(lock_step=False)
    rig.feed_state.handle(m.RowsWanted(rank=1), NOW_S)
    assert rig.feed_state.undecided == ["worker:0"]
    rig.feed_state.handle(m.Progressed(rank=2, state="serving"), NOW_S)
    assert (rig.feed_state.undecided, rig.feed_state.ranks) == ([], [1])
    rig.asked = rig.feed_state.open(feed_open())
    assert list(rig.sent(m.FeedOpen)) == [1]
    assert rig.store(0, "a", 5, feed=1).progress().rows == {"chief:0": 5}


# ---- equal ends ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("remainder", "rows", "steps"),
    [
        ("pad", (51, 50), 6),
        ("pad", (50, 50), 5),
        ("pad", (1, 0), 1),
        ("pad", (0, 0), 0),
        ("drop", (51, 50), 5),
        ("drop", (59, 40), 4),
        ("drop", (9, 0), 0),
    ],
)
def test_all_nodes_take_the_same_steps(remainder, rows, steps):
    rig = Rig(remainder=remainder).both_open(10).complete(*rows)
    assert rig.plans() == {1: steps, 2: steps}
    assert rig.progress().steps == steps


def test_no_steps_before_the_feed_is_complete():
    rig = Rig().both_open(10).store(0, "a", 25)
    assert rig.plans() == {}


def test_batch_sizes_may_differ_from_node_to_node():
    rig = Rig().opens(1, 10).opens(2, 5).complete(30, 30)
    assert rig.plans() == {1: 6, 2: 6}


def test_one_dataset_that_drops_makes_all_stop_at_the_shortest():
    rig = Rig(remainder="pad").opens(1, 10, remainder="drop").opens(2, 10).complete(49, 45)
    assert rig.plans() == {1: 4, 2: 4}


def test_a_dataset_s_own_remainder_wins_over_the_feed_s():
    rig = Rig(remainder="drop").both_open(10, remainder="pad").complete(45, 41)
    assert rig.plans() == {1: 5, 2: 5}


def test_each_dataset_has_an_agreement_of_its_own():
    rig = Rig().both_open(10).complete(40, 40)
    assert rig.plans() == {1: 4, 2: 4}
    rig.opens(1, 20, dataset_id=1)
    assert rig.plans() == {}
    rig.opens(2, 20, dataset_id=1)
    assert {plan.dataset_id: plan.steps for plan in rig.sent(m.EpochPlan).values()} == {1: 2}
    assert rig.feed_state.current.steps == {0: 4, 1: 2}


def test_lock_step_nodes_are_told_together_that_the_length_is_not_known():
    rig = Rig().store(0, "a", 20).opens(1, 10)
    assert rig.asked == []
    rig.opens(2, 10)
    assert set(rig.sent(m.PlanLater)) == {1, 2}
    assert rig.job_done(40, 1).plans() == {1: 2, 2: 2}
    assert not rig.both_open(10, dataset_id=1).sent(m.PlanLater)


def test_without_lock_step_each_node_reads_its_presharded_rows_to_the_end():
    rig = Rig(lock_step=False).opens(1, 10).complete(40, 5)
    assert rig.plans() == {1: 4}
    assert rig.opens(2, 10).plans()[2] == 1


# ---- ends ---------------------------------------------------------------------------------------------------------


def test_an_abort_is_sent_to_all_nodes_and_nothing_counts_afterwards():
    rig = Rig().store(0, "a", 1)
    rig.asked = rig.feed_state.abort(0, "division by zero")
    assert {rank: told.reason for rank, told in rig.sent(m.FeedAborted).items()} == dict.fromkeys(
        [1, 2], "division by zero"
    )
    assert rig.store(1, "b", 1).asked == []
    assert rig.feed_state.abort(0, "again") == []


# ---- what is shown ------------------------------------------------------------------------------------------------


def test_spark_s_forecast_is_shown_and_decides_nothing():
    rig = Rig().store(0, "a", 25)
    rig.asked = rig.feed_state.foresee(0, 1, NOW_S)
    shown = rig.progress()
    assert (shown.partitions, shown.total_partitions, shown.complete) == (1, 1, False)
    assert shown.epochs == 2
    assert rig.store(1, "a", 0, leftover=1).job_done(51, 2).progress().total_partitions == 2
    assert rig.feed_state.foresee(0, 9, NOW_S) == [], "a feed that is complete needs no forecast"


def test_rows_that_arrive_are_committed_or_taken_are_moves():
    rig = Rig()

    def moves_by(message):
        before = rig.feed_state.moves
        rig.feed_state.handle(message, NOW_S)
        return rig.feed_state.moves - before

    assert moves_by(m.Heartbeat(rank=1)) == 0
    assert moves_by(m.Heartbeat(rank=1, spooled_bytes=100)) == 1
    assert moves_by(m.Heartbeat(rank=1, spooled_bytes=100)) == 0
    assert moves_by(m.RowsTaken(rank=1, rows=100, epoch=0)) == 1
    assert moves_by(m.RowsTaken(rank=2, rows=100, epoch=0)) == 1
    assert moves_by(m.RowsTaken(rank=2, rows=100, epoch=0)) == 0
    before = rig.feed_state.moves
    rig.store(0, "a", 1).store(0, "b", 1)
    assert rig.feed_state.moves == before + 1


# ---- datasets of the nodes' own: a step is known once all have said what they have ----------------------------------

PEERS = {1: "chief:0", 3: "worker:0"}


class Steps:
    """What nodes in lock-step agree on, of datasets that each has made itself."""

    def __init__(self, names=PEERS):
        self.state = FeedState(names, lock_step=True)

    def handle(self, message):
        return [i for i in self.state.handle(message, NOW_S) if told([i], 1) or told([i], 3) or told([i], 0)]

    def leave(self, rank):
        return self.handle(m.Ended(rank, m.Outcome(kind="returned")))


def told(instructions, rank=1):
    return [message for to, message in sends(instructions) if to == rank and isinstance(message, m.StepsAgreed)]


def ahead(rank, runs=(), *, passage=0, dataset=0, ended=False, drop=False):
    return m.StepsAhead(rank, dataset, passage, list(runs), ended=ended, drop=drop)


def test_a_step_is_known_once_all_nodes_have_said_what_they_have():
    steps = Steps()
    assert steps.handle(ahead(1, [(4, 8), (1, 3)])) == []
    agreed = m.StepsAgreed(0, 0, [(2, 16), (1, 9)])
    instructions = steps.handle(ahead(3, [(2, 8), (1, 1)]))
    assert told(instructions) == told(instructions, 3) == [agreed]
    last = m.StepsAgreed(0, 0, [(1, 8), (1, 3)])
    assert told(steps.handle(ahead(3, ended=True))) == [last]
    assert told(steps.handle(ahead(1, ended=True))) == [m.StepsAgreed(0, 0, [], ended=True)]


def test_passes_and_datasets_are_counted_by_themselves():
    steps = Steps()
    assert steps.handle(ahead(1, [(1, 8)], dataset=1, ended=True)) == []
    assert steps.handle(ahead(3, ended=True)) == []
    assert told(steps.handle(ahead(1, ended=True))) == [m.StepsAgreed(0, 0, [], ended=True)]
    assert told(steps.handle(ahead(3, dataset=1, ended=True))) == [m.StepsAgreed(1, 0, [(1, 8)], ended=True)]
    assert steps.handle(ahead(1, [(1, 2)], passage=1)) == []
    assert told(steps.handle(ahead(3, [(1, 2)], passage=1))) == [m.StepsAgreed(0, 1, [(1, 4)])]


def test_who_reads_on_learns_that_another_node_has_left_the_pass():
    steps = Steps()
    steps.handle(ahead(1, [(3, 8)]))
    steps.handle(ahead(3, [(1, 8)]))
    assert told(steps.handle(ahead(3, passage=1))) == [m.StepsAgreed(0, 0, [], left="worker:0")]
    assert steps.handle(ahead(3, [(1, 8)], passage=1)) == []  # once
    assert told(steps.handle(ahead(1, passage=1)), 3) == []


def test_who_reads_on_learns_that_another_node_has_returned():
    steps = Steps()
    steps.handle(ahead(1, [(3, 8)]))
    assert told(steps.leave(3)) == [m.StepsAgreed(0, 0, [], left="worker:0")]
    assert told(steps.handle(ahead(1, passage=1))) == [m.StepsAgreed(0, 1, [], left="worker:0")]


def test_a_node_that_has_read_to_its_end_may_return():
    steps = Steps()
    steps.handle(ahead(3, [(1, 8)], ended=True))
    assert steps.leave(3) == []
    assert told(steps.handle(ahead(1, [(2, 8)], ended=True))) == [m.StepsAgreed(0, 0, [(1, 16), (1, 8)], ended=True)]


def test_the_others_of_a_lock_step_are_told_of_a_node_that_has_returned():
    state = FeedState(PEERS, lock_step=True)
    outcome = m.Outcome(kind="returned", steps=12, dataset_ended=True)
    assert list(sends(state.handle(m.Ended(3, outcome), NOW_S))) == [(1, m.PeerReturned("worker:0", 12, ended=True))]
    assert list(sends(state.handle(m.Ended(1, outcome), NOW_S))) == []


@given(st.lists(st.lists(st.integers(1, 9), max_size=12), min_size=3, max_size=3), st.booleans(), st.randoms())
def test_all_steps_of_all_nodes_are_agreed_on_whatever_the_order(sizes, drop, rng):
    steps, found, over = Steps({rank: str(rank) for rank in range(3)}), [], []
    left = {rank: list(rows) for rank, rows in enumerate(sizes)}
    waiting = set(left)
    while waiting:
        rank = rng.choice(sorted(waiting))
        part, left[rank] = left[rank][:2], left[rank][2:]
        ended = not left[rank]
        if ended:
            waiting.discard(rank)
        for message in told(steps.handle(ahead(rank, [(1, rows) for rows in part], ended=ended, drop=drop)), 0):
            found += [rows for count, rows in message.runs for _ in range(count)]
            over.append(message.ended)
    count = (min if drop else max)(map(len, sizes))
    assert found == [sum(rows[step] for rows in sizes if step < len(rows)) for step in range(count)]
    assert over.count(True) == 1
