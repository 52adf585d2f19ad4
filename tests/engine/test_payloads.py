"""Large payloads are sent piece by piece: few are on their way at a time, whatever the number of nodes."""

from __future__ import annotations

import hashlib
import os

import pytest

from tests.node.conftest import start_for
from tfos_lab import messages as m
from tfos_lab.engine.payloads import _LOST_S, _MAX_PIECES, INLINE_BYTES, PayloadSender
from tfos_lab.engine.state.instructions import SendTo
from tfos_lab.messages.payload import PIECE_BYTES

PAYLOAD = os.urandom(3 * PIECE_BYTES + 10)
START = start_for(print)


@pytest.fixture
def sender():
    return PayloadSender(PAYLOAD)


def wanted(rank, offset, taken=0):
    return m.PayloadWanted(rank=rank, offset=offset, taken=taken)


def ranks(instructions):
    return [instruction.rank for instruction in instructions]


def test_a_small_payload_is_within_the_start_message():
    assert PayloadSender(b"x" * INLINE_BYTES).add_to(START).payload == b"x" * INLINE_BYTES


def test_a_large_payload_is_named_by_its_size_and_digest(sender):
    start = sender.add_to(START)
    assert (start.payload_bytes, start.payload_digest) == (len(PAYLOAD), hashlib.sha256(PAYLOAD).hexdigest())
    assert len(m.encode(start)) < 10_000


def test_pieces_make_up_the_whole(sender):
    offsets = range(0, len(PAYLOAD), PIECE_BYTES)
    answers = [answer for offset in offsets for answer in sender.handle(wanted(7, offset, offset), 0.0)]
    assert all(isinstance(answer, SendTo) and answer.rank == 7 for answer in answers)
    assert b"".join(answer.message.data for answer in answers) == PAYLOAD


@pytest.mark.parametrize("offset", [-1, len(PAYLOAD), 1 << 60])
def test_what_is_not_in_the_payload_is_not_answered(sender, offset):
    assert sender.handle(wanted(0, offset), 0.0) == []


def test_of_many_nodes_most_wait_until_pieces_have_arrived(sender):
    answered = [rank for rank in range(1000) if sender.handle(wanted(rank, 0), 0.0)]
    assert answered == list(range(_MAX_PIECES))
    assert ranks(sender.handle(wanted(0, PIECE_BYTES, PIECE_BYTES), 0.1)) == [_MAX_PIECES]
    # A node that has all of it asks for nothing, and makes room for another.
    assert ranks(sender.handle(wanted(1, len(PAYLOAD), len(PAYLOAD)), 0.1)) == [_MAX_PIECES + 1]


def test_all_of_many_nodes_get_all_of_it(sender):
    nodes = 3 * _MAX_PIECES
    taken = dict.fromkeys(range(nodes), 0)
    under_way = [answer for rank in range(nodes) for answer in sender.handle(wanted(rank, 0), 0.0)]
    while under_way:
        answer = under_way.pop(0)
        taken[answer.rank] += len(answer.message.data)
        under_way += sender.handle(wanted(answer.rank, answer.message.offset + PIECE_BYTES, taken[answer.rank]), 0.0)
        assert len(under_way) <= _MAX_PIECES
    assert set(taken.values()) == {len(PAYLOAD)}


def test_nodes_that_are_gone_do_not_keep_others_waiting(sender):
    for rank in range(_MAX_PIECES):
        sender.handle(wanted(rank, 0), 0.0)
    assert sender.handle(wanted(500, 0), 1.0) == []
    assert ranks(sender.handle(wanted(501, 0), _LOST_S + 1.0)) == [500, 501]
