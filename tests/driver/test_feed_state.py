"""The rules of feeding: how many steps all nodes take, and what is said of rows that are left.

`tests/laws/test_feed_state.py` has what holds in any order; `tests/conformance` has what nodes read.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.instructions import sends
from tfos_lab.core import messages as m
from tfos_lab.driver.state.events import RowsUnread
from tfos_lab.driver.state.feed_state import FeedState
from tfos_lab.driver.state.instructions import Publish

NOW_S = 50.0
# Rank 0 is a parameter server: only nodes that train are fed.
NAMES = {1: "chief:0", 2: "worker:0"}


class Rig:
    """A feed state with one open feed; `asked` are the instructions of the last step."""

    def __init__(self, *, remainder="pad", epochs=2):
        self.feed_state = FeedState(NAMES, lock_step=True)
        opened = m.FeedOpen(feed=-1, epochs=epochs, remainder=remainder, schema="schema", token="token")
        self.asked = self.feed_state.open(opened)

    def handle(self, message):
        self.asked = self.feed_state.handle(message, NOW_S)
        return self

    def both_open(self, *batch_sizes, remainders=(None, None), dataset_id=0):
        for rank, size, remainder in zip((1, 2), batch_sizes, remainders, strict=True):
            self.handle(m.DatasetOpened(rank=rank, dataset_id=dataset_id, batch_size=size, remainder=remainder))
        return self

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


@pytest.mark.parametrize(
    ("remainder", "batch_sizes", "remainders", "rows", "steps"),
    [
        ("pad", (10, 10), (None, None), (51, 50), 6),
        ("pad", (10, 10), (None, None), (50, 50), 5),
        ("pad", (10, 10), (None, None), (1, 0), 1),
        ("pad", (10, 10), (None, None), (0, 0), 0),
        ("drop", (10, 10), (None, None), (51, 50), 5),
        ("drop", (10, 10), (None, None), (59, 40), 4),
        ("drop", (10, 10), (None, None), (9, 0), 0),
        ("pad", (10, 5), (None, None), (30, 30), 6),
        ("pad", (10, 10), ("drop", None), (49, 45), 4),
        ("drop", (10, 10), ("pad", "pad"), (45, 41), 5),
    ],
)
def test_all_nodes_take_the_same_steps(remainder, batch_sizes, remainders, rows, steps):
    rig = Rig(remainder=remainder).both_open(*batch_sizes, remainders=remainders)
    assert rig.plans() == {}, "the feed is not complete"
    assert rig.complete(*rows).plans() == {1: steps, 2: steps}


def test_lock_step_nodes_are_told_together_that_the_length_is_not_known():
    rig = Rig().handle(m.DatasetOpened(rank=1, dataset_id=0, batch_size=10, remainder=None))
    assert rig.asked == []
    rig.handle(m.DatasetOpened(rank=2, dataset_id=0, batch_size=10, remainder=None))
    assert set(rig.sent(m.PlanLater)) == {1, 2}
    assert rig.complete(20, 20).plans() == {1: 2, 2: 2}
    assert not rig.both_open(10, 10, dataset_id=1).sent(m.PlanLater)


@pytest.mark.parametrize(("first", "second", "told"), [(2, 2, 2), (2, 3, 0), (0, 2, 0), (0, 0, 0)])
def test_training_was_stopped_early_if_that_was_after_the_same_epoch_on_all_nodes(first, second, told):
    rig = Rig(epochs=4).both_open(4, 4).complete(8, 8)
    for rank, stopped_after in ((1, first), (2, second)):
        rig.handle(m.Ended(rank=rank, outcome=m.Outcome(kind="returned", stopped_after=stopped_after)))
    [unread] = [i.event for i in rig.asked if isinstance(i, Publish) and isinstance(i.event, RowsUnread)]
    assert unread.stopped_after == told


# ---- datasets of the nodes' own: a step is known once all have said what they have ----------------------------------


@given(st.lists(st.lists(st.integers(1, 9), max_size=12), min_size=3, max_size=3), st.booleans(), st.randoms())
def test_all_steps_of_all_nodes_are_agreed_on_whatever_the_order(sizes, drop, rng):
    state, found, over = FeedState({rank: str(rank) for rank in range(3)}, lock_step=True), [], []
    left = {rank: list(rows) for rank, rows in enumerate(sizes)}
    waiting = set(left)
    while waiting:
        rank = rng.choice(sorted(waiting))
        part, left[rank] = left[rank][:2], left[rank][2:]
        ended = not left[rank]
        if ended:
            waiting.discard(rank)
        ahead = m.StepsAhead(rank, 0, 0, [(1, rows) for rows in part], ended=ended, drop=drop)
        for to, message in sends(state.handle(ahead, NOW_S)):
            if to == 0 and isinstance(message, m.StepsAgreed):
                found += [rows for count, rows in message.runs for _ in range(count)]
                over.append(message.ended)
    count = (min if drop else max)(map(len, sizes))
    assert found == [sum(rows[step] for rows in sizes if step < len(rows)) for step in range(count)]
    assert over.count(True) == 1
