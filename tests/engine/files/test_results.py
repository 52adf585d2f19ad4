"""Large results that nodes send: a few at a time, complete, and only where the disk has space for them."""

from __future__ import annotations

import hashlib
from types import SimpleNamespace

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.files import results
from tfos_lab.engine.files.results import ResultReceiver
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.state.instructions import SendTo


class Stand:
    """A receiver with four slots, and nodes that offer results of 100 bytes."""

    def __init__(self, folder):
        self.run_dir = RunDir(folder)
        self.receiver = ResultReceiver(self.run_dir, folder / "probe")
        self.now_s = 0.0

    def handle(self, message):
        return self.receiver.handle(message, f"worker:{message.rank}", self.now_s)

    def offer(self, rank, size_bytes=100):
        return self.handle(m.ResultOffered(rank=rank, size_bytes=size_bytes))

    def wanted(self, rank):
        path = self.run_dir.result(f"worker:{rank}")
        return SendTo(rank, m.ResultWanted(str(path), str(self.run_dir.path / "probe")))

    def piece(self, rank, data, offset=0, checksum=b"", name=""):
        return self.handle(m.FilePiece(rank, "result", 1, name or f"worker-{rank}", offset, data, checksum))

    def end(self, rank):
        return self.handle(m.Ended(rank=rank, outcome=m.Outcome(kind="returned", stored_bytes=100)))


@pytest.fixture
def stand(tmp_path):
    return Stand(tmp_path)


def test_a_result_appears_in_the_run_s_folder_when_it_is_complete(stand):
    assert stand.offer(0) == [stand.wanted(0)]
    whole = b"x" * 60 + b"y" * 40
    stand.piece(0, whole[:60])
    path = stand.run_dir.result("worker:0")
    assert not path.exists()
    answers = stand.piece(0, whole[60:], 60, hashlib.sha256(whole).digest())
    assert answers[-1] == SendTo(0, m.FileKept("result", 1))
    assert path.read_bytes() == whole
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_what_was_not_offered_or_is_larger_or_has_another_name_is_not_stored(stand):
    assert stand.piece(3, b"x") == []
    stand.offer(0)
    for data, name in ((b"x" * 101, ""), (b"x", "../run.json"), (b"x", "worker-1")):
        answers = stand.piece(0, data, name=name)
        assert any(isinstance(answer.message, m.FileKept) and answer.message.problem for answer in answers)
        stand.receiver.clear()
        stand.offer(0)
    assert not stand.run_dir.result("worker:0").exists()


def test_a_few_nodes_send_at_a_time_and_the_next_follows_when_one_has_ended(stand):
    assert [stand.offer(rank) for rank in range(4)] == [[stand.wanted(rank)] for rank in range(4)]
    assert [stand.offer(rank) for rank in (4, 5, 4, 4)] == [[], [], [], []]
    assert stand.end(2) == [stand.wanted(5)]
    assert stand.end(9) == []
    assert stand.end(0) == [stand.wanted(4)]


def test_an_offer_that_is_repeated_as_the_answer_was_lost_is_answered_again(stand):
    assert stand.offer(0) == stand.offer(0) == [stand.wanted(0)]
    assert [stand.offer(rank) for rank in (1, 2, 3)] == [[stand.wanted(rank)] for rank in (1, 2, 3)]
    assert stand.offer(0) == [stand.wanted(0)]


def test_a_node_that_sends_nothing_makes_room_for_others(stand):
    for rank in range(5):
        stand.offer(rank)
    stand.now_s = 8.0
    stand.piece(1, b"x")
    stand.now_s = 12.0
    assert stand.offer(4) == [stand.wanted(4)]


def test_a_result_that_the_disk_has_no_space_for_is_refused_with_both_numbers(stand, monkeypatch):
    disk = SimpleNamespace(free=5_000_000, total=40_000_000)
    monkeypatch.setattr(results.shutil, "disk_usage", lambda _folder: disk)
    assert stand.offer(0, 2_000_000) == [stand.wanted(0)]
    (refused,) = stand.offer(1, 1_500_000)
    assert "it takes 1.5 MB, and the disk there has room for 1.0 MB. Free some space" in refused.message.problem
    stand.receiver.clear()
    assert stand.offer(1, 1_500_000) == [stand.wanted(1)]


def test_what_no_node_of_ours_offers_is_refused(stand):
    (refused,) = stand.offer(0, results.RESULT_BYTES + 1)
    assert refused.message.problem == "a result may take 2,147.5 MB"
    assert stand.piece(0, b"x") == []
