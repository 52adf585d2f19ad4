"""Files that nodes send: stored complete, in their folder, and nowhere else."""

from __future__ import annotations

import hashlib
import os

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.files.receiver import FileReceiver
from tfos_lab.node.files.sender import PIECE_COST


class Stand:
    def __init__(self, folder, limit_bytes=1000):
        self.folder = folder
        self.home = folder / "run" / "output"
        self.receiver = FileReceiver(self.home, folder / "run" / ".part", limit_bytes)
        self.transfer = 0

    def send(self, name, *pieces, checksum=None):
        """Send a file in pieces; return the last answer to each."""
        self.transfer += 1
        whole, offset, answers = b"".join(pieces), 0, []
        checksum = hashlib.sha256(whole).digest() if checksum is None else checksum
        for number, data in enumerate(pieces, 1):
            last = checksum if number == len(pieces) else b""
            answers.append(self.receiver.take(m.FilePiece(0, "output", self.transfer, name, offset, data, last))[-1])
            offset += len(data)
        return answers

    def files(self):
        return {path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*") if not path.is_dir()}


@pytest.fixture
def stand(tmp_path):
    return Stand(tmp_path)


def test_a_file_appears_when_it_is_complete_and_each_piece_is_answered(stand):
    piece = m.FilePiece(0, "output", 9, "a/b.keras", 0, b"one ")
    assert stand.receiver.take(piece) == [m.FileCredit("output", 4 + PIECE_COST)]
    assert stand.files() == {"run/.part"}
    checksum = hashlib.sha256(b"one two").digest()
    last = m.FilePiece(0, "output", 9, "a/b.keras", 4, b"two", checksum)
    assert stand.receiver.take(last) == [m.FileCredit("output", 3 + PIECE_COST), m.FileKept("output", 9)]
    assert stand.files() == {"run/output/a/b.keras"}
    assert (stand.home / "a" / "b.keras").read_bytes() == b"one two"
    assert stand.receiver.held == {"a/b.keras": 7}


def test_an_empty_file_is_a_file(stand):
    assert stand.send("empty", b"") == [m.FileKept("output", 1)]
    assert (stand.home / "empty").read_bytes() == b""


def test_a_file_with_a_wrong_checksum_may_be_sent_again_and_the_old_one_stays(stand):
    stand.send("m", b"good")
    assert stand.send("m", b"bad", checksum=b"x" * 32) == [m.FileKept("output", 2, "its checksum is wrong", again=True)]
    assert (stand.home / "m").read_bytes() == b"good"
    stand.send("m", b"better")
    assert (stand.home / "m").read_bytes() == b"better"


def test_a_missing_piece_is_reported_once(stand):
    stand.receiver.take(m.FilePiece(0, "output", 1, "m", 0, b"one"))
    assert stand.receiver.take(m.FilePiece(0, "output", 1, "m", 5, b"x"))[1:] == [
        m.FileKept("output", 1, "a piece is missing", again=True)
    ]
    assert stand.receiver.take(m.FilePiece(0, "output", 1, "m", 6, b"x"))[1:] == []
    assert stand.files() == set()


@pytest.mark.parametrize(
    "name",
    ["../m", "/etc/m", "a/../../m", "a//m", "./m", "..", "", "a/", "a/\0", "x" * 256, "/".join("x" * 40)],
)
def test_a_name_that_leads_elsewhere_is_refused(stand, name):
    assert stand.send(name, b"x") == [m.FileKept("output", 1, "it was not to come", again=False)]
    assert stand.files() == set()


def test_symbolic_links_are_not_followed(stand, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("mine")
    stand.home.mkdir(parents=True)
    (stand.home / "folder").symlink_to(outside)
    (stand.home / "file").symlink_to(outside / "file")
    (tmp_path / "run" / ".part").symlink_to(outside / "part")
    assert stand.send("folder/m", b"x")[-1].problem == "it was not to come"
    stand.receiver.remove(["folder/file"])
    # What was left there by somebody else is removed, not written through.
    assert stand.send("file", b"x")[-1] == m.FileKept("output", 2)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "mine"}
    assert (stand.home / "file").read_text() == "x"


def test_no_more_than_the_limit_is_stored_and_removed_files_make_room(tmp_path):
    stand = Stand(tmp_path, limit_bytes=10)
    assert stand.send("a", b"x" * 6)[-1].problem == ""
    assert stand.send("b", b"x" * 6)[-1] == m.FileKept("output", 2, "more than 10 bytes", again=False)
    assert stand.send("a", b"y" * 10)[-1].problem == ""
    stand.receiver.remove(["a"])
    assert stand.send("b", b"x" * 3, b"x" * 7)[-1].problem == ""
    assert stand.files() == {"run/output/b"}


def test_only_received_files_can_be_removed_and_empty_folders_go_with_them(stand):
    stand.home.mkdir(parents=True)
    (stand.home / "mine").write_text("of an earlier start of the nodes")
    stand.send("deep/er/m", b"x")
    stand.receiver.remove(["mine", "deep/er/m", "../../run", "nothing"])
    assert stand.files() == {"run/output/mine"}
    assert list(stand.home.iterdir()) == [stand.home / "mine"]


def test_a_folder_that_cannot_be_written_is_reported(stand):
    stand.home.parent.mkdir(parents=True)
    stand.home.write_text("a file")
    problem = stand.send("m", b"x")[-1]
    assert (problem.problem, problem.again) == (f"it cannot be kept in {stand.home} ({os.strerror(17)})", False)
