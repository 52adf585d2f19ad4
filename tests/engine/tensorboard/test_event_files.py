"""Receiving event files: where they are written, and what is rejected."""

from __future__ import annotations

import hashlib

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.state.instructions import SendTo
from tfos_lab.engine.tensorboard import event_files
from tfos_lab.engine.tensorboard.event_files import EventFileReceiver
from tfos_lab.node.files.sender import PIECE_COST

FOUND = m.EventFilesFound(rank=0, probe=".probe")


def piece(name, data, offset=0, *, whole=None, transfer=1):
    """Return a piece; the last one has the checksum of the ``whole``, which it is by default."""
    checksum = b"" if whole == b"" else hashlib.sha256(data if whole is None else whole).digest()
    return m.FilePiece(0, "events", transfer, name, offset, data, checksum)


@pytest.fixture
def notices():
    return []


@pytest.fixture
def receiver(tmp_path, notices):
    return EventFileReceiver(str(tmp_path / "there"), tmp_path / "local", notices.append)


def test_a_folder_that_both_see_is_used_as_it_is(receiver, tmp_path, notices):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".probe").touch()
    assert receiver.handle(FOUND) == [SendTo(0, m.EventFilesWanted(limit_bytes=0))]
    receiver.handle(piece("a.tfevents", b"x"))
    assert receiver.folder == str(tmp_path / "there")
    assert not (tmp_path / "local").exists()
    assert notices == []


def test_files_are_received_into_the_run_folder(receiver, tmp_path, notices):
    assert receiver.handle(FOUND) == [SendTo(0, m.EventFilesWanted(limit_bytes=event_files.LIMIT_BYTES))]
    credit = SendTo(0, m.FileCredit("events", 4 + PIECE_COST))
    assert receiver.handle(piece("train/a.tfevents", b"one ", whole=b"")) == [credit]
    assert not (tmp_path / "local" / "train" / "a.tfevents").exists()
    credit = SendTo(0, m.FileCredit("events", 3 + PIECE_COST))
    kept = SendTo(0, m.FileKept("events", 1))
    assert receiver.handle(piece("train/a.tfevents", b"two", 4, whole=b"one two")) == [credit, kept]
    receiver.handle(m.EventFilesSent(rank=0))
    assert (tmp_path / "local" / "train" / "a.tfevents").read_bytes() == b"one two"
    assert receiver.folder == str(tmp_path / "local")
    assert notices == [f"event files: 1 brought from the chief's host into {tmp_path / 'local'}"]


def test_a_chief_on_a_shared_folder_after_a_restart_is_shown_there(receiver, tmp_path, notices):
    receiver.handle(FOUND)
    receiver.handle(piece("a.tfevents", b"x"))
    receiver.handle(m.EventFilesSent(rank=0))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".probe").touch()
    receiver.handle(FOUND)
    assert receiver.folder == str(tmp_path / "there")
    assert notices[1:] == [
        f"event files: now in {tmp_path / 'there'}; those of the nodes before the restart are in {tmp_path / 'local'}"
    ]


def test_a_chief_on_another_folder_after_a_restart_is_shown_in_the_run_folder(receiver, tmp_path, notices):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".probe").touch()
    receiver.handle(FOUND)
    (tmp_path / "there" / ".probe").unlink()
    receiver.handle(FOUND)
    receiver.handle(piece("a.tfevents", b"x"))
    receiver.handle(m.EventFilesSent(rank=0))
    assert receiver.folder == str(tmp_path / "local")
    assert notices[0].endswith(f"; those of the nodes before the restart are in {tmp_path / 'there'}")


def test_files_that_stay_on_the_chief_s_host_are_reported(receiver, tmp_path, notices):
    receiver.handle(FOUND)
    receiver.handle(piece("a.tfevents", b"half", whole=b""))
    receiver.handle(m.EventFilesSent(rank=0, left_out=2, left_out_bytes=512_000_000))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert receiver.folder == str(tmp_path / "there")
    assert "2 of 512.0 MB stay there in" in notices[0]
    assert "more than 64 MB" in notices[0]


@pytest.mark.parametrize(
    "name", ["../a.tfevents", "/etc/a.tfevents", "a//b.tfevents", "x/./a.tfevents", "notes.txt", "", "a.tfevents/b"]
)
def test_anything_but_event_files_is_dropped(receiver, tmp_path, name, caplog):
    receiver.handle(FOUND)
    receiver.handle(piece(name, b"x"))
    receiver.handle(m.EventFilesSent(rank=0))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
    assert "it was not to come" in caplog.text


def test_no_more_is_received_than_was_asked_for(receiver, tmp_path, monkeypatch):
    monkeypatch.setattr(event_files, "LIMIT_BYTES", 10)
    receiver.handle(FOUND)
    receiver.handle(piece("a.tfevents", b"x" * 8))
    receiver.handle(piece("b.tfevents", b"x" * 8, transfer=2))
    receiver.handle(piece("c.tfevents", b"x", 5, transfer=3))
    receiver.handle(m.EventFilesSent(rank=0))
    assert [path.name for path in (tmp_path / "local").iterdir()] == ["a.tfevents"]


def test_a_probe_s_name_cannot_leave_the_folder(receiver, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / ".probe").touch()
    elsewhere = m.EventFilesFound(rank=0, probe="../.probe")
    assert receiver.handle(elsewhere) == [SendTo(0, m.EventFilesWanted(limit_bytes=event_files.LIMIT_BYTES))]


def test_a_folder_that_cannot_be_written_ends_the_transfer(receiver, tmp_path, caplog):
    (tmp_path / "local").write_text("a file")
    receiver.handle(FOUND)
    receiver.handle(piece("a.tfevents", b"x"))
    receiver.handle(m.EventFilesSent(rank=0))
    assert "cannot be kept in" in caplog.text
    assert receiver.folder == str(tmp_path / "there")
