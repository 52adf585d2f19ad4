"""What no node of ours sends: finds it in a message that is well-formed, before the state machines see it.

Decoding has checked what the types of `tfos_lab.core.messages` say. Here is what else can be told: whether it is too
early, whether feeds exist and are the sender's, whether what is shown is well-formed. Pure functions.
"""

from __future__ import annotations

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.states import NodeState, RunState
from tfos_lab.driver.state.feed_state import FeedState

# Steps that one message may have ahead.
_MOST_STEPS = 1 << 20
_STATES = frozenset({NodeState.IMPORTING, NodeState.STARTING, NodeState.RUNNING, NodeState.SERVING})
_BEFORE_START = frozenset({RunState.LAUNCHING, RunState.RESERVING})
_PNG = b"\x89PNG\r\n\x1a\n"
_OfFeed = m.FeedReady | m.AttemptStored | m.FilesFound | m.FeedRead


class WrongMessage(Exception):
    """A node has sent what no node sends; the text says what."""


def check(message: m.FromAgent, state: RunState, feeds: FeedState) -> None:
    """Raise `WrongMessage` if no node sends this in such a state of the cluster; its rank is the sender's own."""
    is_early = state in _BEFORE_START
    match message:
        case (
            m.Progressed(state=NodeState.RUNNING | NodeState.SERVING) | m.Ended(outcome=m.Outcome(kind="returned"))
        ) if is_early:
            raise _wrong(message, "before the node was started")
        case m.Progressed(state=node_state):
            _require(node_state in _STATES, message, f"the state {node_state}")
        case m.Shown(content=content):
            _check_shown(message, content)
        case m.StepsAhead(runs=runs):
            _require(sum(steps for steps, _ in runs) <= _MOST_STEPS, message, "a false number of steps")
        case m.RowsTaken(feeds=taken):
            _require(all(feeds.feed(number) is not None for number in taken), message, "a feed that does not exist")
        case m.InferenceReady(rank=rank):
            _require(feeds.has_asked_to_answer(rank), message, "without having been asked")
        case m.FeedReady() | m.AttemptStored() | m.FilesFound() | m.FeedRead():
            _check_feed(message, feeds)


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
    if isinstance(message, m.AttemptStored):
        _require(message.leftover < len(feed.names), message, f"{message.leftover} leftover rows")


def _require(holds: bool, message: m.FromAgent, what: str) -> None:  # noqa: FBT001
    if not holds:
        raise _wrong(message, what)


def _wrong(message: m.FromAgent, what: str) -> WrongMessage:
    return WrongMessage(f"{type(message).__name__} ({what})")
