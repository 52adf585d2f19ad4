"""Nodes agree on steps: each is known once all have said what they have for it, and a pass ends on all together."""

from __future__ import annotations

import random

import pytest

from tests.support.instructions import sends
from tfos_lab import messages as m
from tfos_lab.engine.state.even_steps import EvenSteps
from tfos_lab.engine.state.feed_state import FeedState
from tfos_lab.engine.state.instructions import SendTo, SendToAll

NAMES = {1: "chief:0", 3: "worker:0"}


def ahead(rank, runs=(), *, passage=0, dataset=0, ended=False, drop=False):
    return m.StepsAhead(rank, dataset, passage, list(runs), ended=ended, drop=drop)


def told(instructions, rank=1):
    return [message for to, message in sends(instructions) if to == rank]


def test_a_step_is_known_once_all_nodes_have_said_what_they_have():
    steps = EvenSteps(NAMES)
    assert steps.handle(ahead(1, [(4, 8), (1, 3)])) == []
    agreed = m.StepsAgreed(0, 0, [(2, 16), (1, 9)])
    assert list(sends(steps.handle(ahead(3, [(2, 8), (1, 1)])))) == [(1, agreed), (3, agreed)]
    last = m.StepsAgreed(0, 0, [(1, 8), (1, 3)])
    assert told(steps.handle(ahead(3, ended=True))) == [last]
    assert told(steps.handle(ahead(1, ended=True))) == [m.StepsAgreed(0, 0, [], ended=True)]


def test_with_drop_a_pass_ends_with_the_first_node():
    steps = EvenSteps(NAMES)
    steps.handle(ahead(1, [(9, 8)], drop=True))
    assert told(steps.handle(ahead(3, [(2, 4)], ended=True, drop=True)), 3) == [
        m.StepsAgreed(0, 0, [(2, 12)], ended=True)
    ]
    assert steps.handle(ahead(1, [(1, 8)], ended=True, drop=True)) == []


def test_passes_and_datasets_are_counted_by_themselves():
    steps = EvenSteps(NAMES)
    assert steps.handle(ahead(1, [(1, 8)], dataset=1, ended=True)) == []
    assert steps.handle(ahead(3, ended=True)) == []
    assert told(steps.handle(ahead(1, ended=True))) == [m.StepsAgreed(0, 0, [], ended=True)]
    assert told(steps.handle(ahead(3, dataset=1, ended=True))) == [m.StepsAgreed(1, 0, [(1, 8)], ended=True)]
    assert steps.handle(ahead(1, [(1, 2)], passage=1)) == []
    assert told(steps.handle(ahead(3, [(1, 2)], passage=1))) == [m.StepsAgreed(0, 1, [(1, 4)])]


def test_who_reads_on_learns_that_another_node_has_left_the_pass():
    steps = EvenSteps(NAMES)
    steps.handle(ahead(1, [(3, 8)]))
    steps.handle(ahead(3, [(1, 8)]))
    assert told(steps.handle(ahead(3, passage=1))) == [m.StepsAgreed(0, 0, [], left="worker:0")]
    assert steps.handle(ahead(3, [(1, 8)], passage=1)) == []  # once
    assert told(steps.handle(ahead(1, passage=1)), 3) == []


def test_who_reads_on_learns_that_another_node_has_returned():
    steps = EvenSteps(NAMES)
    steps.handle(ahead(1, [(3, 8)]))
    assert told(steps.leave(3)) == [m.StepsAgreed(0, 0, [], left="worker:0")]
    assert told(steps.handle(ahead(1, passage=1))) == [m.StepsAgreed(0, 1, [], left="worker:0")]


def test_a_node_that_has_read_to_its_end_may_return():
    steps = EvenSteps(NAMES)
    steps.handle(ahead(3, [(1, 8)], ended=True))
    assert steps.leave(3) == []
    assert told(steps.handle(ahead(1, [(2, 8)], ended=True))) == [m.StepsAgreed(0, 0, [(1, 16), (1, 8)], ended=True)]


def test_nodes_that_train_by_themselves_agree_on_nothing():
    state = FeedState(NAMES, lock_step=False)
    assert state.handle(ahead(1, [(1, 8)]), 0.0) == []
    assert list(sends(state.handle(m.Ended(1, m.Outcome(kind="returned")), 0.0))) == []


def test_the_others_of_a_lock_step_are_told_of_a_node_that_has_returned():
    state = FeedState(NAMES, lock_step=True)
    outcome = m.Outcome(kind="returned", steps=12, dataset_ended=True)
    assert list(sends(state.handle(m.Ended(3, outcome), 0.0))) == [(1, m.PeerReturned("worker:0", 12, ended=True))]
    assert list(sends(state.handle(m.Ended(1, outcome), 0.0))) == []


def test_of_thousands_that_return_the_others_are_told_of_the_first_few():
    state = FeedState({rank: f"worker:{rank}" for rank in range(200)}, lock_step=True)
    told = [state.handle(m.Ended(rank, m.Outcome(kind="returned", steps=3)), 0.0) for rank in range(200)]
    peers = [i for instructions in told for i in instructions if isinstance(i, SendToAll)]
    assert [i.message.node for i in peers] == [f"worker:{rank}" for rank in range(8)]
    assert peers[0].ranks == tuple(range(1, 200))
    assert not any(isinstance(i, SendTo) for instructions in told for i in instructions)


@pytest.mark.parametrize("seed", range(20))
def test_all_steps_of_all_nodes_are_agreed_on_whatever_the_order(seed):
    rng = random.Random(seed)
    names = {rank: str(rank) for rank in range(3)}
    sizes = {rank: [rng.randint(1, 9) for _ in range(rng.randint(0, 12))] for rank in names}
    drop = seed % 2 == 1
    steps, found, over = EvenSteps(names), [], []
    left = {rank: list(rows) for rank, rows in sizes.items()}
    waiting = set(names)
    while waiting:
        rank = rng.choice(sorted(waiting))
        part, left[rank] = left[rank][:2], left[rank][2:]
        ended = not left[rank]
        if ended:
            waiting.discard(rank)
        for message in told(steps.handle(ahead(rank, [(1, rows) for rows in part], ended=ended, drop=drop)), 0):
            found += [rows for count, rows in message.runs for _ in range(count)]
            over.append(message.ended)
    count = (min if drop else max)(map(len, sizes.values()))
    assert found == [sum(rows[step] for rows in sizes.values() if step < len(rows)) for step in range(count)]
    assert over.count(True) == 1
