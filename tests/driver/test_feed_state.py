"""The rules of feeding: how many steps all nodes take, and what is said of rows that are left.

`tests/node/test_batches.py` has what holds in any order, `tests/node/test_even.py` what nodes do that have datasets of
their own, and `tests/conformance` what nodes read.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.instructions import sends
from tfos_lab.core import messages as m
from tfos_lab.driver.state.events import Noted
from tfos_lab.driver.state.feed_state import FeedState
from tfos_lab.driver.state.instructions import Fail, Publish

NOW_S = 50.0
# Rank 0 is a parameter server: only nodes that train are fed.
NAMES = {1: "chief:0", 2: "worker:0"}


class Rig:
    """A feed state with one open feed; `asked` are the instructions of the last step."""

    def __init__(self, *, epochs=2, lock_step=True, names=NAMES):
        self.feed_state = FeedState(names, lock_step=lock_step)
        opened = m.FeedOpen(feed=-1, epochs=epochs, remainder="pad", schema="schema", token="token")
        self.asked = self.feed_state.open(opened)

    @classmethod
    def without_feed(cls):
        rig = cls()
        rig.feed_state = FeedState(NAMES, lock_step=True)
        return rig

    def handle(self, message):
        self.asked = self.feed_state.handle(message, NOW_S)
        return self

    def opens(self, rank, batch_size, *, dataset_id=0, remainder="pad"):
        return self.handle(m.DatasetOpened(dataset_id, batch_size, remainder, rank=rank))

    def both_open(self, *batch_sizes, remainders=("pad", "pad"), **how):
        for rank, size, remainder in zip((1, 2), batch_sizes, remainders, strict=True):
            self.opens(rank, size, remainder=remainder, **how)
        return self

    def store(self, partition, attempt, rows, leftover=0):
        return self.handle(m.AttemptStored(0, partition, attempt, rows, 100, leftover, rank=1))

    def returns(self, rank, **outcome):
        return self.handle(m.Ended(m.Outcome(kind="returned", **outcome), rank=rank))

    def complete(self, rows_1, rows_2):
        """Give each node its rows, which need not be even where they are of files."""
        shares = {rank: m.FilesDealt(0, "parquet", [], rows) for rank, rows in ((1, rows_1), (2, rows_2))}
        self.asked = self.feed_state.deal(shares, 100, NOW_S)
        return self

    def sent(self, kind):
        """``{rank: message}`` of this kind in the last step."""
        return {rank: message for rank, message in sends(self.asked) if isinstance(message, kind)}

    def plans(self):
        return {rank: plan.steps for rank, plan in self.sent(m.EpochPlan).items()}


def test_a_feed_has_its_time_anew_with_each_row_that_moves_and_what_nodes_owe_has_not():
    rig = Rig()
    rows, nodes = (rig.feed_state.patience(3.0, rows=moving) for moving in (True, False))
    for attended_s, act, late in [
        (10.0, None, (False, False)),
        (12.0, lambda: rig.store(0, "a", 5), (False, False)),
        (14.0, lambda: rig.feed_state.foresee(0, 4, NOW_S, (1, 4)), (False, True)),
        (16.0, None, (False, True)),
        (17.5, None, (True, True)),
    ]:
        if act is not None:
            act()
        rig.feed_state.tick(attended_s)
        assert (rows.is_over, nodes.is_over) == late


@pytest.mark.parametrize(
    ("remainders", "batch_sizes", "rows", "steps"),
    [
        (("pad", "pad"), (10, 10), (51, 50), 6),
        (("pad", "pad"), (10, 10), (50, 50), 5),
        (("pad", "pad"), (10, 10), (1, 0), 1),
        (("pad", "pad"), (10, 10), (0, 0), 0),
        (("drop", "drop"), (10, 10), (51, 50), 5),
        (("drop", "drop"), (10, 10), (59, 40), 4),
        (("drop", "drop"), (10, 10), (9, 0), 0),
        (("pad", "pad"), (10, 5), (30, 30), 6),
        (("drop", "pad"), (10, 10), (49, 45), 4),
    ],
)
def test_all_nodes_take_the_same_steps(remainders, batch_sizes, rows, steps):
    rig = Rig().both_open(*batch_sizes, remainders=remainders)
    assert rig.plans() == {}, "the feed is not complete"
    assert rig.complete(*rows).plans() == {1: steps, 2: steps}


def test_lock_step_nodes_are_told_together_that_the_length_is_not_known():
    rig = Rig().opens(1, 10)
    assert rig.asked == []
    assert set(rig.opens(2, 10).sent(m.PlanLater)) == {1, 2}
    assert rig.complete(20, 20).plans() == {1: 2, 2: 2}
    assert not rig.both_open(10, 10, dataset_id=1).sent(m.PlanLater)


def test_each_dataset_has_an_agreement_of_its_own():
    rig = Rig().both_open(10, 10).complete(40, 40)
    assert rig.plans() == {1: 4, 2: 4}
    assert rig.opens(1, 20, dataset_id=1).plans() == {}
    rig.opens(2, 20, dataset_id=1)
    assert {plan.dataset_id: plan.steps for plan in rig.sent(m.EpochPlan).values()} == {1: 2}


def test_without_lock_step_each_node_reads_its_presharded_rows_to_the_end():
    rig = Rig(lock_step=False).opens(1, 10).complete(40, 5)
    assert rig.plans() == {1: 4}
    assert rig.opens(2, 10).plans()[2] == 1


@pytest.mark.parametrize(
    ("leftovers", "dealt", "rows"),
    [
        ((2, 2, 1), [0, 2, 4], {1: 32, 3: 32, 4: 31}),
        ((1, 0, 1), [0, 1, 1], {1: 31, 3: 31, 4: 30}),
        ((0, 2, 2), [0, 0, 2], {1: 32, 3: 31, 4: 31}),
    ],
)
def test_leftover_rows_go_to_the_nodes_in_turn_whatever_their_ranks(leftovers, dealt, rows):
    rig, told = Rig(names={1: "chief:0", 3: "worker:1", 4: "worker:2"}), []
    for partition, leftover in enumerate(leftovers):
        rig.store(partition, "a", 10, leftover)
        assert set(rig.sent(m.Commit)) == {1, 3, 4}
        told += {(commit.leftover, commit.dealt) for commit in rig.sent(m.Commit).values()}
    assert told == list(zip(leftovers, dealt, strict=True))
    assert rig.feed_state.feed(0).rows == rows


# ---- nodes that want no more rows, and feeds that end early ---------------------------------------------------------


def test_a_node_that_has_returned_is_not_waited_for_and_its_rows_give_nobody_a_step():
    rig = Rig().opens(1, 10).complete(30, 20)
    assert rig.plans() == {}
    assert rig.returns(2).plans()[1] == 3
    assert rig.feed_state.returned == ["worker:0"]
    assert rig.opens(1, 30, dataset_id=1).plans()[1] == 1
    assert Rig().both_open(10, 10).returns(2).complete(20, 90).plans()[1] == 2


def test_a_feed_that_a_node_has_stopped_is_what_was_committed_by_then():
    rig = Rig().store(0, "a", 5).both_open(4, 4).handle(m.FeedStopped(rank=2))
    assert rig.feed_state.stopped_by == "worker:0"
    rig.asked = rig.feed_state.cut(0, NOW_S)
    assert set(rig.sent(m.FeedComplete)) == {1, 2}
    assert rig.feed_state.feed(0).rows == {1: 5, 2: 5}
    assert rig.plans() == {1: 2, 2: 2}
    assert rig.feed_state.cut(0, NOW_S) == []


def test_an_abort_is_sent_to_all_nodes_and_nothing_counts_afterwards():
    rig = Rig().store(0, "a", 1)
    rig.asked = rig.feed_state.abort(0, "division by zero")
    assert {rank: told.reason for rank, told in rig.sent(m.FeedAborted).items()} == dict.fromkeys(
        [1, 2], "division by zero"
    )
    assert rig.store(1, "b", 1).asked == []
    assert rig.feed_state.abort(0, "again") == []


def failures(instructions):
    """Return for what reasons the cluster is to fail."""
    return [instruction.failure.message for instruction in instructions if isinstance(instruction, Fail)]


@pytest.mark.parametrize(("first", "second", "told"), [(2, 2, 2), (2, 3, 0), (0, 2, 0), (0, 0, 0)])
def test_training_was_stopped_early_if_that_was_after_the_same_epoch_on_all_nodes(first, second, told):
    rig = Rig(epochs=4).both_open(4, 4).complete(8, 8)
    rig.handle(m.RowsTaken(rows=4, feeds={0: (0, 4)}, rank=1))
    rig.returns(1, stopped_after=first).returns(2, stopped_after=second)
    [unread] = [i.event.text for i in rig.asked if isinstance(i, Publish) and isinstance(i.event, Noted)]
    assert unread.startswith(f"stopped early after epoch {told}" if told else "rows were left unread: ")


def test_training_that_was_stopped_early_is_told_where_nothing_was_fed():
    rig = Rig.without_feed().returns(1, stopped_after=3).returns(2, stopped_after=3)
    assert [i.event.text for i in rig.asked if isinstance(i, Publish)] == ["stopped early after epoch 3"]


@pytest.mark.parametrize(
    ("epochs", "read"),
    [
        (3, "read 1 of 3 epochs. Pass epochs=ctx.epochs to Keras' fit, or read ctx.dataset(...) ctx.epochs times"),
        (1, "read 2 of 4 rows. Read ctx.dataset(...) or ctx.data_feed() to the end"),
    ],
)
def test_rows_that_are_left_unread_are_told_with_what_to_do(epochs, read):
    rig = Rig(epochs=epochs).both_open(4, 4).complete(4, 4)
    for rank in (1, 2):
        rig.handle(m.RowsTaken(rows=2, feeds={0: (epochs // 2, 2)}, rank=rank)).returns(rank)
    [unread] = [i.event.text for i in rig.asked if isinstance(i, Publish) and isinstance(i.event, Noted)]
    assert unread == (
        f"rows were left unread: chief:0, worker:0 {read}, or call ctx.stop_feed() where no more are wanted"
    )


@pytest.mark.parametrize(("epochs_read", "told"), [(1, False), (0, True)])
def test_rows_that_a_function_has_cached_are_to_be_read_once(epochs_read, told):
    rig = Rig(epochs=3).both_open(4, 4).complete(4, 4)
    for rank in (1, 2):
        rig.handle(m.RowsTaken(rows=2, feeds={0: (epochs_read, 2)}, rank=rank)).returns(rank, keeps_rows=True)
    assert any(isinstance(i, Publish) and isinstance(i.event, Noted) for i in rig.asked) == told


@pytest.mark.parametrize("come", ["expected", "open", "complete"])
@pytest.mark.parametrize("wanted", [True, False])
def test_functions_that_return_without_rows_that_were_there_for_them_have_failed(come, wanted):
    rig = Rig() if come != "expected" else Rig.without_feed()
    rig.feed_state.expected = come == "expected"
    if come == "complete":
        rig.both_open(4, 4).complete(4, 4)
    if not wanted:
        rig.handle(m.FeedStopped(rank=2))
    assert failures(rig.returns(1).asked) == []
    assert [("no node has read any row" in reason) for reason in failures(rig.returns(2).asked)] == [True] * wanted


def test_functions_that_return_when_there_are_no_rows_for_them_have_not_failed():
    rig = Rig().both_open(4, 4).complete(0, 0)
    rig.feed_state.expected = True
    assert failures(rig.returns(1).returns(2).asked) == []
    assert failures(Rig.without_feed().returns(1).returns(2).asked) == []


# ---- datasets of the nodes' own: a step is known once all have said what they have ----------------------------------


PEERS = {1: "chief:0", 3: "worker:0"}


class Steps:
    """What nodes in lock-step agree on, of datasets that each has made itself."""

    def __init__(self, names=PEERS):
        self.state = FeedState(names, lock_step=True)

    def handle(self, message):
        return [i for i in self.state.handle(message, NOW_S) if told([i], 1) or told([i], 3) or told([i], 0)]

    def leave(self, rank):
        return self.handle(m.Ended(m.Outcome(kind="returned"), rank=rank))


def told(instructions, rank=1):
    return [message for to, message in sends(instructions) if to == rank and isinstance(message, m.StepsAgreed)]


def ahead(rank, runs=(), *, passage=0, dataset=0, ended=False, drop=False):
    return m.StepsAhead(dataset, passage, list(runs), ended=ended, drop=drop, rank=rank)


def test_the_others_of_a_lock_step_are_told_of_a_node_that_has_returned():
    state = FeedState(PEERS, lock_step=True)
    outcome = m.Outcome(kind="returned", steps=12, dataset_ended=True)
    assert list(sends(state.handle(m.Ended(outcome, rank=3), NOW_S))) == [
        (1, m.PeerReturned("worker:0", 12, ended=True))
    ]
    assert list(sends(state.handle(m.Ended(outcome, rank=1), NOW_S))) == []


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
        if ended:
            assert steps.leave(rank) == [], "who has read to the end may return"
    count = (min if drop else max)(map(len, sizes))
    assert found == [sum(rows[step] for rows in sizes if step < len(rows)) for step in range(count)]
    assert over.count(True) == 1
