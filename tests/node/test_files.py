"""Files of a node on their way to the notebook: which are sent, when, how they are kept, and the event files."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.conftest import launch_spec, start_for
from tests.support.eventually import eventually
from tfos_lab import messages as m
from tfos_lab.node.files.output import FoundFile, OutputSender, plan_round

# What a piece counts beside its bytes.
PIECE_COST = 512


def found(*files):
    """Files by name: ``(name, size, changed_ns)``."""
    return {name: FoundFile(name, Path("/x", name), size, changed_ns) for name, size, changed_ns in files}


def names(files):
    return [file.name for file in files]


def test_beyond_the_limit_the_newest_are_wanted():
    there = found(("oldest", 40, 1), ("old", 40, 2), ("new", 40, 3), ("newest", 60, 4))
    plan = plan_round(there, found(("oldest", 40, 1)), 100)
    assert plan.gone == ["oldest"]
    assert names(plan.wanted) == ["newest", "new"]
    assert sorted(names(plan.left_out)) == ["old", "oldest"]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 60), st.integers(0, 9))),
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 60), st.integers(0, 9))),
    st.integers(0, 120),
)
def test_following_the_plan_keeps_the_newest_and_never_exceeds_the_limit(there, before, limit_bytes):
    there = found(*((name, *rest) for name, rest in there.items()))
    kept = plan_round(found(*((name, *rest) for name, rest in before.items())), {}, limit_bytes).wanted
    kept = {file.name: file for file in kept}
    plan = plan_round(there, kept, limit_bytes)
    for name in plan.gone:
        del kept[name]
    for file in plan.wanted:
        kept[file.name] = file
        assert sum(one.size for one in kept.values()) <= limit_bytes
    assert set(kept.values()) | set(plan.left_out) == set(there.values())
    again = plan_round(there, kept, limit_bytes)
    assert (again.gone, again.wanted, again.left_out) == ([], [], plan.left_out)


# ---- on a node ----------------------------------------------------------------------------------------------------


class Rig:
    """A node, and a driver that keeps every file."""

    def __init__(self, folder, *, sees=False, limit_bytes=1 << 30, wanted=True):
        self.sent = []
        self.run = folder / "run"
        self.run.mkdir(exist_ok=True)
        (self.run / "probe").touch()
        scratch = folder / "root" / "c-0-1"
        scratch.mkdir(parents=True)
        self.files = OutputSender(3, "chief:0", scratch, self.sent.append)
        self.start_message = self.files.prepare(
            start_for(
                lambda: 0,
                output_dir=str(self.run / "output") if wanted else "",
                output_probe=str(self.run / ("probe" if sees else "nothing")),
                output_limit_bytes=limit_bytes,
            )
        )
        self.folder = Path(self.start_message.output_dir)
        self.kept_folder = folder / "root" / "output" / "c-0-1-chief-0"

    def write(self, name, data=b"x", age_s=0.0):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written_s = time.time() - age_s
        os.utime(path, (written_s, written_s))

    def answer(self, **kept):
        """Answer the latest messages; return the names of the files that were sent."""
        sent, self.sent[:] = list(self.sent), []
        for piece in sent:
            if isinstance(piece, m.FilePiece):
                self.files.handle(m.FileCredit("output", len(piece.data) + PIECE_COST))
                if piece.checksum:
                    self.files.handle(m.FileKept("output", piece.transfer, **kept))
        return [piece.name for piece in sent if isinstance(piece, m.FilePiece) and piece.checksum]

    def settle(self, **kept):
        """Run to the end; return the names of the files that were sent, and the last message."""
        sent = []
        while not self.files.settle():
            sent += self.answer(**kept)
        return sent, self.sent[-1]


def test_a_node_that_sees_the_run_folder_writes_there_and_sends_nothing(tmp_path):
    rig = Rig(tmp_path, sees=True)
    assert rig.folder == tmp_path / "run" / "output"
    rig.files.open()
    rig.write("m", age_s=10)
    rig.files.work()
    assert rig.files.settle()
    rig.files.close()
    assert rig.sent == [m.OutputOpened(rank=3)]
    assert (rig.folder / "m").exists()


def test_a_node_whose_output_is_not_wanted_sends_nothing(tmp_path):
    rig = Rig(tmp_path, wanted=False)
    rig.files.open()
    rig.write("m", age_s=10)
    rig.files.work()
    assert rig.files.settle()
    rig.files.close()
    assert rig.sent == []
    assert not rig.kept_folder.exists()


def test_a_function_that_writes_nothing_sends_nothing(tmp_path):
    rig = Rig(tmp_path)
    assert rig.files.settle()
    assert rig.sent == []


def test_finished_files_are_sent_while_the_function_works_and_the_rest_at_its_end(tmp_path):
    rig = Rig(tmp_path)
    rig.files.open()
    assert rig.sent == [m.OutputOpened(rank=3, place=str(rig.kept_folder))]
    rig.write("done.keras", age_s=10)
    rig.write("deep/er/done.txt", b"text", age_s=10)
    rig.write("growing.log")
    rig.files.work()
    assert rig.sent[1] == m.OutputComes(rank=3, files=2, size_bytes=5)
    assert sorted(rig.answer()) == ["deep/er/done.txt", "done.keras"]
    rig.files.work()
    assert rig.sent == []
    sent, last = rig.settle()
    assert (sent, last) == (["growing.log"], m.OutputSent(rank=3))
    rig.files.close()
    assert not rig.kept_folder.exists()


def test_changed_files_are_sent_again_and_removed_ones_are_removed(tmp_path):
    rig = Rig(tmp_path)
    rig.files.open()
    rig.write("best.keras", age_s=30)
    rig.write("old.keras", age_s=30)
    rig.files.work()
    assert len(rig.answer()) == 2
    rig.files.work()
    rig.write("best.keras", b"better", age_s=20)
    (rig.folder / "old.keras").unlink()
    eventually(lambda: rig.files.work() or m.OutputGone(rank=3, names=["old.keras"]) in rig.sent)
    assert rig.answer() == ["best.keras"]


def test_a_large_file_is_sent_within_a_window_whole_and_with_its_checksum(tmp_path):
    rig = Rig(tmp_path)
    rig.files.open()
    data = os.urandom(20 << 20)
    rig.write("large", data, age_s=10)
    rig.files.work()
    first = sum(len(piece.data) for piece in rig.sent if isinstance(piece, m.FilePiece))
    assert 0 < first < len(data) // 2, "the rest waits for credit"
    pieces = []
    while not rig.files.settle():
        pieces += [piece for piece in rig.sent if isinstance(piece, m.FilePiece)]
        rig.answer()
    assert b"".join(piece.data for piece in pieces) == data
    assert [piece.offset for piece in pieces] == sorted(piece.offset for piece in pieces)
    assert [piece.checksum for piece in pieces if piece.checksum] == [hashlib.sha256(data).digest()]


def test_files_that_did_not_arrive_whole_are_sent_again_but_not_forever(tmp_path):
    rig = Rig(tmp_path)
    rig.files.open()
    rig.write("m")
    sent, last = rig.settle(problem="its checksum is wrong", again=True)
    assert 1 < len(sent) < 10
    assert set(sent) == {"m"}
    assert (last.left_out, last.problem) == (1, "its checksum is wrong")


def test_partial_files_of_our_own_are_not_sent(tmp_path):
    rig = Rig(tmp_path)
    rig.files.open()
    rig.write(".tfos-partial-model.keras", age_s=10)
    rig.write(".tfos-partial-model/variables", age_s=10)
    assert rig.settle() == ([], m.OutputSent(rank=3))


def test_links_are_counted_and_not_followed(tmp_path):
    rig = Rig(tmp_path)
    rig.files.open()
    rig.write("m")
    (rig.folder / "link").symlink_to("/etc/hostname")
    (rig.folder / "folder").symlink_to("/etc")
    assert rig.settle() == (["m"], m.OutputSent(rank=3, links=2))


def test_a_link_that_takes_the_place_of_a_file_before_that_is_sent_is_not_followed(tmp_path):
    rig = Rig(tmp_path)
    rig.files.open()
    rig.write("large", bytes(20 << 20), age_s=10)
    rig.write("one", age_s=20)
    rig.files.work()
    (rig.folder / "one").rename(tmp_path / "another")
    (rig.folder / "one").symlink_to(tmp_path / "another")
    assert rig.settle() == (["large"], m.OutputSent(rank=3, links=1))


def test_files_beyond_the_limit_are_kept_on_their_host(tmp_path):
    rig = Rig(tmp_path, limit_bytes=10)
    rig.files.open()
    rig.write("old.keras", b"x" * 8, age_s=100)
    rig.write("new.keras", b"y" * 9, age_s=50)
    sent, last = rig.settle()
    assert sent == ["new.keras"]
    assert last == m.OutputSent(rank=3, left_out=1, left_out_bytes=8, place=str(rig.kept_folder))
    assert sorted(path.name for path in rig.kept_folder.iterdir()) == ["new.keras", "old.keras"]
    assert not rig.folder.exists()


def test_files_that_the_driver_refuses_are_kept_with_the_reason(tmp_path):
    rig = Rig(tmp_path)
    rig.files.open()
    rig.write("m")
    _, last = rig.settle(problem="no space left on device")
    assert (last.left_out, last.place, last.problem) == (1, str(rig.kept_folder), "no space left on device")
    assert (rig.kept_folder / "m").exists()


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_agent_that_ends_early_keeps_files_that_were_not_sent(tmp_path, is_kept):
    rig = Rig(tmp_path)
    rig.files.open()
    rig.write("m", age_s=10)
    rig.files.work()
    if is_kept:
        rig.answer()
    rig.files.close()
    assert (rig.kept_folder / "m").exists() != is_kept


def test_a_kept_folder_never_replaces_another(tmp_path):
    rig = Rig(tmp_path)
    rig.kept_folder.mkdir(parents=True)
    (rig.kept_folder / "other").touch()
    rig.files.open()
    rig.write("m")
    rig.files.close()
    assert [path.name for path in rig.kept_folder.iterdir()] == ["other"]
    assert (rig.kept_folder.with_name(f"{rig.kept_folder.name}-1") / "m").exists()


# ---- the working folder ---------------------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path):
    """A function that makes the rig's working folder, with a link and the given files in it."""

    def make(rig, *names):
        (tmp_path / "notebook").mkdir()
        (tmp_path / "notebook" / "shown.csv").touch()
        folder = Path(rig.files.working_folder.make(launch_spec(cwd=str(tmp_path / "notebook"))))
        for name in names:
            (folder / name).write_text(name)
            os.utime(folder / name, (0, 0))
        return folder

    return make


