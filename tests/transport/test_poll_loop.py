"""The agent's poll loop: it calls back when a source can be read or written."""

from __future__ import annotations

import socket

import pytest

from tfos_lab.transport.frames import FrameSocket
from tfos_lab.transport.poll_loop import PollLoop


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    with FrameSocket(ours) as frames, theirs:
        yield frames, theirs


def test_a_readable_source_is_reported_until_it_is_unwatched(pair):
    frames, theirs = pair
    loop, called = PollLoop(), []
    loop.watch(frames, lambda: called.append("frames"))
    loop.turn(0)
    assert called == []
    theirs.send(b"x")
    loop.turn(1000)
    assert called == ["frames"]
    loop.unwatch(frames)
    loop.unwatch(frames)
    loop.turn(0)
    assert called == ["frames"]
    assert not loop.is_watched(frames)


def test_a_writable_source_is_reported_only_while_that_is_wanted(pair):
    frames, _ = pair
    loop, called = PollLoop(), []
    loop.watch_writing(frames, wanted=True)  # not watched: ignored
    loop.turn(0)
    loop.watch(frames, lambda: called.append(1))
    loop.watch_writing(frames, wanted=True)
    loop.turn(1000)
    assert called == [1]
    loop.watch_writing(frames, wanted=False)
    loop.turn(0)
    assert called == [1]


def test_a_callback_may_end_another_that_is_ready_in_the_same_turn(pair):
    frames, theirs = pair
    loop, called = PollLoop(), []
    loop.watch(frames, lambda: (called.append(1), loop.unwatch(theirs.fileno())))
    loop.watch(theirs.fileno(), lambda: (called.append(2), loop.unwatch(frames)))
    theirs.send(b"x")
    frames.send(b"x")
    loop.turn(1000)
    assert len(called) == 1
