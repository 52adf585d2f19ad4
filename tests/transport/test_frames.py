"""Frames over unix sockets: whole, in order, with their file descriptors."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from tfos_lab.transport.frames import ConnectionClosed, FrameSocket, FrameTooLarge, frame_pair


@pytest.fixture
def pair():
    ours, theirs = frame_pair()
    other = FrameSocket(theirs)
    yield ours, other
    ours.close()
    other.close()


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    for fd in (reading, writing):
        os.close(fd)


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_frames_arrive_whole_and_in_order(pair):
    ours, theirs = pair
    for data in (b"one", b"", b"three" * 1000):
        ours.send(data)
    assert [theirs.receive().data for _ in range(3)] == [b"one", b"", b"three" * 1000]


def test_frames_that_arrive_together_are_all_available(pair):
    ours, theirs = pair
    for number in range(5):
        ours.send(bytes([number]))
    assert [data for data, _ in theirs.available()] == [bytes([number]) for number in range(5)]


def test_a_frame_that_arrives_in_pieces_is_available_after_its_last_piece():
    raw, theirs = socket.socketpair()
    frames = FrameSocket(theirs)
    whole = struct.pack("!I", 6) + b"pieces"
    for piece in (whole[:2], whole[2:7], whole[7:-1]):
        raw.sendall(piece)
        assert frames.available() == []
    raw.sendall(whole[-1:] + struct.pack("!I", 4) + b"ne")
    assert frames.available() == [(b"pieces", [])]
    raw.sendall(b"xt")
    assert frames.available() == [(b"next", [])]
    raw.close()
    frames.close()


def test_a_frame_larger_than_the_socket_s_buffer_arrives(pair):
    ours, theirs = pair
    data = os.urandom(8 << 20)
    sender = threading.Thread(target=ours.send, args=(data,))
    sender.start()
    assert theirs.receive() == (data, [])
    sender.join(60)


def test_descriptors_of_a_frame_are_not_held_while_its_rest_is_on_its_way(pair, pipe):
    """A fork server would give them to the process of another client: its port was in use, its output never ended."""
    ours, theirs = pair
    data = os.urandom(8 << 20)
    before = open_descriptors()
    sender = threading.Thread(target=ours.send, args=(data, [pipe[1]]))
    sender.start()
    assert theirs.available(5.0) == []
    assert open_descriptors() == before
    frame = theirs.receive()
    sender.join(60)
    assert (frame.data, len(frame.fds)) == (data, 1)
    os.close(frame.fds[0])


def test_descriptors_belong_to_the_frame_that_they_were_sent_with(pair, pipe):
    ours, theirs = pair
    ours.send(b"nothing")
    ours.send(b"take this", [pipe[1]])
    ours.send(b"and nothing")
    frames = [*theirs.available(), *theirs.available()]
    assert [(frame.data, len(frame.fds)) for frame in frames] == [
        (b"nothing", 0),
        (b"take this", 1),
        (b"and nothing", 0),
    ]
    os.close(frames[1].fds[0])


def test_descriptors_that_nobody_took_are_closed(pair, pipe):
    ours, theirs = pair
    before = open_descriptors()
    ours.send(b"nothing")
    ours.send(b"take this", [pipe[1]])
    theirs.receive()
    theirs.close()
    assert open_descriptors() == before - 1


def test_descriptors_without_a_frame_are_closed(pair, pipe):
    _, theirs = pair
    before = open_descriptors()
    with socket.socket(fileno=os.dup(pair[0].fileno())) as raw:
        socket.send_fds(raw, [b"\0"], [pipe[1]])
    assert theirs.available() == []
    assert open_descriptors() == before


def test_descriptors_arrive_with_their_frame(pair, pipe):
    ours, theirs = pair
    reading, writing = pipe
    ours.send(b"take this", [writing])
    ours.send(b"and nothing")
    data, (copy,) = theirs.receive()
    assert data == b"take this"
    os.write(copy, b"through the copy")
    assert os.read(reading, 100) == b"through the copy"
    os.close(copy)
    assert theirs.receive() == (b"and nothing", [])


def test_several_descriptors_keep_their_order(pair):
    ours, theirs = pair
    pipes = [os.pipe() for _ in range(3)]
    ours.send(b"three", [writing for _, writing in pipes])
    _, copies = theirs.receive()
    for number, copy in enumerate(copies):
        os.write(copy, b"%d" % number)
    assert [os.read(reading, 10) for reading, _ in pipes] == [b"0", b"1", b"2"]
    for fd in [*copies, *(fd for ends in pipes for fd in ends)]:
        os.close(fd)


def test_reading_and_writing_raise_when_the_other_end_is_closed(pair):
    ours, theirs = pair
    ours.send(b"shutdown")
    ours.close()
    assert theirs.receive() == (b"shutdown", [])
    with pytest.raises(ConnectionClosed):
        theirs.receive()
    with pytest.raises(ConnectionClosed):
        theirs.send(b"anybody there?")


def test_an_incomplete_frame_is_not_returned():
    raw, theirs = socket.socketpair()
    frames = FrameSocket(theirs)
    raw.sendall(struct.pack("!I", 100) + b"half")
    raw.close()
    with pytest.raises(ConnectionClosed):
        frames.receive()
    frames.close()


def test_available_waits_only_when_it_is_asked_to(pair):
    ours, theirs = pair
    assert ours.available() == []
    later = threading.Timer(0.05, theirs.send, [b"here"])
    later.start()
    assert ours.available(wait_s=60.0) == [(b"here", [])]
    later.join()


def test_a_frame_that_is_too_large_is_not_waited_for():
    raw, theirs = socket.socketpair()
    frames = FrameSocket(theirs, max_bytes=1000)
    raw.sendall(struct.pack("!I", 1000) + bytes(1000))
    assert frames.receive().data == bytes(1000)
    raw.sendall(struct.pack("!I", 1001))
    with pytest.raises(FrameTooLarge, match="a frame of 1,001 bytes, and at most 1,000 are taken"):
        frames.receive()
    frames.close()
    raw.close()
