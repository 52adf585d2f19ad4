"""Sending files: in pieces, within a window, again where they did not arrive."""

from __future__ import annotations

import hashlib
import os

import pytest

from tfos_lab import messages as m
from tfos_lab.node.files import sender
from tfos_lab.node.files.sender import PIECE_BYTES, PIECE_COST, WINDOW_BYTES, FileSender, FoundFile


class Stand:
    def __init__(self, folder):
        self.folder = folder
        self.said = []
        self.sender = FileSender(5, "output", self.said.append)

    def found(self, name, data):
        path = self.folder / name
        path.write_bytes(data)
        stat = path.stat()
        return FoundFile(name, path, stat.st_size, stat.st_mtime_ns)

    def answer(self, **kept):
        """Answer all that was said since the last answer."""
        said, self.said[:] = list(self.said), []
        for piece in said:
            self.sender.handle(m.FileCredit("output", len(piece.data) + PIECE_COST))
            if piece.checksum:
                self.sender.handle(m.FileKept("output", piece.transfer, **kept))
        return said


@pytest.fixture
def stand(tmp_path):
    return Stand(tmp_path)


def test_files_are_sent_whole_with_their_checksums(stand):
    data = os.urandom(PIECE_BYTES + 7)
    one, empty = stand.found("one", data), stand.found("empty", b"")
    stand.sender.add([one, empty])
    stand.sender.go_on()
    assert not stand.sender.is_idle
    first, second, third = stand.answer()
    assert first.data + second.data == data
    assert (first.offset, second.offset, first.checksum) == (0, PIECE_BYTES, b"")
    assert second.checksum == hashlib.sha256(data).digest()
    assert (third.name, third.data, third.checksum) == ("empty", b"", hashlib.sha256().digest())
    assert stand.sender.is_idle
    assert stand.sender.kept == {"one": one, "empty": empty}


def test_no_more_is_on_its_way_than_a_window(stand):
    stand.sender.add([stand.found("large", bytes(3 * WINDOW_BYTES))])
    stand.sender.go_on()
    stand.sender.go_on()
    sent = sum(len(piece.data) for piece in stand.said)
    assert WINDOW_BYTES - PIECE_BYTES < sent <= WINDOW_BYTES
    sent = 0
    while not stand.sender.is_idle:
        sent += sum(len(piece.data) for piece in stand.answer())
        stand.sender.go_on()
    assert sent == 3 * WINDOW_BYTES


def test_what_is_added_later_is_sent_too(stand):
    for name in ("one", "two"):
        stand.sender.add([stand.found(name, b"x")])
        stand.sender.go_on()
        stand.answer()
        stand.sender.go_on()
    assert list(stand.sender.kept) == ["one", "two"]


def test_what_did_not_arrive_whole_is_sent_again_but_not_for_ever(stand):
    file = stand.found("one", b"x")
    stand.sender.add([file])
    for _ in range(sender.TRIES):
        stand.sender.go_on()
        assert len(stand.answer(problem="its checksum is wrong", again=True)) == 1
    assert stand.sender.is_idle
    assert stand.sender.refused == {file: "its checksum is wrong"}


def test_what_is_refused_is_not_sent_again(stand):
    file = stand.found("one", b"x")
    stand.sender.add([file])
    stand.sender.go_on()
    stand.answer(problem="more than 0 bytes")
    stand.sender.go_on()
    assert stand.said == []
    assert stand.sender.refused == {file: "more than 0 bytes"}


def test_a_driver_that_does_not_answer_is_asked_again_and_then_given_up(stand, monkeypatch):
    monkeypatch.setattr(sender, "STALLED_S", -1.0)
    file = stand.found("one", b"x")
    stand.sender.add([file])
    for _ in range(sender.TRIES + 1):
        stand.sender.go_on()
    assert [piece.transfer for piece in stand.said] == [1, 2, 3]
    assert stand.sender.refused == {file: "the notebook did not answer"}
    assert stand.sender.is_idle


def test_a_file_that_changes_or_goes_meanwhile_is_no_whole_file(stand):
    changed, gone = stand.found("changed", b"one"), stand.found("gone", b"x")
    (stand.folder / "changed").write_bytes(b"two and more")
    (stand.folder / "gone").unlink()
    stand.sender.add([changed, gone])
    stand.sender.go_on()
    assert stand.said == []
    assert stand.sender.refused == {changed: "it changed while it was read", gone: os.strerror(2)}


def test_a_link_in_the_place_of_a_file_is_not_followed(stand):
    file = stand.found("one", b"x")
    (stand.folder / "one").rename(stand.folder / "two")
    (stand.folder / "one").symlink_to(stand.folder / "two")
    stand.sender.add([file])
    stand.sender.go_on()
    assert stand.said == []
    assert list(stand.sender.refused) == [file]
