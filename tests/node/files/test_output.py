"""The output folder of a node: where it is, which files are sent, and when."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.conftest import launch_spec, start_for
from tfos_lab import messages as m
from tfos_lab.node.files import output
from tfos_lab.node.files.found import FoundFile
from tfos_lab.node.files.output import OutputSender, plan_round
from tfos_lab.node.files.sender import PIECE_COST


def found(*files):
    """Files by name: ``(name, size, changed_ns)``."""
    return {name: FoundFile(name, Path("/x", name), size, changed_ns) for name, size, changed_ns in files}


def names(files):
    return [file.name for file in files]


# ---- what to send ---------------------------------------------------------------------------------------------------


def test_files_that_the_driver_lacks_or_has_in_another_version_are_wanted():
    there = found(("same", 1, 1), ("changed", 2, 5), ("new", 3, 3))
    kept = found(("same", 1, 1), ("changed", 2, 4), ("removed", 9, 9))
    plan = plan_round(there, kept, 100)
    assert (plan.gone, set(names(plan.wanted)), plan.left_out) == (["removed"], {"changed", "new"}, [])


def test_beyond_the_limit_the_newest_are_wanted():
    there = found(("oldest", 40, 1), ("old", 40, 2), ("new", 40, 3), ("newest", 60, 4))
    plan = plan_round(there, found(("oldest", 40, 1)), 100)
    assert plan.gone == ["oldest"]
    assert names(plan.wanted) == ["newest", "new"]
    assert sorted(names(plan.left_out)) == ["old", "oldest"]


def test_files_that_shrink_go_first_so_that_the_limit_always_holds():
    kept = found(("grows", 40, 1), ("shrinks", 60, 1))
    plan = plan_round(found(("grows", 60, 5), ("shrinks", 40, 4)), kept, 100)
    assert names(plan.wanted) == ["shrinks", "grows"]


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


def test_finished_files_are_sent_while_the_function_works_and_the_rest_at_its_end(tmp_path, monkeypatch):
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


def test_changed_files_are_sent_again_and_removed_ones_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_SETTLED_S", 0.0)
    monkeypatch.setattr(output, "_REST", 0.0)
    rig = Rig(tmp_path)
    rig.files.open()
    rig.write("best.keras", age_s=30)
    rig.write("old.keras", age_s=30)
    rig.files.work()
    assert len(rig.answer()) == 2
    rig.files.work()
    rig.write("best.keras", b"better", age_s=20)
    (rig.folder / "old.keras").unlink()
    rig.files.work()
    assert m.OutputGone(rank=3, names=["old.keras"]) in rig.sent
    assert rig.answer() == ["best.keras"]


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


@pytest.mark.parametrize("sees", [True, False])
def test_files_of_the_working_folder_that_were_not_sent_are_kept(tmp_path, work, sees):
    rig = Rig(tmp_path, sees=sees)
    work(rig, "m.keras")
    rig.files.look_for_work()
    rig.files.close()
    assert [path.relative_to(rig.kept_folder).as_posix() for path in rig.kept_folder.rglob("*")] == [
        "work",
        "work/m.keras",
    ]
