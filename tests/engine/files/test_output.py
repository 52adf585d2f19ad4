"""Output that nodes send to this machine: from which nodes, where it is stored, and the notes about it."""

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
        self.receiver = OutputReceiver(RunDir(self.home.parent), limit_bytes=limit_bytes, of_all=of_all)
        self.now_s = 0.0

    def receive(self, message):
        self.now_s += 1.0
        return self.receiver.handle(message, NODES[message.rank], self.now_s)

    def open(self, rank=0, place="/tmp/there"):
        self.receive(m.OutputOpened(rank=rank, place=place))

    def send(self, name, data, rank=0, transfer=1):
        piece = m.FilePiece(rank, "output", transfer, name, 0, data, hashlib.sha256(data).digest())
        return self.receive(piece)

    def conclude(self, *, is_last=True):
        return self.receiver.conclude(self.now_s, is_last=is_last)

    def files(self):
        return {path.relative_to(self.home).as_posix() for path in self.home.rglob("*") if path.is_file()}


@pytest.fixture
def stand(tmp_path):
    return Stand(tmp_path)


def test_what_a_node_on_another_host_sends_is_stored_and_reported(stand):
    stand.open()
    assert stand.receiver.awaited == (0,)
    stand.receive(m.OutputComes(rank=0, files=2, size_bytes=2_000))
    credit, kept, publish = stand.send("a/m.keras", b"x" * 500)
    assert isinstance(credit, SendTo)
    assert kept == SendTo(0, m.FileKept("output", 1))
    assert publish == Publish(
        OutputProgressed(time_s=stand.now_s, node="chief:0", files=1, size_bytes=500, total_bytes=2_000)
    )
    assert stand.receiver.notes == ("output of chief:0: 500 bytes of 2,000 bytes copied here",)
    stand.receive(m.OutputSent(rank=0))
    assert (stand.receiver.awaited, stand.receiver.notes) == ((), ())
    [done] = stand.conclude()
    assert (done.files, done.size_bytes, done.complete) == (1, 500, True)
    assert stand.receiver.notes == (f"output: 1 file of 500 bytes in {stand.home}",)
    assert stand.files() == {"a/m.keras"}


def test_only_the_chief_s_output_is_stored_unless_all_nodes_are_asked(tmp_path):
    stand = Stand(tmp_path)
    stand.open(rank=1)
    assert stand.send("m", b"x", rank=1) == []
    assert not stand.home.exists()
    stand = Stand(tmp_path, of_all=True)
    for rank in (0, 1):
        stand.open(rank=rank)
        stand.send("m", b"x", rank=rank)
    assert stand.files() == {"m", "worker-0/m"}


def test_a_node_that_has_not_opened_its_folder_cannot_send(stand):
    assert stand.send("m", b"x") == []
    assert not stand.home.exists()


def test_a_node_that_sees_the_folder_is_not_waited_for(stand):
    stand.open(place="")
    assert stand.receiver.awaited == ()
    stand.home.mkdir()
    (stand.home / "m").write_text("x")
    (stand.home / ".tfos-partial-model.keras").write_text("half")
    (stand.home / ".tfos-partial-model").mkdir()
    [done] = stand.conclude()
    assert (done.files, done.size_bytes) == (1, 1)
    assert stand.files() == {"m"}
    assert not stand.receiver.probe.exists()


def test_a_run_without_output_has_no_notes(stand):
    assert stand.conclude() == ()
    assert stand.receiver.notes == ()
    assert list(stand.home.parent.iterdir()) == []


def test_files_above_the_limit_are_noted_with_the_folder_that_holds_them(stand):
    stand.open()
    stand.receive(m.OutputSent(rank=0, left_out=2, left_out_bytes=3_200_000_000, place="/tmp/there"))
    assert stand.receiver.notes == (
        (
            "output of chief:0: 2 files of 3,200.0 MB were not copied here ("
            "output_limit_bytes=1,000 is reached); they are on far in /tmp/there"
        ),
    )


def test_a_problem_and_symbolic_links_are_noted(stand):
    stand.open()
    stand.receive(m.OutputSent(rank=0, left_out=1, left_out_bytes=1, place="/tmp/there", problem="no space", links=1))
    assert stand.receiver.notes == (
        "output of chief:0: 1 file of 1 byte was not copied here (no space); it is on far in /tmp/there",
        "output of chief:0: 1 symbolic link was not copied here",
    )


def test_a_lost_node_is_noted_and_its_files_stay_for_the_restart(stand):
    stand.open()
    stand.send("kept", b"x")
    stand.receive(m.FilePiece(0, "output", 2, "half", 0, b"x"))
    assert stand.conclude(is_last=False) == ()
    assert stand.receiver.notes == (
        ("chief:0 was lost before all of its output had been copied here: what is missing may be on far in /tmp/there"),
    )
    assert stand.receiver.probe.exists()
    stand.open(place="/tmp/again")
    stand.receive(m.OutputGone(rank=0, names=["kept"]))  # of the generation before
    stand.send("new", b"y")
    stand.receive(m.OutputSent(rank=0))
    stand.conclude()
    assert stand.files() == {"kept", "new"}
    assert [path.name for path in stand.home.parent.iterdir()] == ["output"]


def test_what_a_node_has_written_by_relative_paths_is_reported_if_it_is_not_copied(tmp_path):
    stand = Stand(tmp_path)
    for _ in range(2):
        stand.receive(m.OutputSent(rank=1, left_out=2, left_out_bytes=500))
    [note] = stand.receiver.notes
    what = "worker:0 has written 2 files of 500 bytes by relative paths, removed with the node"
    assert note == f"{what}: output='all' copies them here"
    stand.receive(m.OutputSent(rank=0, left_out=1, left_out_bytes=5))
    assert len(stand.receiver.notes) == 1
