"""The driver's copy of the logs: bytes whole in files, text on the bus."""

from __future__ import annotations

import os
import stat

import pytest

from tfos_lab.engine.logs.writer import LogWriter
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.messages import LogRecord


def record(data, stream="stdout", time_s=1.0):
    return LogRecord(time_s, stream, data)


def test_bytes_are_stored_unchanged(tmp_path):
    writer = LogWriter(RunDir(tmp_path), pytest.fail)
    rubbish = bytes(range(256))
    writer.write("worker:1", [record(rubbish), record(b"after\n", "stderr")])
    writer.close()
    assert (tmp_path / "worker-1.log").read_bytes() == rubbish + b"after\n"
    assert writer.path("worker:1") == tmp_path / "worker-1.log"


def test_only_the_user_can_read_them(tmp_path):
    writer = LogWriter(RunDir(tmp_path), pytest.fail)
    before = os.umask(0)
    try:
        writer.write("worker:1", [record(b"secret")])
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "worker-1.log").stat().st_mode) == 0o600
    writer.close()


def test_a_character_that_is_split_across_batches_arrives_whole(tmp_path):
    writer = LogWriter(RunDir(tmp_path), pytest.fail)
    first, second = "naïve ✓".encode()[:-1], "naïve ✓".encode()[-1:]
    texts = [event.text for data in (first, second) for event in writer.write("chief:0", [record(data)])]
    assert "".join(texts) == "naïve ✓"
    writer.close()


def test_records_of_one_stream_become_one_event_with_the_time_of_the_first(tmp_path):
    writer = LogWriter(RunDir(tmp_path), pytest.fail)
    records = [
        record(b"a", time_s=1.0),
        record(b"b", time_s=2.0),
        record(b"c", "stderr", 3.0),
        record(b"d", time_s=4.0),
    ]
    events = writer.write("chief:0", records)
    assert [(event.time_s, event.stream, event.text) for event in events] == [
        (1.0, "stdout", "ab"),
        (3.0, "stderr", "c"),
        (4.0, "stdout", "d"),
    ]
    writer.close()


def test_a_log_can_be_read_whole_or_by_its_last_lines(tmp_path):
    writer = LogWriter(RunDir(tmp_path), pytest.fail)
    writer.write("chief:0", [record(b"one\ntwo\nthree\n")])
    assert writer.read("chief:0") == "one\ntwo\nthree\n"
    assert writer.read("chief:0", tail=2) == "two\nthree"
    assert writer.read("chief:0", tail=0) == ""
    assert writer.read("worker:0") == ""
    writer.close()
    writer.close()


def test_a_full_disk_costs_log_and_the_file_says_how_much_is_missing(tmp_path):
    notes = []
    writer = LogWriter(RunDir(tmp_path), notes.append)
    path = writer.path("worker:1")
    path.symlink_to("/dev/full")
    for text in (b"lost\n", b"too\n"):
        [event] = writer.write("worker:1", [record(text)])
        assert event.text == text.decode()
    path.unlink()
    writer.close()
    writer.write("worker:1", [record(b"kept\n")])
    writer.write("worker:1", [record(b"also\n")])
    writer.close()
    assert path.read_text() == "\n… 9 bytes are missing here …\nkept\nalso\n"
    assert notes == [
        f"logs cannot be written to {path} (No space left on device): nodes go on, files say how much is missing"
    ]


def test_a_removed_folder_ends_nothing(tmp_path):
    notes = []
    writer = LogWriter(RunDir(tmp_path / "gone"), notes.append)
    for node in ("chief:0", "worker:0"):
        [event] = writer.write(node, [record(b"said\n")])
        assert event.text == "said\n"
        assert writer.read(node) == ""
    assert len(notes) == 1
