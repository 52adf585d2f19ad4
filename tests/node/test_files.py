"""Files of a node on their way to the notebook: which are sent, when, how they are kept, and the event files."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tfos_lab import messages as m
from tfos_lab.node.files.found import FoundFile
from tfos_lab.node.files.sender import FileSender

# What a piece counts beside its bytes.
PIECE_COST = 512


def take(node, is_over, **kept):
    """Take all files, as a driver does that cannot see them, until something is there; return the names in order."""
    answered = 0

    def answer():
        nonlocal answered
        node.poll()
        for piece in node.all(m.FilePiece)[answered:]:
            answered += 1
            node.send(m.FileCredit(piece.folder, len(piece.data) + PIECE_COST))
            if piece.checksum:
                node.send(m.FileKept(piece.folder, piece.transfer, **kept))
        return is_over()

    eventually(answer)
    return [piece.name for piece in node.all(m.FilePiece) if piece.checksum]


def sent(node):
    """Return what the node says at the end of its output."""
    return node.all(m.OutputSent)[-1]


# ---- output ---------------------------------------------------------------------------------------------------------


def write(args, ctx):
    """Write files, as old as they are said to be, into the output folder; go on when a file is there."""
    files, go = args
    for name, (data, age_s) in files.items():
        path = Path(ctx.output_dir, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, str):
            path.symlink_to(data)
            continue
        path.write_bytes(data)
        os.utime(path, (time.time() - age_s,) * 2)
    while go and not go.exists():
        time.sleep(0.01)
    return ctx.output_dir if files else None


@pytest.fixture
def start(run, tmp_path):
    """A function that runs a chief that writes files: ``start(files, map_fun=write, sees=, limit_bytes=, …)``."""
    cluster_id = f"c-{tmp_path.name[-20:]}"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "probe").touch()

    def start(files, map_fun=write, *, go=None, sees=False, limit_bytes=1 << 30, wanted=True, **spec):
        output = {
            "output_dir": str(tmp_path / "run" / "output") if wanted else "",
            "output_probe": str(tmp_path / "run" / ("probe" if sees else "nothing")),
            "output_limit_bytes": limit_bytes,
        }
        args = (files, go) if map_fun is write else files
        return run(map_fun, args, start=output, cluster_id=cluster_id, **spec)

    yield start
    for left in Path(tempfile.gettempdir()).glob(f"tfos_lab-*/output/{cluster_id}-*"):
        shutil.rmtree(left)


def end(node, **kept):
    """Let the function end, and take what it has written; return the names of all files that were sent, in order."""
    node.outcome()
    node.send(m.Finish(grace_s=5.0))
    return take(node, lambda: node.all(m.Drained), **kept)


@pytest.mark.parametrize("sees", [True, False], ids=["it sees the folder", "no output is wanted"])
def test_a_node_writes_where_the_driver_sees_it_and_sends_nothing(start, tmp_path, sees):
    node = start({"m": (b"x", 10)}, sees=sees, wanted=sees)
    assert end(node) == []
    assert not node.all(m.OutputSent)
    assert [(told.rank, told.place) for told in node.all(m.OutputOpened)] == ([(0, "")] if sees else [])
    assert (tmp_path / "run" / "output" / "m").exists() == sees


def test_finished_files_are_sent_while_the_function_works_and_the_rest_at_its_end(start, tmp_path):
    files = {"done.keras": (b"x", 10), "deep/er/done.txt": (b"text", 10), "growing.log": (b"x", -1000)}
    node = start(files, go=tmp_path / "go")
    assert sorted(take(node, lambda: len(node.all(m.FilePiece)) == 2)) == ["deep/er/done.txt", "done.keras"]
    assert node.all(m.OutputComes)[0] == m.OutputComes(rank=0, files=2, size_bytes=5)
    node.received = [message for message in node.received if not isinstance(message, m.FilePiece)]
    (tmp_path / "go").touch()
    assert end(node) == ["growing.log"]
    assert sent(node) == m.OutputSent(rank=0)
    assert not Path(node.all(m.OutputOpened)[0].place).exists()


def change(folder, ctx):
    """Save a model, then a better one, and remove another, when told to."""
    best, old = Path(ctx.output_dir, "best.keras"), Path(ctx.output_dir, "old.keras")
    for path in (best, old):
        path.write_bytes(b"first")
        os.utime(path, (time.time() - 30,) * 2)
    while not Path(folder, "go").exists():
        time.sleep(0.01)
    old.unlink()
    best.write_bytes(b"better")
    os.utime(best, (time.time() - 20,) * 2)


def test_changed_files_are_sent_again_and_removed_ones_are_removed(start, tmp_path):
    node = start(str(tmp_path), change)
    assert sorted(take(node, lambda: len(node.all(m.FilePiece)) == 2)) == ["best.keras", "old.keras"]
    node.received = [message for message in node.received if not isinstance(message, m.FilePiece)]
    (tmp_path / "go").touch()
    assert end(node) == ["best.keras"]
    assert node.all(m.OutputGone) == [m.OutputGone(rank=0, names=["old.keras"])]


def test_a_large_file_is_sent_within_a_window_whole_and_with_its_checksum(start):
    data = os.urandom(20 << 20)
    node = start({"large": (data, 10)})
    node.outcome()
    node.send(m.Finish(grace_s=5.0))
    node.wait_for(m.FilePiece)
    assert node.beats()
    assert sum(len(piece.data) for piece in node.all(m.FilePiece)) < len(data) // 2, "the rest waits for credit"
    assert take(node, lambda: node.all(m.Drained)) == ["large"]
    pieces = node.all(m.FilePiece)
    assert b"".join(piece.data for piece in pieces) == data
    assert [piece.checksum for piece in pieces if piece.checksum] == [hashlib.sha256(data).digest()]


def test_files_that_did_not_arrive_whole_are_sent_again_but_not_forever(start):
    node = start({"m": (b"x", 0)})
    names = end(node, problem="its checksum is wrong", again=True)
    assert 1 < len(names) < 10
    assert set(names) == {"m"}
    assert (sent(node).left_out, sent(node).problem) == (1, "its checksum is wrong")


def test_partial_files_of_our_own_and_what_links_lead_to_are_not_sent(start):
    partial = {".tfos-partial-model.keras": (b"x", 10), ".tfos-partial-model/variables": (b"x", 10)}
    node = start({**partial, "m": (b"x", 0), "link": ("/etc/hostname", 0), "folder": ("/etc", 0)})
    assert end(node) == ["m"]
    assert sent(node) == m.OutputSent(rank=0, links=2)


def test_a_link_that_takes_the_place_of_a_file_before_that_is_sent_is_not_followed(tmp_path):
    pieces = []
    sender = FileSender(0, "output", pieces.append)
    (tmp_path / "one").write_bytes(b"own")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    changed_ns = (tmp_path / "one").stat().st_mtime_ns
    sender.add(FoundFile(name, tmp_path / name, 3, changed_ns) for name in ("one", "two"))
    sender.send_due()
    assert {piece.name for piece in pieces} == {"one"}


def test_files_beyond_the_limit_are_kept_on_their_host_the_oldest_first_and_replace_nothing(start):
    node = start({"old.keras": (b"x" * 8, 100), "new.keras": (b"y" * 9, 50)}, limit_bytes=10)
    kept = Path(node.wait_for(m.OutputOpened).place)
    kept.mkdir(parents=True)
    (kept / "other").touch()
    assert end(node) == ["new.keras"]
    place = Path(sent(node).place)
    assert sent(node) == m.OutputSent(rank=0, left_out=1, left_out_bytes=8, place=str(place))
    node.end()
    assert [path.name for path in kept.iterdir()] == ["other"]
    found = kept.with_name(f"{kept.name}-1")
    assert sorted(path.name for path in found.iterdir()) == ["new.keras", "old.keras"]


@pytest.mark.parametrize("is_kept", [True, False])
def test_an_agent_that_ends_early_keeps_files_that_were_not_sent(start, tmp_path, is_kept):
    node = start({"m": (b"x", 10)}, go=tmp_path / "never")
    place = Path(node.wait_for(m.OutputOpened).place)
    node.wait_for(m.FilePiece)
    if is_kept:
        take(node, node.beats)
    node.close()
    assert (place / "m").exists() != is_kept


def test_files_that_the_driver_refuses_are_kept_with_the_reason(start):
    node = start({"m": (b"x", 0)})
    end(node, problem="no space left on device")
    assert (sent(node).left_out, sent(node).problem) == (1, "no space left on device")
    node.end()
    assert Path(sent(node).place, "m").exists()


# ---- the working folder ---------------------------------------------------------------------------------------------


def write_beside(names, ctx):
    for name in names:
        Path(name).write_text(name)


@pytest.mark.parametrize("sees", [True, False])
def test_files_of_the_working_folder_are_sent_even_where_the_output_folder_is_shared(start, tmp_path, sees):
    (tmp_path / "notebook").mkdir()
    (tmp_path / "notebook" / "shown.csv").touch()
    node = start(["m.keras"], write_beside, sees=sees, cwd=str(tmp_path / "notebook"))
    assert end(node) == ["work/m.keras"]
    assert sent(node) == m.OutputSent(rank=0)


def test_files_of_the_working_folder_are_reported_where_no_output_is_wanted(start, tmp_path):
    node = start(["m.keras"], write_beside, wanted=False, cwd=str(tmp_path))
    assert end(node) == []
    assert node.all(m.OutputSent) == [m.OutputSent(rank=0, left_out=1, left_out_bytes=7)]


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


def take_events(node, limit_bytes, held=None):
    """Take all event files, as a driver does that cannot see them; return their sizes by name."""
    node.send(m.EventFilesWanted(limit_bytes=limit_bytes, held=held or {}))
    sizes, answered = dict(held or {}), 0

    def drained():
        nonlocal answered
        node.poll()
        for grown in node.all(m.EventFilesGrown)[answered:]:
            for piece in grown.pieces:
                assert piece.offset == sizes.get(piece.name, 0)
                sizes[piece.name] = piece.offset + len(piece.data)
            answered += 1
            node.send(m.EventFilesKept())
        return node.all(m.Drained)

    eventually(drained)
    return sizes


def test_a_driver_that_sees_the_folder_gets_no_event_files_and_the_probe_is_gone(chief, tmp_path):
    node = chief({"train/events.out.tfevents.1": (1, 0)})
    found = node.wait_for(m.EventFilesFound)
    assert (tmp_path / found.probe).exists()
    assert take_events(node, 0) == {}
    assert not (tmp_path / found.probe).exists()


def test_any_other_gets_those_of_this_run_up_to_its_limit_and_the_rest_stays(chief):
    size = 10 << 20
    files = {"a.tfevents": (size, 0), "sub/b.tfevents": (10, 0), "large.tfevents": (3 * size, 0), "m.keras": (5, 0)}
    node = chief({**files, "empty.tfevents": (0, 0), "of-another-run.tfevents": (10, 3600)})
    node.wait_for(m.EventFilesFound)
    assert take_events(node, size + 10) == {"a.tfevents": size, "sub/b.tfevents": 10}
    assert node.all(m.EventFilesSent) == [m.EventFilesSent(rank=0, left_out=1, left_out_bytes=3 * size)]


def test_files_of_nodes_before_a_restart_are_sent_after_those_of_the_last(chief):
    files = {"chief-0-restart-1/b.tfevents": (30, 0), "chief-0-restart-1/c.tfevents": (300, 0)}
    node = chief({**files, "chief-0/a.tfevents": (10, 300), "other-run/a.tfevents": (10, 900)}, age_s=600.0)
    node.wait_for(m.EventFilesFound)
    assert list(take_events(node, 100)) == ["chief-0-restart-1/b.tfevents", "chief-0/a.tfevents"]
    assert node.all(m.EventFilesSent) == [m.EventFilesSent(rank=0, left_out=1, left_out_bytes=300)]


def test_what_the_driver_has_is_not_sent_again(chief):
    node = chief({"a.tfevents": (30, 0), "b.tfevents": (10, 0)})
    node.wait_for(m.EventFilesFound)
    assert take_events(node, 100, held={"a.tfevents": 20, "b.tfevents": 10}) == {"a.tfevents": 30, "b.tfevents": 10}
    [grown] = node.all(m.EventFilesGrown)
    assert [(piece.name, piece.offset, piece.data) for piece in grown.pieces] == [("a.tfevents", 20, b"x" * 10)]


def test_a_file_that_grows_is_sent_while_the_function_runs(run, tmp_path):
    def write(args, ctx):
        path = Path(ctx.log_dir, "a.tfevents")
        for number in range(3):
            with path.open("ab") as file:
                file.write(b"x" * 10)
            while not Path(args, str(number)).exists():
                time.sleep(0.01)

    node = run(write, str(tmp_path), start={"is_chief": True, "log_dir": str(tmp_path)})
    node.wait_for(m.EventFilesFound)
    node.send(m.EventFilesWanted(limit_bytes=1000))
    for number in range(3):

        def grown(number=number):
            node.poll()
            return len(node.all(m.EventFilesGrown)) > number

        eventually(grown)
        [piece] = node.all(m.EventFilesGrown)[number].pieces
        assert (piece.offset, piece.data) == (10 * number, b"x" * 10)
        node.send(m.EventFilesKept())
        (tmp_path / str(number)).touch()
    node.outcome()


def test_without_event_files_nothing_is_sent(chief):
    node = chief({"model.keras": (1, 0), "old.tfevents": (1, 3600)})
    node.wait_for(m.Drained)
    assert not node.all(m.EventFilesFound)
