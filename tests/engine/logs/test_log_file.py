"""A node's log file: whole, within its limit and what the disk has, and with its end where it is not whole."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tfos_lab.engine.logs import log_file, writer
from tfos_lab.engine.logs.log_file import LogFile
from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.run_dir import RunDir


class Usage(NamedTuple):
    total: int
    used: int
    free: int


LINES = [f"line {number:06d}\n".encode() for number in range(20_000)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "worker-0.log"


def write_lines(file):
    reasons = [file.write(line) for line in LINES]
    file.close()
    file.close()
    return reasons


def assert_has_begin_and_end(path, begin_bytes):
    begin, missing, end = re.split("\n… ([\\d,]+) bytes are missing here …\n".encode(), path.read_bytes())
    whole = b"".join(LINES)
    assert whole.startswith(begin)
    assert len(begin) == begin_bytes // len(LINES[0]) * len(LINES[0])
    assert whole.endswith(end)
    assert len(end) >= 1 << 16
    assert len(begin) + int(missing.replace(b",", b"")) + len(end) == len(whole)


def test_a_limit_leaves_out_the_middle_and_says_how_much(path):
    reasons = write_lines(LogFile(path, 50_000))
    assert set(reasons) == {"", "log_limit_bytes=50,000 is reached"}
    assert_has_begin_and_end(path, 50_000)


def test_a_log_within_its_limit_is_whole(path):
    assert set(write_lines(LogFile(path, 1 << 20))) == {""}
    assert path.read_bytes() == b"".join(LINES)


@pytest.mark.parametrize(("total", "left"), [(100_000_000, 5_000_000), (1 << 40, 1 << 30)], ids=["small", "large"])
def test_part_of_the_disk_stays_free(path, monkeypatch, total, left):
    monkeypatch.setattr(log_file, "_LOOK_BYTES", 1000)
    free = left + 1000 + 100_000
    monkeypatch.setattr(
        log_file.shutil,
        "disk_usage",
        lambda _folder: Usage(total, 0, free - (path.stat().st_size if path.exists() else 0)),
    )
    assert set(write_lines(LogFile(path))) == {"", "the disk is nearly full"}
    assert 100_000 <= path.stat().st_size - (1 << 16) <= 103_000


def test_a_note_says_once_that_a_log_is_not_whole(tmp_path):
    notes = []
    logs = LogWriter(RunDir(tmp_path), notes.append, limit_bytes=10)
    for _ in range(3):
        logs.write("worker:0", [log_file_record(b"0123456789")])
    logs.close()
    assert (tmp_path / "worker-0.log").read_text() == "0123456789" * 3
    [note] = notes
    assert "(log_limit_bytes=10 is reached): nodes go on, files say how much is missing" in note


def log_file_record(data):
    from tfos_lab.messages import LogRecord

    return LogRecord(1.0, "stdout", data)


def test_of_a_log_that_memory_may_not_hold_the_end_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "_MOST_BYTES", 100)
    logs = LogWriter(RunDir(tmp_path), pytest.fail)
    logs.write("chief:0", [log_file_record(b"a" * 500 + b"b" * 100)])
    path = logs.path("chief:0")
    assert logs.read("chief:0") == f"… 500 bytes before this are in {path} …\n{'b' * 100}"
    logs.close()
