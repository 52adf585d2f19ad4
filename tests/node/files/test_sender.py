"""Sending files: in pieces, within a window, and again if they did not arrive."""

from __future__ import annotations

import hashlib
import os

import pytest

from tfos_lab import messages as m
from tfos_lab.node.files import sender
from tfos_lab.node.files.found import FoundFile
from tfos_lab.node.files.sender import PIECE_BYTES, PIECE_COST, WINDOW_BYTES, FileSender


class Rig:
    def __init__(self, folder):
        self.folder = folder
        self.sent = []
        self.sender = FileSender(5, "output", self.sent.append)

    def found(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        stat = path.stat()
        return FoundFile(name, path, stat.st_size, stat.st_mtime_ns)

    def answer(self, **kept):
        """Answer all pieces since the last answer."""
        sent, self.sent[:] = list(self.sent), []
        for piece in sent:
            self.sender.handle(m.FileCredit("output", len(piece.data) + PIECE_COST))
            if piece.checksum:
                self.sender.handle(m.FileKept("output", piece.transfer, **kept))
        return sent


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def test_files_are_sent_whole_with_their_checksums(rig):
    data = os.urandom(PIECE_BYTES + 7)
    one, empty = rig.found("one", data), rig.found("empty", b"")
    rig.sender.add([one, empty])
    rig.sender.send_due()
    assert not rig.sender.is_idle
    first, second, third = rig.answer()
    assert first.data + second.data == data
    assert (first.offset, second.offset, first.checksum) == (0, PIECE_BYTES, b"")
    assert second.checksum == hashlib.sha256(data).digest()
    assert (third.name, third.data, third.checksum) == ("empty", b"", hashlib.sha256().digest())
    assert rig.sender.is_idle
    assert rig.sender.kept == {"one": one, "empty": empty}


def test_no_more_than_a_window_is_unacknowledged(rig):
    rig.sender.add([rig.found("large", bytes(3 * WINDOW_BYTES))])
    rig.sender.send_due()
    rig.sender.send_due()
    sent = sum(len(piece.data) for piece in rig.sent)
    assert WINDOW_BYTES - PIECE_BYTES < sent <= WINDOW_BYTES
    sent = 0
    while not rig.sender.is_idle:
        sent += sum(len(piece.data) for piece in rig.answer())
        rig.sender.send_due()
    assert sent == 3 * WINDOW_BYTES


def test_files_that_are_added_later_are_sent_too(rig):
    for name in ("one", "two"):
        rig.sender.add([rig.found(name, b"x")])
        rig.sender.send_due()
        rig.answer()
        rig.sender.send_due()
    assert list(rig.sender.kept) == ["one", "two"]


def test_files_that_did_not_arrive_whole_are_sent_again_but_not_forever(rig):
    file = rig.found("one", b"x")
    rig.sender.add([file])
    for _ in range(sender.TRIES):
        rig.sender.send_due()
        assert len(rig.answer(problem="its checksum is wrong", again=True)) == 1
    assert rig.sender.is_idle
    assert rig.sender.refused == {file: "its checksum is wrong"}


def test_refused_files_are_not_sent_again(rig):
    file = rig.found("one", b"x")
    rig.sender.add([file])
    rig.sender.send_due()
    rig.answer(problem="more than 0 bytes")
    rig.sender.send_due()
    assert rig.sent == []
    assert rig.sender.refused == {file: "more than 0 bytes"}


def test_files_without_an_answer_are_sent_again_and_then_given_up(rig, monkeypatch):
    monkeypatch.setattr(sender, "STALLED_S", -1.0)
    file = rig.found("one", b"x")
    rig.sender.add([file])
    for _ in range(sender.TRIES + 1):
        rig.sender.send_due()
    assert [piece.transfer for piece in rig.sent] == [1, 2, 3]
    assert rig.sender.refused == {file: "the notebook did not answer"}
    assert rig.sender.is_idle


def test_a_file_that_changes_or_disappears_meanwhile_is_refused(rig):
    changed, gone = rig.found("changed", b"one"), rig.found("gone", b"x")
    (rig.folder / "changed").write_bytes(b"two and more")
    (rig.folder / "gone").unlink()
    rig.sender.add([changed, gone])
    rig.sender.send_due()
    assert rig.sent == []
    assert rig.sender.refused == {changed: "it changed while it was read", gone: os.strerror(2)}


def test_a_link_that_replaces_a_file_is_not_followed(rig):
    file = rig.found("one", b"x")
    (rig.folder / "one").rename(rig.folder / "two")
    (rig.folder / "one").symlink_to(rig.folder / "two")
    rig.sender.add([file])
    rig.sender.send_due()
    assert rig.sent == []
    assert list(rig.sender.refused) == [file]
