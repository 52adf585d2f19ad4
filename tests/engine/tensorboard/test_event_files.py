"""Event files that are brought home: where they go, and what is no event file."""

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
    """A piece; the last of a file tells the ``whole``, of which it is all by default."""
    checksum = b"" if whole == b"" else hashlib.sha256(data if whole is None else whole).digest()
    return m.FilePiece(0, "events", transfer, name, offset, data, checksum)


@pytest.fixture
def told():
    return []


@pytest.fixture
def keeper(tmp_path, told):
    return EventFileReceiver(str(tmp_path / "there"), tmp_path / "home", told.append)


def test_a_folder_that_both_see_is_left_alone(keeper, tmp_path, told):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".probe").touch()
    assert keeper.handle(FOUND) == [SendTo(0, m.EventFilesWanted(limit_bytes=0))]
    keeper.handle(piece("a.tfevents", b"x"))
    assert keeper.folder == str(tmp_path / "there")
    assert not (tmp_path / "home").exists()
    assert told == []


def test_files_come_into_the_run_s_own_folder(keeper, tmp_path, told):
    assert keeper.handle(FOUND) == [SendTo(0, m.EventFilesWanted(limit_bytes=event_files.LIMIT_BYTES))]
    credit = SendTo(0, m.FileCredit("events", 4 + PIECE_COST))
    assert keeper.handle(piece("train/a.tfevents", b"one ", whole=b"")) == [credit]
    assert not (tmp_path / "home" / "train" / "a.tfevents").exists()
    credit = SendTo(0, m.FileCredit("events", 3 + PIECE_COST))
    kept = SendTo(0, m.FileKept("events", 1))
    assert keeper.handle(piece("train/a.tfevents", b"two", 4, whole=b"one two")) == [credit, kept]
    keeper.handle(m.EventFilesSent(rank=0))
    assert (tmp_path / "home" / "train" / "a.tfevents").read_bytes() == b"one two"
    assert keeper.folder == str(tmp_path / "home")
    assert told == [f"event files: 1 brought from the chief's host into {tmp_path / 'home'}"]


def test_a_chief_that_comes_near_after_a_restart_is_shown_there(keeper, tmp_path, told):
    keeper.handle(FOUND)
    keeper.handle(piece("a.tfevents", b"x"))
    keeper.handle(m.EventFilesSent(rank=0))
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".probe").touch()
    keeper.handle(FOUND)
    assert keeper.folder == str(tmp_path / "there")
    assert told[1:] == [
        f"event files: now in {tmp_path / 'there'}; those of the nodes before the restart are in {tmp_path / 'home'}"
    ]


def test_a_chief_that_goes_far_after_a_restart_is_shown_at_home(keeper, tmp_path, told):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / ".probe").touch()
    keeper.handle(FOUND)
    (tmp_path / "there" / ".probe").unlink()
    keeper.handle(FOUND)
    keeper.handle(piece("a.tfevents", b"x"))
    keeper.handle(m.EventFilesSent(rank=0))
    assert keeper.folder == str(tmp_path / "home")
    assert told[0].endswith(f"; those of the nodes before the restart are in {tmp_path / 'there'}")


def test_what_stays_there_is_said(keeper, tmp_path, told):
    keeper.handle(FOUND)
    keeper.handle(piece("a.tfevents", b"half", whole=b""))
    keeper.handle(m.EventFilesSent(rank=0, left_out=2, left_out_bytes=512_000_000))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert keeper.folder == str(tmp_path / "there")
    assert "2 of 512.0 MB stay there in" in told[0]
    assert "more than 64 MB" in told[0]


@pytest.mark.parametrize(
    "name", ["../a.tfevents", "/etc/a.tfevents", "a//b.tfevents", "x/./a.tfevents", "notes.txt", "", "a.tfevents/b"]
)
def test_what_is_no_event_file_is_dropped(keeper, tmp_path, name, caplog):
    keeper.handle(FOUND)
    keeper.handle(piece(name, b"x"))
    keeper.handle(m.EventFilesSent(rank=0))
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []
    assert "it was not to come" in caplog.text


def test_no_more_is_kept_than_was_asked_for(keeper, tmp_path, monkeypatch):
    monkeypatch.setattr(event_files, "LIMIT_BYTES", 10)
    keeper.handle(FOUND)
    keeper.handle(piece("a.tfevents", b"x" * 8))
    keeper.handle(piece("b.tfevents", b"x" * 8, transfer=2))
    keeper.handle(piece("c.tfevents", b"x", 5, transfer=3))
    keeper.handle(m.EventFilesSent(rank=0))
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["a.tfevents"]


def test_a_probe_s_name_leads_nowhere_else(keeper, tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / ".probe").touch()
    elsewhere = m.EventFilesFound(rank=0, probe="../.probe")
    assert keeper.handle(elsewhere) == [SendTo(0, m.EventFilesWanted(limit_bytes=event_files.LIMIT_BYTES))]


def test_a_folder_that_cannot_be_written_ends_it(keeper, tmp_path, caplog):
    (tmp_path / "home").write_text("a file")
    keeper.handle(FOUND)
    keeper.handle(piece("a.tfevents", b"x"))
    keeper.handle(m.EventFilesSent(rank=0))
    assert "cannot be kept in" in caplog.text
    assert keeper.folder == str(tmp_path / "there")
