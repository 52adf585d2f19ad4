"""Output that comes home: from whom, where to, and what is said of it."""

from __future__ import annotations

import hashlib

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.files.output import OutputReceiver
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.state.events import NodeView, OutputProgressed
from tfos_lab.engine.state.instructions import Publish, SendTo

CHIEF = NodeView("chief:0", "chief", 0, is_chief=True, host="far")
WORKER = NodeView("worker:0", "worker", 0, is_chief=False, host="farther")
NODES = [CHIEF, WORKER]


class Stand:
    def __init__(self, folder, *, limit_bytes=1000, of_all=False):
        self.home = folder / "output"
        self.keeper = OutputReceiver(RunDir(self.home.parent), limit_bytes=limit_bytes, of_all=of_all)
        self.now_s = 0.0

    def hear(self, message):
        self.now_s += 1.0
        return self.keeper.handle(message, NODES[message.rank], self.now_s)

    def open(self, rank=0, place="/tmp/there"):
        self.hear(m.OutputOpened(rank=rank, place=place))

    def send(self, name, data, rank=0, transfer=1):
        piece = m.FilePiece(rank, "output", transfer, name, 0, data, hashlib.sha256(data).digest())
        return self.hear(piece)

    def conclude(self, *, is_last=True):
        return self.keeper.conclude(self.now_s, is_last=is_last)

    def files(self):
        return {path.relative_to(self.home).as_posix() for path in self.home.rglob("*") if path.is_file()}


@pytest.fixture
def stand(tmp_path):
    return Stand(tmp_path)


def test_what_a_far_node_sends_is_kept_and_told(stand):
    stand.open()
    assert stand.keeper.awaited == (0,)
    stand.hear(m.OutputComes(rank=0, files=2, size_bytes=2_000))
    credit, kept, publish = stand.send("a/m.keras", b"x" * 500)
    assert isinstance(credit, SendTo)
    assert kept == SendTo(0, m.FileKept("output", 1))
    assert publish == Publish(
        OutputProgressed(time_s=stand.now_s, node="chief:0", files=1, size_bytes=500, total_bytes=2_000)
    )
    assert stand.keeper.notes == ("output of chief:0: 500 bytes of 2,000 bytes brought here",)
    stand.hear(m.OutputSent(rank=0))
    assert (stand.keeper.awaited, stand.keeper.notes) == ((), ())
    [done] = stand.conclude()
    assert (done.files, done.size_bytes, done.complete) == (1, 500, True)
    assert stand.keeper.notes == (f"output: 1 file of 500 bytes in {stand.home}",)
    assert stand.files() == {"a/m.keras"}


def test_only_the_chief_s_is_taken_unless_all_was_asked_for(tmp_path):
    stand = Stand(tmp_path)
    stand.open(rank=1)
    assert stand.send("m", b"x", rank=1) == []
    assert not stand.home.exists()
    stand = Stand(tmp_path, of_all=True)
    for rank in (0, 1):
        stand.open(rank=rank)
        stand.send("m", b"x", rank=rank)
    assert stand.files() == {"m", "worker-0/m"}


def test_who_has_not_opened_its_folder_cannot_send(stand):
    assert stand.send("m", b"x") == []
    assert not stand.home.exists()


def test_a_node_that_sees_the_folder_is_not_waited_for(stand):
    stand.open(place="")
    assert stand.keeper.awaited == ()
    stand.home.mkdir()
    (stand.home / "m").write_text("x")
    (stand.home / ".tfos-partial-model.keras").write_text("half")
    (stand.home / ".tfos-partial-model").mkdir()
    [done] = stand.conclude()
    assert (done.files, done.size_bytes) == (1, 1)
    assert stand.files() == {"m"}
    assert not stand.keeper.probe.exists()


def test_a_run_that_wrote_nothing_says_nothing(stand):
    assert stand.conclude() == ()
    assert stand.keeper.notes == ()
    assert list(stand.home.parent.iterdir()) == []


def test_what_was_too_much_is_told_with_its_place(stand):
    stand.open()
    stand.hear(m.OutputSent(rank=0, left_out=2, left_out_bytes=3_200_000_000, place="/tmp/there"))
    assert stand.keeper.notes == (
        (
            "output of chief:0: 2 files of 3,200.0 MB did not come here (with them it would be more than "
            "output_limit_bytes=1,000); they are on far in /tmp/there"
        ),
    )


def test_a_problem_and_links_are_told(stand):
    stand.open()
    stand.hear(m.OutputSent(rank=0, left_out=1, left_out_bytes=1, place="/tmp/there", problem="no space", links=1))
    assert stand.keeper.notes == (
        "output of chief:0: 1 file of 1 byte did not come here (no space); it is on far in /tmp/there",
        "output of chief:0: 1 symbolic link did not come here",
    )


def test_a_node_that_was_lost_is_told_and_what_came_of_it_stays_for_the_next_start(stand):
    stand.open()
    stand.send("kept", b"x")
    stand.hear(m.FilePiece(0, "output", 2, "half", 0, b"x"))
    assert stand.conclude(is_last=False) == ()
    assert stand.keeper.notes == (
        (
            "chief:0 was gone before it said that all of its output had come: what is missing may be on far in "
            "/tmp/there"
        ),
    )
    assert stand.keeper.probe.exists()
    stand.open(place="/tmp/again")
    stand.hear(m.OutputGone(rank=0, names=["kept"]))  # of the start before
    stand.send("new", b"y")
    stand.hear(m.OutputSent(rank=0))
    stand.conclude()
    assert stand.files() == {"kept", "new"}
    assert [path.name for path in stand.home.parent.iterdir()] == ["output"]