def test_files_of_the_working_folder_are_sent_though_the_function_asks_for_nothing(tmp_path, work):
    rig = Rig(tmp_path)
    work(rig, "m.keras")
    rig.files.work()
    assert rig.sent[:2] == [
        m.OutputOpened(rank=3, place=str(rig.kept_folder)),
        m.OutputComes(rank=3, files=1, size_bytes=7),
    ]
    assert rig.answer() == ["work/m.keras"]
    assert rig.settle() == ([], m.OutputSent(rank=3))


def test_files_of_the_working_folder_are_sent_even_where_the_output_folder_is_shared(tmp_path, work):
    rig = Rig(tmp_path, sees=True)
    work(rig, "m.keras")
    rig.files.open()
    rig.write("other")
    assert rig.settle() == (["work/m.keras"], m.OutputSent(rank=3))
    assert rig.sent[-1] == m.OutputSent(rank=3)


def test_files_that_are_written_last_are_found_at_the_end(tmp_path, work):
    rig = Rig(tmp_path)
    folder = work(rig)
    rig.files.work()
    (folder / "late").touch()
    assert rig.settle() == (["work/late"], m.OutputSent(rank=3))


def test_files_of_the_working_folder_are_reported_where_no_output_is_wanted(tmp_path, work):
    rig = Rig(tmp_path, wanted=False)
    work(rig, "m.keras")
    rig.files.work()
    assert rig.files.settle()
    assert rig.files.settle()
    rig.files.close()
    assert rig.sent == [m.OutputSent(rank=3, left_out=1, left_out_bytes=7)]
    assert not rig.kept_folder.exists()


