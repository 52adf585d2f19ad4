"""A node's log on its way: whole lines of both streams in order, on a disk that may be full, in turns with others."""

from __future__ import annotations

import os
import time

import pytest

from tfos_lab.node.logs.spool import LogSpool, Pipe


@pytest.fixture
def spool(tmp_path):
    spool = LogSpool(tmp_path / "log")
    yield spool
    spool.close()


@pytest.fixture
def pipe():
    pipe = Pipe("stdout")
    yield pipe
    pipe.close()


def contents(records):
    return [(record.stream, record.data) for record in records]


def test_records_come_back_in_order_with_stream_and_time(spool):
    before = time.time()
    spool.append("stdout", b"one")
    spool.append("stderr", b"two\xff")
    records = spool.read()
    assert contents(records) == [("stdout", b"one"), ("stderr", b"two\xff")]
    assert before <= records[0].time_s <= records[1].time_s <= time.time()
    assert not spool.has_unread
    assert spool.read() == []


def test_the_reader_may_lag_and_read_in_small_parts(spool):
    for number in range(100):
        spool.append("stdout", b"%03d" % number * 100)
    taken = []
    while spool.has_unread:
        part = spool.read(max_bytes=1000)
        assert sum(len(record.data) for record in part) < 1400
        taken += part
    assert [record.data[:3] for record in taken] == [b"%03d" % number for number in range(100)]


def test_a_record_that_does_not_fit_whole_is_lost_whole_and_told_once_at_the_end(small_disk):
    spool = LogSpool(small_disk / "log")
    spool.append("stdout", b"before")
    (small_disk / "others").write_bytes(bytes(2 << 20))
    spool.append("stdout", b"x" * (2 << 20))
    assert spool.lost_bytes == 2 << 20
    assert contents(spool.read()) == [("stdout", b"before")]
    (small_disk / "others").unlink()
    spool.append("stdout", b"after")
    for _ in range(2):
        spool.tell_lost()
    told = "… 2,097,152 bytes of this log are missing: the disk of the node's host was full …\n".encode()
    assert contents(spool.read()) == [("stdout", b"after"), ("stderr", told)]
    spool.close()
    assert list(small_disk.iterdir()) == []


def test_what_was_read_does_not_stay_on_the_disk(spool, tmp_path):
    for number in range(100):
        spool.append("stdout", b"%03d" % number * (1 << 19))
        assert len(spool.read(1 << 30)) == 1
    assert (tmp_path / "log").stat().st_size < 50 << 20


def test_a_line_that_comes_in_pieces_is_moved_as_one(spool, pipe):
    for piece in (b"step", b" ", b"1", b"\nstep", b" 2\r", b"step 3"):
        os.write(pipe.write_fd, piece)
        pipe.pump(spool)
        pipe.release(spool, after_s=60.0)
    assert contents(spool.read()) == [("stdout", b"step 1\n"), ("stdout", b"step 2\r")]
    assert pipe.holds
    pipe.release(spool)
    assert contents(spool.read()) == [("stdout", b"step 3")]
    assert not pipe.holds


def test_a_line_of_the_other_stream_comes_after_the_end_of_one_that_was_written_before(spool, pipe):
    errors = Pipe("stderr")
    os.write(pipe.write_fd, b"out ")
    pipe.pump(spool)
    pipe.release(spool)
    # All of this is written while the agent looks elsewhere; then it looks at the later pipe first.
    os.write(pipe.write_fd, b"1\nout 2")
    os.write(errors.write_fd, b"err 1\n")
    errors.pump(spool, beside=[pipe])
    assert b"".join(data for _, data in contents(spool.read())) == b"out 1\nerr 1\n"
    assert pipe.holds
    errors.close()


def test_a_line_without_end_does_not_hold_up_the_other_stream(spool, pipe):
    errors = Pipe("stderr")
    os.write(pipe.write_fd, b"Password: ")
    pipe.pump(spool)
    pipe.release(spool)
    os.write(errors.write_fd, b"err 1\n")
    errors.pump(spool, beside=[pipe])
    pipe.close_write_end()
    pipe.end_line(spool)
    assert contents(spool.read()) == [("stdout", b"Password: "), ("stderr", b"err 1\n")]
    assert pipe.open
    errors.close()


def test_a_pipe_closes_itself_when_its_last_writer_has_closed(spool, pipe):
    os.write(pipe.write_fd, b"last")
    pipe.close_write_end()
    pipe.pump(spool)
    assert not pipe.open
    assert contents(spool.read()) == [("stdout", b"last")]
    pipe.pump(spool)
    pipe.close()


def test_endless_output_does_not_block_the_agent(spool, pipe):
    os.set_blocking(pipe.write_fd, False)
    filled = os.write(pipe.write_fd, b"x" * (1 << 20))
    pipe.pump(spool, max_bytes=1)
    assert 0 < sum(len(record.data) for record in spool.read()) <= filled
