"""Files of a node on their way to the notebook: which are listed, when, how they are kept, and the event files."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from tests.node.conftest import launch_spec
from tests.support.eventually import eventually
from tfos_lab.core import messages as m
from tfos_lab.node import failure_note
from tfos_lab.node.files.listed import read_piece
from tfos_lab.node.files.working_folder import WorkingFolder


def take(node, is_over, *, folder="output", left_out=0, sees=False, keeps=lambda _piece: True):
    """Fetch all settled files of each list, as a driver does that sees none; return their contents by name.

    Go on until something is there; what is asked for and does not come whole is left out.
    """
    contents, answered = {}, 0

    def fetch(listed, file):
        node.send(m.PieceWanted(folder, file.name, 0, file.size_bytes, file.changed_ns))
        piece = node.wait_for(m.FilePiece, lambda piece: piece.name == file.name)
        node.received.remove(piece)
        if not piece.problem and keeps(piece):
            contents[file.name] = piece.data

    def answer():
        nonlocal answered
        node.poll()
        for listed in [listed for listed in node.all(m.FilesListed) if listed.folder == folder][answered:]:
            answered += 1
            for file in [] if sees else listed.files:
                if (file.settled or listed.last) and len(contents.get(file.name, b"")) != file.size_bytes:
                    fetch(listed, file)
            missing = sum(len(contents.get(file.name, b"-" * 1_000_000)) != file.size_bytes for file in listed.files)
            node.send(m.FilesTaken(folder, listed.number, left_out=left_out or (0 if sees else missing), sees=sees))
        return is_over()

    eventually(answer)
    return contents


def last_list(node):
    """Return the list of files at the end."""
    return [listed for listed in node.all(m.FilesListed) if listed.last][-1]


def settled(node):
    """Return what the node says at the end of its output."""
    return node.all(m.OutputSettled)[-1]


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
    """A function that runs a chief that writes files: ``start(files, map_fun=write, sees=, …)``."""
    cluster_id = f"c-{tmp_path.name[-20:]}"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "probe").touch()

    def start(files, map_fun=write, *, go=None, sees=False, wanted=True, **spec):
        output = {
            "output_dir": str(tmp_path / "run" / "output") if wanted else "",
            "output_probe": str(tmp_path / "run" / ("probe" if sees else "nothing")),
        }
        args = (files, go) if map_fun is write else files
        return run(map_fun, args, start=output, cluster_id=cluster_id, **spec)

    yield start
    for left in Path(tempfile.gettempdir()).glob(f"tfos_lab-*/output/{cluster_id}-*"):
        shutil.rmtree(left)


def end(node, **taking):
    """Let the function end, and take what it has written."""
    node.outcome()
    node.send(m.Finish(grace_s=5.0))
    return take(node, lambda: node.all(m.Drained), **taking)


@pytest.mark.parametrize("sees", [True, False], ids=["it sees the folder", "no output is wanted"])
def test_a_node_writes_where_the_driver_sees_it_and_sends_nothing(start, tmp_path, sees):
    node = start({"m": (b"x", 10)}, sees=sees, wanted=sees)
    assert end(node) == {}
    assert not node.all(m.FilesListed)
    assert [(told.rank, told.place) for told in node.all(m.OutputOpened)] == ([(0, "")] if sees else [])
    assert (tmp_path / "run" / "output" / "m").exists() == sees


def test_files_are_listed_while_the_function_works_and_at_its_end(start, tmp_path):
    files = {"done.keras": (b"x", 10), "deep/er/done.txt": (b"text", 10), "growing.log": (b"x", -1000)}
    node = start(files, go=tmp_path / "go")
    found = take(node, lambda: any(len(listed.files) == 3 for listed in node.all(m.FilesListed)))
    assert found == {"done.keras": b"x", "deep/er/done.txt": b"text"}
    first = node.all(m.FilesListed)[-1]
    assert sorted((file.name, file.size_bytes, file.settled) for file in first.files) == [
        ("deep/er/done.txt", 4, True),
        ("done.keras", 1, True),
        ("growing.log", 1, False),
    ]
    (tmp_path / "go").touch()
    assert end(node)["growing.log"] == b"x"
    assert (last_list(node).links, settled(node)) == (0, m.OutputSettled(rank=0))
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


def test_files_that_have_changed_and_gone_are_listed_as_they_are(start, tmp_path):
    node = start(str(tmp_path), change)
    take(node, lambda: any(len(listed.files) == 2 for listed in node.all(m.FilesListed)))
    [before] = [file for file in node.all(m.FilesListed)[-1].files if file.name == "best.keras"]
    (tmp_path / "go").touch()
    assert end(node) == {"best.keras": b"better"}
    [after] = last_list(node).files
    assert (after.name, after.size_bytes) == ("best.keras", 6)
    assert after.changed_ns > before.changed_ns


def test_a_list_is_sent_once_for_as_long_as_nothing_changes(start, tmp_path):
    node = start({"m": (b"x", 100)}, go=tmp_path / "go")
    take(node, lambda: len(node.all(m.FilesListed)) == 1)
    for _ in range(4):
        assert node.beats()
    assert len(node.all(m.FilesListed)) == 1
    (tmp_path / "go").touch()
    assert end(node) == {"m": b"x"}


def test_a_large_file_comes_in_pieces_while_the_node_lives(start):
    data = os.urandom(20 << 20)
    node = start({"large": (data, 10)})
    node.outcome()
    node.send(m.Finish(grace_s=5.0))
    listed = node.wait_for(m.FilesListed, lambda listed: listed.last)
    [file] = listed.files
    for offset in range(0, len(data), m.PIECE_BYTES):
        node.send(m.PieceWanted("output", "large", offset, m.PIECE_BYTES, file.changed_ns))
    eventually(lambda: node.poll() or len(node.all(m.FilePiece)) == len(data) // m.PIECE_BYTES)
    assert b"".join(piece.data for piece in node.all(m.FilePiece)) == data
    assert node.beats()
    node.send(m.FilesTaken("output", listed.number))
    node.wait_for(m.Drained)


def test_an_answer_to_another_list_is_none(start):
    node = start({"m": (b"x", 0)})
    node.outcome()
    node.send(m.Finish(grace_s=5.0))
    listed = node.wait_for(m.FilesListed, lambda listed: listed.last)
    node.send(m.FilesTaken("output", listed.number - 1))
    node.wait_for(m.Heartbeat)
    assert not node.all(m.OutputSettled)
    node.send(m.FilesTaken("output", listed.number))
    node.wait_for(m.Drained)


def test_a_file_that_has_changed_since_it_was_listed_is_not_sent(tmp_path):
    path = tmp_path / "m"
    path.write_bytes(b"first")
    wanted = m.PieceWanted("output", "m", 0, 5, path.stat().st_mtime_ns)
    assert read_piece(0, wanted, path).data == b"first"
    os.utime(path, (0, 0))
    assert read_piece(0, wanted, path) == m.FilePiece(0, "output", "m", 0, b"", "it changed while it was read")
    assert read_piece(0, m.PieceWanted("output", "m", 0, 6), path).problem == "it changed while it was read"
    assert read_piece(0, wanted, tmp_path / "gone").problem == "No such file or directory"


def test_partial_files_of_our_own_and_what_links_lead_to_are_not_listed(start):
    partial = {".tfos-partial-model.keras": (b"x", 10), ".tfos-partial-model/variables": (b"x", 10)}
    node = start({**partial, "m": (b"x", 0), "link": ("/etc/hostname", 0), "folder": ("/etc", 0)})
    assert end(node) == {"m": b"x"}
    assert last_list(node).links == 2


def test_a_link_that_takes_the_place_of_a_listed_file_is_not_followed(tmp_path):
    (tmp_path / "own").write_bytes(b"own")
    (tmp_path / "two").symlink_to(tmp_path / "own")
    assert read_piece(0, m.PieceWanted("output", "two", 0, 3), tmp_path / "two").data == b""


def test_what_the_driver_does_not_take_is_kept_on_the_host_and_replaces_nothing(start):
    node = start({"old.keras": (b"x" * 8, 100), "new.keras": (b"y" * 9, 50)})
    announced = Path(node.wait_for(m.OutputOpened).place)
    (announced.parent / "other").touch()
    end(node, left_out=1)
    place = Path(settled(node).place)
    assert place == announced
    node.end()
    assert sorted(path.name for path in place.iterdir()) == ["new.keras", "old.keras"]
    (announced.parent / "other").unlink()


@pytest.mark.parametrize("is_taken", [True, False])
def test_an_agent_that_ends_early_keeps_files_that_the_driver_does_not_have(start, tmp_path, is_taken):
    node = start({"m": (b"x", 10)}, go=tmp_path / "never")
    place = Path(node.wait_for(m.OutputOpened).place)
    node.wait_for(m.FilesListed)
    if is_taken:
        take(node, node.beats)
    node.close()
    assert (place / "m").exists() != is_taken


def test_files_that_the_driver_could_not_store_are_kept(start):
    node = start({"m": (b"x", 0)})
    end(node, keeps=lambda _piece: False)
    node.end()
    assert Path(settled(node).place, "m").exists()


# ---- the working folder ---------------------------------------------------------------------------------------------


def write_beside(names, ctx):
    for name in names:
        Path(name).write_text(name)


@pytest.mark.parametrize("sees", [True, False])
def test_files_of_the_working_folder_are_listed_even_where_the_output_folder_is_shared(start, tmp_path, sees):
    (tmp_path / "notebook").mkdir()
    (tmp_path / "notebook" / "shown.csv").touch()
    node = start(["m.keras"], write_beside, sees=sees, cwd=str(tmp_path / "notebook"))
    assert end(node) == {"work/m.keras": b"m.keras"}
    assert settled(node) == m.OutputSettled(rank=0)


def test_files_of_the_working_folder_are_reported_where_no_output_is_wanted(start, tmp_path):
    node = start(["m.keras"], write_beside, wanted=False, cwd=str(tmp_path))
    assert end(node) == {}
    assert node.all(m.OutputSettled) == [m.OutputSettled(rank=0, dropped=1, dropped_bytes=7)]


def working_folder(root, name, cwd):
    """Make the working folder of a node of a user whose folder this is; return its path."""
    (root / name).mkdir(parents=True)
    return Path(WorkingFolder(root / name).make(launch_spec(cwd=str(cwd))))


def test_nodes_and_runs_share_the_links_to_what_is_in_a_folder(tmp_path):
    notebook, user = tmp_path / "notebook", tmp_path / "user"
    (notebook / "sub").mkdir(parents=True)
    for name in ("a.csv", "sub/b.csv"):
        (notebook / name).write_text(name)
    first, second = (working_folder(user, f"c-{rank}-1", notebook) for rank in range(2))
    for name in ("a.csv", "sub/b.csv"):
        assert (second / name).read_text() == name
        assert os.path.samestat((first / name).lstat(), (second / name).lstat())
    # What is there since, or is there again, or elsewhere by the same name, is linked as it is.
    (notebook / "c.csv").touch()
    (first / "a.csv").unlink()
    shutil.rmtree(user / "links")
    third = working_folder(user, "d-0-1", notebook)
    assert sorted(path.name for path in third.iterdir()) == ["a.csv", "c.csv", "sub"]
    other = working_folder(user, "e-0-1", notebook / "sub")
    assert [path.readlink() for path in other.iterdir()] == [notebook / "sub/b.csv"]


def test_links_that_are_a_day_old_go_when_others_are_made(tmp_path):
    user = tmp_path / "user"
    for number in range(2):
        (tmp_path / f"notebook{number}").mkdir()
    working_folder(user, "c-0-1", tmp_path / "notebook0")
    [old] = (user / "links").iterdir()
    os.utime(old, (time.time() - 90_000.0,) * 2)
    working_folder(user, "d-0-1", tmp_path / "notebook1")
    [new] = (user / "links").iterdir()
    assert new != old


def test_what_runs_leave_for_a_day_is_not_looked_through_by_later_nodes(tmp_path):
    """They look through the user's folder, where it is two entries, however much there is."""
    for number in range(20):
        (tmp_path / f"notebook{number}").mkdir()
        node = tmp_path / "user" / f"c-{number}-1"
        working_folder(node.parent, node.name, tmp_path / f"notebook{number}")
        failure_note.leave(node, "it is full")
        shutil.rmtree(node)
        assert failure_note.recall(node) == "it is full"
    assert {path.name for path in (tmp_path / "user").iterdir()} == {"links", "failed"}


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


