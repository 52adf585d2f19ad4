"""The output folder of a node: where it is, what of it is brought, and when."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.node.conftest import start_for
from tfos_lab import messages as m
from tfos_lab.node.files import output
from tfos_lab.node.files.output import OutputFiles, plan_round
from tfos_lab.node.files.sender import PIECE_COST, FoundFile


def found(*files):
    """Files by name: ``(name, size, changed_ns)``."""
    return {name: FoundFile(name, Path("/x", name), size, changed_ns) for name, size, changed_ns in files}


def names(files):
    return [file.name for file in files]


# ---- what to bring ------------------------------------------------------------------------------------------------


def test_what_the_driver_lacks_or_has_otherwise_is_wanted():
    there = found(("same", 1, 1), ("changed", 2, 5), ("new", 3, 3))
    kept = found(("same", 1, 1), ("changed", 2, 4), ("removed", 9, 9))
    plan = plan_round(there, kept, 100)
    assert (plan.gone, set(names(plan.wanted)), plan.left_out) == (["removed"], {"changed", "new"}, [])


def test_of_too_many_the_newest_are_wanted():
    there = found(("oldest", 40, 1), ("old", 40, 2), ("new", 40, 3), ("newest", 60, 4))
    plan = plan_round(there, found(("oldest", 40, 1)), 100)
    assert plan.gone == ["oldest"]
    assert names(plan.wanted) == ["newest", "new"]
    assert sorted(names(plan.left_out)) == ["old", "oldest"]


def test_what_shrinks_goes_first_so_that_the_limit_holds_at_every_moment():
    kept = found(("grows", 40, 1), ("shrinks", 60, 1))
    plan = plan_round(found(("grows", 60, 5), ("shrinks", 40, 4)), kept, 100)
    assert names(plan.wanted) == ["shrinks", "grows"]


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 60), st.integers(0, 9))),
    st.dictionaries(st.sampled_from("abcdef"), st.tuples(st.integers(0, 60), st.integers(0, 9))),
    st.integers(0, 120),
)
def test_whoever_follows_the_plan_has_the_newest_and_never_more_than_the_limit(there, before, limit_bytes):
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


class Stand:
    """A node, and a driver that keeps all it is sent."""

    def __init__(self, folder, *, sees=False, limit_bytes=1 << 30, wanted=True):
        self.said = []
        self.run = folder / "run"
        self.run.mkdir(exist_ok=True)
        (self.run / "probe").touch()
        scratch = folder / "root" / "c-0-1"
        scratch.mkdir(parents=True)
        self.files = OutputFiles(3, "chief:0", scratch, self.said.append)
        self.start_message = self.files.prepare(
            start_for(
                lambda: 0,
                output_dir=str(self.run / "output") if wanted else "",
                output_probe=str(self.run / ("probe" if sees else "nothing")),
                output_limit_bytes=limit_bytes,
            )
        )
        self.folder = Path(self.start_message.output_dir)
        self.place = folder / "root" / "output" / "c-0-1-chief-0"

    def write(self, name, data=b"x", age_s=0.0):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written_s = time.time() - age_s
        os.utime(path, (written_s, written_s))

    def answer(self, **kept):
        """Answer what was said last; return the names of the files that were sent."""
        said, self.said[:] = list(self.said), []
        for piece in said:
            if isinstance(piece, m.FilePiece):
                self.files.handle(m.FileCredit("output", len(piece.data) + PIECE_COST))
                if piece.checksum:
                    self.files.handle(m.FileKept("output", piece.transfer, **kept))
        return [piece.name for piece in said if isinstance(piece, m.FilePiece) and piece.checksum]

    def settle(self, **kept):
        """Come to the end; return the names of what was sent, and the last word."""
        sent = []
        while not self.files.settle():
            sent += self.answer(**kept)
        return sent, self.said[-1]


def test_a_node_that_sees_the_run_s_folder_writes_there_and_sends_nothing(tmp_path):
    stand = Stand(tmp_path, sees=True)
    assert stand.folder == tmp_path / "run" / "output"
    stand.files.open()
    stand.write("m", age_s=10)
    stand.files.work()
    assert stand.files.settle()
    stand.files.close()
    assert stand.said == [m.OutputOpened(rank=3)]
    assert (stand.folder / "m").exists()


def test_a_node_whose_output_nobody_wants_says_nothing(tmp_path):
    stand = Stand(tmp_path, wanted=False)
    stand.files.open()
    stand.write("m", age_s=10)
    stand.files.work()
    assert stand.files.settle()
    stand.files.close()
    assert stand.said == []
    assert not stand.place.exists()


def test_a_function_that_writes_nothing_has_nothing_to_bring(tmp_path):
    stand = Stand(tmp_path)
    assert stand.files.settle()
    assert stand.said == []


def test_what_is_finished_comes_while_the_function_works_and_the_rest_at_its_end(tmp_path, monkeypatch):
    stand = Stand(tmp_path)
    stand.files.open()
    assert stand.said == [m.OutputOpened(rank=3, place=str(stand.place))]
    stand.write("done.keras", age_s=10)
    stand.write("deep/er/done.txt", b"text", age_s=10)
    stand.write("growing.log")
    stand.files.work()
    assert stand.said[1] == m.OutputComes(rank=3, files=2, size_bytes=5)
    assert sorted(stand.answer()) == ["deep/er/done.txt", "done.keras"]
    stand.files.work()
    assert stand.said == []
    sent, last = stand.settle()
    assert (sent, last) == (["growing.log"], m.OutputSent(rank=3))
    stand.files.close()
    assert not stand.place.exists()


def test_what_is_written_anew_comes_anew_and_what_is_removed_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_SETTLED_S", 0.0)
    monkeypatch.setattr(output, "_REST", 0.0)
    stand = Stand(tmp_path)
    stand.files.open()
    stand.write("best.keras", age_s=30)
    stand.write("old.keras", age_s=30)
    stand.files.work()
    assert len(stand.answer()) == 2
    stand.files.work()
    stand.write("best.keras", b"better", age_s=20)
    (stand.folder / "old.keras").unlink()
    stand.files.work()
    assert m.OutputGone(rank=3, names=["old.keras"]) in stand.said
    assert stand.answer() == ["best.keras"]


def test_files_of_our_own_that_are_being_written_stay(tmp_path):
    stand = Stand(tmp_path)
    stand.files.open()
    stand.write(".tfos-partial-model.keras", age_s=10)
    stand.write(".tfos-partial-model/variables", age_s=10)
    assert stand.settle() == ([], m.OutputSent(rank=3))


def test_links_are_counted_and_not_followed(tmp_path):
    stand = Stand(tmp_path)
    stand.files.open()
    stand.write("m")
    (stand.folder / "link").symlink_to("/etc/hostname")
    (stand.folder / "folder").symlink_to("/etc")
    assert stand.settle() == (["m"], m.OutputSent(rank=3, links=2))


def test_what_is_too_much_is_kept_on_its_host(tmp_path):
    stand = Stand(tmp_path, limit_bytes=10)
    stand.files.open()
    stand.write("old.keras", b"x" * 8, age_s=100)
    stand.write("new.keras", b"y" * 9, age_s=50)
    sent, last = stand.settle()
    assert sent == ["new.keras"]
    assert last == m.OutputSent(rank=3, left_out=1, left_out_bytes=8, place=str(stand.place))
    assert sorted(path.name for path in stand.place.iterdir()) == ["new.keras", "old.keras"]
    assert not stand.folder.exists()


def test_what_the_driver_refuses_is_kept_with_its_reason(tmp_path):
    stand = Stand(tmp_path)
    stand.files.open()
    stand.write("m")
    _, last = stand.settle(problem="no space left on device")
    assert (last.left_out, last.place, last.problem) == (1, str(stand.place), "no space left on device")
    assert (stand.place / "m").exists()


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_agent_that_leaves_early_keeps_what_has_not_come_home(tmp_path, is_kept):
    stand = Stand(tmp_path)
    stand.files.open()
    stand.write("m", age_s=10)
    stand.files.work()
    if is_kept:
        stand.answer()
    stand.files.close()
    assert (stand.place / "m").exists() != is_kept


def test_a_kept_folder_never_takes_the_place_of_another(tmp_path):
    stand = Stand(tmp_path)
    stand.place.mkdir(parents=True)
    (stand.place / "other").touch()
    stand.files.open()
    stand.write("m")
    stand.files.close()
    assert [path.name for path in stand.place.iterdir()] == ["other"]
    assert (stand.place.with_name(f"{stand.place.name}-1") / "m").exists()
