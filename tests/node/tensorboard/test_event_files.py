"""The chief's event files: which are offered, how they are sent, and when that ends."""

from __future__ import annotations

import os
import time

import pytest

from tfos_lab import messages as m
from tfos_lab.node.files import sender
from tfos_lab.node.tensorboard import event_files
from tfos_lab.node.tensorboard.event_files import EventFileSender


class Rig:
    def __init__(self, folder, age_s=0.0):
        self.sent = []
        self.files = EventFileSender(3, self.sent.append)
        self.files.set_folder(str(folder), age_s)

    def pieces(self):
        return [message for message in self.sent if isinstance(message, m.FilePiece)]

    def whole(self, name):
        return b"".join(piece.data for piece in self.pieces() if piece.name == name)

    def settle(self):
        """Send everything to a driver that keeps it. Return how many pieces were sent between two answers."""
        sent = []
        while not self.files.settle():
            pieces = self.pieces()[sum(sent) :]
            assert pieces, "it waits for nothing"
            sent.append(len(pieces))
            for piece in pieces:
                self.files.handle(m.FileCredit("events", len(piece.data) + sender.PIECE_COST))
                if piece.checksum:
                    self.files.handle(m.FileKept("events", piece.transfer))
        return sent


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def write(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_without_event_files_nothing_is_sent(rig, tmp_path):
    write(tmp_path, "model.keras", b"x")
    write(tmp_path, "empty.tfevents.0", b"")
    old = write(tmp_path, "events.out.tfevents.1", b"of another run")
    os.utime(old, (1.0, 1.0))
    assert rig.files.settle()
    assert rig.sent == []
    nowhere = Rig(tmp_path / "nowhere")
    assert nowhere.files.settle()
    everywhere = Rig("gs://bucket/logs")
    assert everywhere.files.settle()
    assert nowhere.sent == everywhere.sent == []


def test_a_driver_that_sees_the_folder_gets_nothing_and_the_probe_is_gone(rig, tmp_path):
    write(tmp_path, "train/events.out.tfevents.1", b"x")
    assert not rig.files.settle()
    [found] = rig.sent
    assert (tmp_path / found.probe).exists()
    rig.files.handle(m.EventFilesWanted(limit_bytes=0))
    assert rig.files.settle()
    assert rig.sent == [found]
    assert not (tmp_path / found.probe).exists()


def test_files_are_sent_in_pieces_as_fast_as_they_are_kept(rig, tmp_path):
    data = os.urandom(sender.WINDOW_BYTES * 2 + 5)
    write(tmp_path, "train/events.out.tfevents.1", data)
    write(tmp_path, "b.tfevents", b"x" * sender.PIECE_BYTES)
    rig.files.settle()
    rig.files.handle(m.EventFilesWanted(limit_bytes=len(data) * 2))
    sent = rig.settle()
    assert max(sent) * sender.PIECE_BYTES <= sender.WINDOW_BYTES + sender.PIECE_BYTES
    assert len(sent) >= 2
    assert rig.whole("train/events.out.tfevents.1") == data
    assert len(rig.whole("b.tfevents")) == sender.PIECE_BYTES
    assert [piece.name for piece in rig.pieces() if piece.checksum] == ["b.tfevents", "train/events.out.tfevents.1"]
    assert rig.sent[-1] == m.EventFilesSent(rank=3)


def test_files_beyond_the_limit_stay(rig, tmp_path):
    write(tmp_path, "large.tfevents", b"x" * 100)
    write(tmp_path, "small.tfevents", b"x" * 10)
    rig.files.settle()
    rig.files.handle(m.EventFilesWanted(limit_bytes=50))
    rig.settle()
    assert [piece.name for piece in rig.pieces()] == ["small.tfevents"]
    assert rig.sent[-1] == m.EventFilesSent(rank=3, left_out=1, left_out_bytes=100)


def test_files_of_nodes_before_a_restart_are_sent_after_those_of_the_last(tmp_path):
    rig = Rig(tmp_path, age_s=600.0)
    write(tmp_path, "chief-0-restart-1/b.tfevents", b"x" * 30)
    write(tmp_path, "chief-0-restart-1/c.tfevents", b"x" * 300)
    for name, age_s in (("chief-0/a.tfevents", 300), ("other-run/a.tfevents", 900)):
        written_s = time.time() - age_s
        os.utime(write(tmp_path, name, b"x" * 10), (written_s, written_s))
    rig.files.settle()
    rig.files.handle(m.EventFilesWanted(limit_bytes=100))
    rig.settle()
    assert [piece.name for piece in rig.pieces()] == ["chief-0-restart-1/b.tfevents", "chief-0/a.tfevents"]
    assert rig.sent[-1] == m.EventFilesSent(rank=3, left_out=1, left_out_bytes=300)


def test_a_driver_that_does_not_answer_is_not_waited_for(rig, tmp_path, monkeypatch):
    monkeypatch.setattr(event_files, "PATIENCE_S", 0.0)
    write(tmp_path, "one.tfevents", b"x")
    assert rig.files.settle()
    assert rig.sent[-1] == m.EventFilesSent(rank=3, left_out=1, left_out_bytes=1)
    assert [path.name for path in tmp_path.iterdir()] == ["one.tfevents"]