def listed_events(node):
    """Return the names and sizes in the list of event files at the end."""
    return [(file.name, file.size_bytes) for file in last_list(node).files]


def test_a_driver_that_sees_the_folder_is_asked_no_more_and_the_probe_is_gone(chief, tmp_path):
    node = chief({"train/events.out.tfevents.1": (1, 0)})
    probe = node.wait_for(m.FilesListed).probe
    assert (tmp_path / probe).exists()
    take(node, lambda: node.all(m.Drained), folder="events", sees=True)
    assert not (tmp_path / probe).exists()
    assert len({listed.number for listed in node.all(m.FilesListed)}) == 1


def test_any_other_is_listed_those_of_this_run_the_smallest_first(chief):
    files = {"a.tfevents": (1_000, 0), "sub/b.tfevents": (10, 0), "large.tfevents": (3_000, 0), "m.keras": (5, 0)}
    node = chief({**files, "empty.tfevents": (0, 0), "of-another-run.tfevents": (10, 3600)})
    contents = take(node, lambda: node.all(m.Drained), folder="events")
    assert listed_events(node) == [("sub/b.tfevents", 10), ("a.tfevents", 1_000), ("large.tfevents", 3_000)]
    assert {name: len(data) for name, data in contents.items()} == dict(listed_events(node))


