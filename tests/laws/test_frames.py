"""Frames over unix sockets, between agents, children and fork servers: whole, in order, with their file descriptors."""

from __future__ import annotations

import os
import socket
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.random_data import fuzzed
from tfos_lab.core.frames import ConnectionClosed, FrameSocket, FrameTooLarge, frame_pair

FRAMES = st.lists(st.tuples(st.binary(max_size=200), st.integers(0, 3)), max_size=12)


@pytest.fixture
def pair():
    ours, theirs = frame_pair()
    with ours, FrameSocket(theirs) as other:
        yield ours, other


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def file_of(descriptor):
    return os.fstat(descriptor).st_ino


@fuzzed(60)
@given(FRAMES, st.booleans())
def test_frames_arrive_whole_and_in_order_each_with_the_descriptors_that_it_was_sent_with(frames, waits):
    before = open_descriptors()
    ours, raw = frame_pair()
    with ours, FrameSocket(raw) as theirs:
        sent, received = [], []
        for data, count in frames:
            files = [os.memfd_create("sent") for _ in range(count)]
            ours.send(data, files)
            sent.append((data, [file_of(file) for file in files]))
            for file in files:
                os.close(file)
        while len(received) < len(sent):
            for data, files in [theirs.receive()] if waits else theirs.available():
                received.append((data, [file_of(file) for file in files]))
                for file in files:
                    os.close(file)
    assert received == sent
    assert open_descriptors() == before


@fuzzed(60)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=5), st.data())
def test_a_frame_is_available_once_its_last_byte_has_come(frames, data):
    raw, other = socket.socketpair()
    with raw, FrameSocket(other) as theirs:
        wire = b"".join(struct.pack("!I", len(frame)) + frame for frame in frames)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=6)))
        received = []
        for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
            raw.sendall(wire[start:end])
            received += [frame.data for frame in theirs.available()]
            whole = [struct.pack("!I", len(frame)) + frame for frame in received]
            assert wire[:end].startswith(b"".join(whole))
        assert received == frames


def test_descriptors_of_a_frame_are_not_held_while_its_rest_is_on_its_way(pair):
    """A fork server would give them to the process of another client: its port was in use, its output never ended."""
    ours, theirs = pair
    data = os.urandom(8 << 20)
    reading, writing = os.pipe()
    before = open_descriptors()
    sender = threading.Thread(target=ours.send, args=(data, [writing]))
    sender.start()
    assert theirs.available(60.0) == []
    assert open_descriptors() == before
    frame = theirs.receive()
    sender.join()
    assert frame.data == data
    os.write(frame.fds[0], b"through the copy")
    assert os.read(reading, 100) == b"through the copy"
    for fd in (reading, writing, *frame.fds):
        os.close(fd)


def test_descriptors_that_nobody_takes_are_closed(pair):
    ours, theirs = pair
    before = open_descriptors()
    reading, writing = os.pipe()
    ours.send(b"nothing")
    ours.send(b"take this", [writing])
    theirs.receive()
    with socket.socket(fileno=os.dup(theirs.fileno())) as raw:
        socket.send_fds(raw, [b"\0"], [writing])  # a byte of no frame
    assert ours.available(60.0) == []
    theirs.close()
    for fd in (reading, writing):
        os.close(fd)
    assert open_descriptors() == before - 1


def test_reading_and_writing_raise_when_the_other_end_is_closed_whatever_has_come_before(pair):
    ours, theirs = pair
    ours.send(b"shutdown")
    with socket.socket(fileno=os.dup(ours.fileno())) as raw:
        raw.sendall(struct.pack("!I", 100) + b"half")
    ours.close()
    assert theirs.receive() == (b"shutdown", [])
    with pytest.raises(ConnectionClosed):
        theirs.receive()
    with pytest.raises(ConnectionClosed):
        theirs.send(b"anybody there?")


def test_a_frame_that_is_too_large_is_not_waited_for():
    raw, other = socket.socketpair()
    with raw, FrameSocket(other, max_bytes=1000) as frames:
        raw.sendall(struct.pack("!I", 1000) + bytes(1000))
        assert frames.receive().data == bytes(1000)
        raw.sendall(struct.pack("!I", 1001))
        with pytest.raises(FrameTooLarge, match="a frame of 1,001 bytes, and at most 1,000 are taken"):
            frames.receive()
