"""What no node of ours sends: finds it in a message that is well-formed, before the state machines see it.

Decoding has checked the types. Here it is checked that numbers can be true, that feeds exist and are the sender's, and
that words are known. Pure functions.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import fields

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.state.driver_feed import DriverFeed
from tfos_lab.driver.state.feed_state import FeedState

# Bytes and rows stay far below; JavaScript counts up to here.
_MOST = 2**53
# Steps that one message may have ahead.
_MOST_STEPS = 1 << 20
_STATES: frozenset[str] = frozenset({NodeState.IMPORTING, NodeState.STARTING, NodeState.RUNNING, NodeState.SERVING})
_ENDS = frozenset({"returned", "raised", "exited", "stopped"})
_BEFORE_START = frozenset({RunState.LAUNCHING, RunState.RESERVING})
_PNG = b"\x89PNG\r\n\x1a\n"
_STREAMS = frozenset({"stdout", "stderr"})

_OWN_OR_TEXT = {"step", "where", "last_sign"}  # a step is the user's own
_numbers_of_activity = operator.attrgetter(*({one.name for one in fields(m.NodeActivity)} - _OWN_OR_TEXT))

_OfFeed = m.FeedReady | m.AttemptStored | m.FilesFound | m.FeedRead


class WrongMessage(Exception):
    """A node has sent what no node sends; the text says what."""


def check(  # noqa: C901 - one case for each kind
    message: m.FromAgent, state: RunState, feeds: FeedState
) -> None:
    """Raise `WrongMessage` if no node sends this in such a state of the cluster; its rank is the sender's own."""
    _check_numbers(message)
    if state in _BEFORE_START:
        _check_early(message)
    match message:
        case m.Progressed(state=word):
            _require(word in _STATES, message, f"the state {word!r}")
        case m.Ended(outcome=outcome) | m.CellEnded(outcome=outcome):
            _require(outcome.kind in _ENDS, message, f"the end {outcome.kind!r}")
        case m.Logs(records=records):
            _require(all(r.stream in _STREAMS and 0 <= r.time_s < _MOST for r in records), message, "a false record")
        case m.FilesListed(files=files):
            _require(_are_counts(file.size_bytes for file in files), message, "a false size")
        case m.Shown(content=content):
            _check_shown(message, content)
        case m.DatasetOpened(batch_size=batch_size):
            _require(batch_size > 0, message, f"a batch size of {batch_size}")
        case m.StepsAhead(runs=runs):
            steps = [steps for steps, _ in runs]
            _require(_are_counts(steps) and sum(steps) <= _MOST_STEPS, message, "a false number of steps")
            _require(_are_counts(rows for _, rows in runs), message, "a false number of rows")
        case m.RowsTaken(feeds=taken):
            _require(all(feeds.feed(number) is not None for number in taken), message, "a feed that does not exist")
            _require(_are_counts(n for pair in taken.values() for n in pair), message, "a false number of rows")
        case m.InferenceReady(rank=rank):
            _require(feeds.has_asked_to_answer(rank), message, "without having been asked")
        case m.FeedReady() | m.AttemptStored() | m.FilesFound() | m.FeedRead():
            _check_feed(message, feeds)


def _check_early(message: m.FromAgent) -> None:
    match message:
        case m.Progressed(state=NodeState.RUNNING | NodeState.SERVING) | m.Ended(outcome=m.Outcome(kind="returned")):
            raise _wrong(message, "before the node was started")


def _check_shown(message: m.Shown, content: m.Picture | m.Table | m.Matrix | m.Unshown) -> None:
    size = len(msgspec.msgpack.encode(content))
    _require(size <= m.SHOWN_BYTES, message, f"{size:,} bytes")
    match content:
        case m.Picture(png=png):
            _require(png.startswith(_PNG), message, "a picture that is no PNG")
        case m.Table(columns=columns, rows=rows):
            _require(all(len(row) == len(columns) for row in rows), message, "a row without some cells")
        case m.Matrix(labels=labels, counts=counts):
            is_square = len(counts) == len(labels) and all(len(row) == len(labels) for row in counts)
            _require(is_square, message, "a matrix that is not square")


def _check_feed(message: _OfFeed, feeds: FeedState) -> None:
    feed = feeds.feed(message.feed)
    if feed is None:
        raise _wrong(message, f"feed {message.feed} does not exist")
    _require(message.rank in feed.names, message, f"feed {message.feed} is not the node's")
    match message:
        case m.AttemptStored():
            _check_attempt(message, feed)
        case m.FilesFound(blocks=blocks):
            counts = (n for found in blocks.values() for block in found for n in block)
            _require(_are_counts(blocks) and _are_counts(counts), message, "a false number of rows")


def _check_attempt(message: m.AttemptStored, feed: DriverFeed) -> None:
    _require(_are_counts([message.partition, message.size_bytes, message.leftover]), message, "a false number")
    _require(message.leftover < len(feed.names), message, f"{message.leftover} leftover rows")
    _require(_are_counts([message.rows]), message, "a false number of rows")


def _check_numbers(message: m.FromAgent) -> None:
    """Check the numbers that stand in the message itself."""
    for value in _numbers_of(message):
        # Also false of a float that is no number.
        if isinstance(value, int | float) and not -1 <= value < _MOST:
            raise _wrong(message, f"the number {value}")


def _numbers_of(message: m.FromAgent) -> tuple[object, ...]:
    match message:
        case m.Reported() | m.Shown():
            return (message.time_s,)  # a step is the user's own
        case m.Activity(seen=seen):
            return _numbers_of_activity(seen)
        case _:
            return msgspec.structs.astuple(message)


def _are_counts(numbers: Iterable[int]) -> bool:
    return all(0 <= number < _MOST for number in numbers)


def _require(holds: bool, message: m.FromAgent, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise _wrong(message, what)


def _wrong(message: m.FromAgent, what: str) -> WrongMessage:
    return WrongMessage(f"{type(message).__name__} ({what})")