def test_files_of_nodes_before_a_restart_are_listed_after_those_of_the_last(chief):
    files = {"chief-0-restart-1/b.tfevents": (30, 0), "chief-0-restart-1/c.tfevents": (300, 0)}
    node = chief({**files, "chief-0/a.tfevents": (10, 300), "other-run/a.tfevents": (10, 900)}, age_s=600.0)
    take(node, lambda: node.all(m.Drained), folder="events")
    assert [name for name, _ in listed_events(node)] == [
        "chief-0-restart-1/b.tfevents",
        "chief-0-restart-1/c.tfevents",
        "chief-0/a.tfevents",
    ]


def test_a_file_that_grows_is_listed_while_the_function_runs_and_read_from_where_it_ended(run, tmp_path):
    def write(args, ctx):
        path = Path(ctx.log_dir, "a.tfevents")
        for number in range(3):
            with path.open("ab") as file:
                file.write(b"x" * 10)
            while not Path(args, str(number)).exists():
                time.sleep(0.01)

    node = run(write, str(tmp_path), start={"is_chief": True, "log_dir": str(tmp_path)})
    for number in range(3):
        size = 10 * (number + 1)
        listed = node.wait_for(m.FilesListed, lambda listed, size=size: listed.files[0].size_bytes == size)
        node.send(m.PieceWanted("events", "a.tfevents", size - 10, 10))
        piece = node.wait_for(m.FilePiece, lambda piece, size=size: piece.offset == size - 10)
        assert piece.data == b"x" * 10
        node.send(m.FilesTaken("events", listed.number))
        (tmp_path / str(number)).touch()
    node.outcome()


def test_a_driver_that_does_not_answer_is_not_waited_for(chief):
    node = chief({"a.tfevents": (1, 0)})
    node.wait_for(m.FilesListed)
    node.wait_for(m.Drained)


def test_without_event_files_nothing_is_listed(chief):
    node = chief({"model.keras": (1, 0), "old.tfevents": (1, 3600)})
    node.wait_for(m.Drained)
    assert not node.all(m.FilesListed)