# ---- event files ----------------------------------------------------------------------------------------------------


def write_events(args, ctx):
    """Write files into the folder of event files, as old as they are said to be."""
    for name, (size, age_s) in args.items():
        path = Path(ctx.log_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * size)
        os.utime(path, (time.time() - age_s,) * 2)


@pytest.fixture
def chief(run, tmp_path):
    """A function that runs a chief which writes event files, to the end; returns it with what is found then."""

    def chief(files, **start):
        node = run(write_events, files, start={"is_chief": True, "log_dir": str(tmp_path), **start})
        node.outcome()
        node.send(m.Finish(grace_s=5.0))
        return node

    return chief


def take_events(node, limit_bytes):
    """Take all event files, as a driver does that cannot see them; return their names."""
    node.send(m.EventFilesWanted(limit_bytes=limit_bytes))
    answered = 0

    def take():
        nonlocal answered
        node.poll()
        for piece in node.all(m.FilePiece)[answered:]:
            answered += 1
            node.send(m.FileCredit("events", len(piece.data) + PIECE_COST))
            if piece.checksum:
                node.send(m.FileKept("events", piece.transfer))
        return node.all(m.Drained)

    eventually(take)
    return [piece.name for piece in node.all(m.FilePiece) if piece.checksum]


def test_a_driver_that_sees_the_folder_gets_no_event_files_and_the_probe_is_gone(chief, tmp_path):
    node = chief({"train/events.out.tfevents.1": (1, 0)})
    found = node.wait_for(m.EventFilesFound)
    assert (tmp_path / found.probe).exists()
    assert take_events(node, 0) == []
    assert not (tmp_path / found.probe).exists()


