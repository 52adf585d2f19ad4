"""The driver's copy of the logs: bytes whole in files within their limits, text without noise for the view."""

from __future__ import annotations

import os
import re
import stat
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


# ---- a log that is not whole ----------------------------------------------------------------------------------------


LINES = [f"line {number:06d}\n".encode() for number in range(20_000)]


def write_lines(folder, **options):
    """Write many lines; return the file, and what is noted."""
    notes = []
    logs = LogWriter(RunDir(folder), notes.append, **options)
    for line in LINES:
        logs.write("worker:0", [record(line)])
    logs.close()
    return logs.path("worker:0"), notes


def test_a_limit_leaves_out_the_middle_and_says_how_much(tmp_path):
    path, [note] = write_lines(tmp_path, limit_bytes=50_000)
    assert "(log_limit_bytes=50,000 is reached): nodes go on, files say how much is missing" in note
    begin, missing, end = re.split("\n… ([\\d,]+) bytes are missing here …\n".encode(), path.read_bytes())
    whole = b"".join(LINES)
    assert whole.startswith(begin)
    assert len(begin) == 50_000 // len(LINES[0]) * len(LINES[0])
    assert whole.endswith(end)
    assert len(end) >= 1 << 16
    assert len(begin) + int(missing.replace(b",", b"")) + len(end) == len(whole)


def test_a_log_within_its_limit_is_whole(tmp_path):
    path, notes = write_lines(tmp_path, limit_bytes=1 << 20)
    assert (path.read_bytes(), notes) == (b"".join(LINES), [])


def test_part_of_the_disk_stays_free(tmp_path, monkeypatch):
    left = 5_000_000  # of a small disk, 5 %
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(total=100_000_000, free=left - 1))
    notes = []
    logs = LogWriter(RunDir(tmp_path), notes.append)
    for _ in range(40):
        logs.write("worker:0", [record(b"x" * 999_999 + b"\n")])
    logs.close()
    [note] = notes
    assert "(the disk is nearly full)" in note
    path = logs.path("worker:0")
    assert path.stat().st_size < 20_000_000
    assert b" bytes are missing here" in path.read_bytes()


# ---- lines that mislead ----------------------------------------------------------------------------------------------


SHUFFLE = (
    "/x/keras/src/trainers/epoch_iterator.py:74: UserWarning: `shuffle=True` was passed, but will be ignored since the "
    "data `x` was provided as a tf.data.Dataset. The Dataset is expected to already be shuffled.\n"
    "  self.data_adapter = data_adapters.get_data_adapter(\n"
)
CUDA = "E0000 00:00:1795319214.6 17102 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: {}\n"
NO_GPU = CUDA.format("Failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected")
WRONG_DRIVER = CUDA.format(
    "Failed call to cuInit: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver"
)
GENERATOR = (
    "W0000 00:00 17 dataset.cc:997] Input of GeneratorDatasetOp::Dataset will not be optimized because the dataset "
    "does not implement the AsGraphDefInternal() method needed.\n"
)
STOPPED = (
    "W0000 00:00:1795318248.977981    6158 preemption_notifier.cc:90] SIGTERM caught at "
    "2026-11-22T03:30:48.977979253+00:00\n"
)


def shown(folder, *pieces):
    """Return what is shown of text that arrives in pieces; the file has all of it."""
    logs = LogWriter(RunDir(folder), pytest.fail)
    seen = "".join(event.text for piece in pieces for event in logs.write("chief:0", [record(piece.encode())]))
    assert logs.read("chief:0") == "".join(pieces)
    logs.close()
    logs.path("chief:0").unlink(missing_ok=True)
    return seen


@pytest.mark.parametrize("noise", [SHUFFLE, NO_GPU, GENERATOR, STOPPED])
def test_misleading_lines_are_left_out_and_their_neighbours_are_not(tmp_path, noise):
    assert shown(tmp_path, f"Epoch 1/2\n{noise}  two spaces\n") == "Epoch 1/2\n  two spaces\n"
    assert shown(tmp_path, "Epoch 1/2\n", *noise.splitlines(keepends=True), "  mine\n") == "Epoch 1/2\n  mine\n"


@pytest.mark.parametrize(
    "line",
    [WRONG_DRIVER, "a.py:3: UserWarning: mine\n  f()\n", "cuInit is fine\n", "I said `shuffle=True` was passed\n"],
)
def test_lines_that_look_alike_are_shown(tmp_path, line):
    assert shown(tmp_path, line) == line


@given(st.lists(st.sampled_from(["1/7\r", "Epoch\n", "\n", "no end", "é "]), max_size=8), st.data())
def test_other_text_that_arrives_in_pieces_is_shown_whole(tmp_path_factory, parts, data):
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(tmp_path_factory.mktemp("logs"), *pieces) == text
