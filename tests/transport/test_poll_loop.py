"""The agent's poll loop: who can be read, or written to, is called back."""

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


def test_who_can_be_read_is_called_back_until_it_is_no_longer_watched(pair):
    frames, theirs = pair
    loop, heard = PollLoop(), []
    loop.watch(frames, lambda: heard.append("frames"))
    loop.turn(0)
    assert heard == []
    theirs.send(b"x")
    loop.turn(1000)
    assert heard == ["frames"]
    loop.unwatch(frames)
    loop.unwatch(frames)
    loop.turn(0)
    assert heard == ["frames"]
    assert not loop.is_watched(frames)


def test_who_can_be_written_to_is_called_back_only_while_that_is_wanted(pair):
    frames, _ = pair
    loop, called = PollLoop(), []
    loop.watch_writing(frames, wanted=True)  # nobody is to be called back
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