def test_any_other_gets_those_of_this_run_up_to_its_limit_and_the_rest_stays(chief):
    size = 10 << 20
    files = {"a.tfevents": (size, 0), "sub/b.tfevents": (10, 0), "large.tfevents": (3 * size, 0), "m.keras": (5, 0)}
    node = chief({**files, "empty.tfevents": (0, 0), "of-another-run.tfevents": (10, 3600)})
    node.wait_for(m.EventFilesFound)
    assert sorted(take_events(node, size + 10)) == ["a.tfevents", "sub/b.tfevents"]
    assert sum(len(piece.data) for piece in node.all(m.FilePiece)) == size + 10
    assert node.all(m.EventFilesSent) == [m.EventFilesSent(rank=0, left_out=1, left_out_bytes=3 * size)]


def test_files_of_nodes_before_a_restart_are_sent_after_those_of_the_last(chief):
    files = {"chief-0-restart-1/b.tfevents": (30, 0), "chief-0-restart-1/c.tfevents": (300, 0)}
    node = chief({**files, "chief-0/a.tfevents": (10, 300), "other-run/a.tfevents": (10, 900)}, age_s=600.0)
    node.wait_for(m.EventFilesFound)
    assert take_events(node, 100) == ["chief-0-restart-1/b.tfevents", "chief-0/a.tfevents"]
    assert node.all(m.EventFilesSent) == [m.EventFilesSent(rank=0, left_out=1, left_out_bytes=300)]


def test_without_event_files_nothing_is_sent(chief):
    node = chief({"model.keras": (1, 0), "old.tfevents": (1, 3600)})
    node.wait_for(m.Drained)
    assert not node.all(m.EventFilesFound)
