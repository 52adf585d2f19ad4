"""A large result leaves the node before its function's end is reported: moved, sent in pieces, or refused."""

from __future__ import annotations

import pytest

from tfos_lab import messages as m
from tfos_lab.node.result_sender import NAME, ResultSender

DATA = b"result" * 100_000
RETURNED = m.Outcome(kind="returned", stored_bytes=len(DATA), steps=7, dataset_ended=True)


class Rig:
    def __init__(self, folder):
        self.sent = []
        self.home = folder / "home"
        self.home.mkdir()
        self.file = folder / NAME
        self.file.write_bytes(DATA)
        self.sender = ResultSender(3, folder, self.sent.append)

    def take(self):
        sent, self.sent[:] = list(self.sent), []
        return sent

    def answer(self, probe="", problem=""):
        self.sender.handle(m.ResultWanted(str(self.home / "worker-2"), probe, problem))

    @property
    def ended(self):
        (message,) = self.take()
        assert isinstance(message, m.Ended)
        assert not self.sender.is_busy
        assert not self.file.exists()
        return message.outcome


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    rig.sender.report(RETURNED)
    assert rig.take() == [m.ResultOffered(rank=3, size_bytes=len(DATA))]
    assert rig.sender.is_busy
    return rig


def test_a_small_result_is_reported_at_once(tmp_path):
    rig = Rig(tmp_path)
    outcome = m.Outcome(kind="returned", value=b"x")
    rig.sender.report(outcome)
    assert rig.take() == [m.Ended(rank=3, outcome=outcome)]


def test_it_is_offered_again_until_there_is_an_answer(rig, monkeypatch):
    rig.sender.work()
    assert rig.take() == []
    monkeypatch.setattr("tfos_lab.node.result_sender._REPEAT_S", -1.0)
    rig.sender.work()
    assert rig.take() == [m.ResultOffered(rank=3, size_bytes=len(DATA))]


def test_a_node_that_sees_the_driver_s_folder_moves_it_there(rig):
    probe = rig.home / "probe"
    probe.touch()
    rig.answer(str(probe))
    assert rig.ended == RETURNED
    assert (rig.home / "worker-2").read_bytes() == DATA


@pytest.mark.parametrize("probe", ["", "/nowhere/probe"])
def test_another_sends_it_in_pieces_and_reports_the_end_when_the_driver_has_it(rig, probe):
    rig.answer(probe)
    rig.answer(probe)  # the offer had been repeated
    pieces = rig.take()
    assert {(piece.folder, piece.name) for piece in pieces} == {("result", "worker-2")}
    assert b"".join(piece.data for piece in pieces) == DATA
    rig.sender.handle(m.FileKept("result", 1))
    rig.sender.work()
    assert rig.ended == RETURNED


def test_what_the_driver_cannot_take_fails_the_node_with_the_driver_s_sentence(rig):
    rig.answer(problem="the result cannot be stored in /runs: the disk is full")
    outcome = rig.ended
    assert (outcome.kind, outcome.error, outcome.steps) == ("raised", "ResultNotStored", 7)
    assert outcome.message == "the result cannot be stored in /runs: the disk is full"


def test_what_the_driver_could_not_write_is_told(rig):
    rig.answer()
    rig.take()
    rig.sender.handle(m.FileKept("result", 1, "it cannot be kept in /runs (No space left on device)"))
    rig.sender.work()
    outcome = rig.ended
    assert (outcome.kind, outcome.error) == ("raised", "ResultNotSendable")
    assert "the result (0.6 MB) could not be sent to the notebook: it cannot be kept in /runs" in outcome.message


def test_a_file_that_is_gone_is_told(rig):
    rig.file.unlink()
    rig.answer()
    assert "No such file" in rig.ended.message


def test_a_stop_ends_it(rig):
    rig.answer()
    rig.take()
    rig.sender.stop()
    assert rig.ended.kind == "stopped"
    rig.sender.stop()
    rig.sender.work()
    assert rig.take() == []
