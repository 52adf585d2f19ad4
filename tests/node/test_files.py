"""Files of a node on their way to the notebook: which are listed, when, how they are kept, and the event files."""

import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tfos_lab.core import messages as m


def take(node, is_over, *, folder="output", left_out=0, keeps=lambda _piece: True):
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
            for file in listed.files:
                if (file.settled or listed.last) and len(contents.get(file.name, b"")) != file.size_bytes:
                    fetch(listed, file)
            missing = sum(len(contents.get(file.name, b"-" * 1_000_000)) != file.size_bytes for file in listed.files)
            node.send(m.FilesTaken(folder, listed.number, left_out=left_out or missing))
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
    cluster_id = f"c-{os.getpid()}-{tmp_path.name[-12:]}"
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


def output_folders(tmp_path):
    """Return the folders on the node's host that functions of this test write to."""
    return list(Path(tempfile.gettempdir()).glob(f"tfos_lab-*/c-{os.getpid()}-{tmp_path.name[-12:]}-*/output"))


def end(node, **taking):
    """Let the function end, and take what it has written."""
    node.outcome()
    node.send(m.Finish(grace_s=5.0))
    return take(node, lambda: node.all(m.Drained), **taking)


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
    assert (last_list(node).links, settled(node)) == (0, m.OutputSettled())
    assert not Path(last_list(node).place).exists()


def open_output(_args, ctx):
    assert ctx.output_dir
    time.sleep(3600)


def test_a_function_that_has_asked_for_its_folder_has_it_listed_while_it_is_empty(start):
    assert start(None, open_output).wait_for(m.FilesListed).files == []


def test_a_node_that_sees_the_run_s_folder_lists_nothing(start, tmp_path):
    node = start({"m": (b"x", 10)}, sees=True)
    assert end(node) == {}
    assert not node.all(m.FilesListed)
    assert (tmp_path / "run" / "output" / "m").read_bytes() == b"x"


def test_an_answer_to_another_list_is_none(start):
    node = start({"m": (b"x", 0)})
    node.outcome()
    node.send(m.Finish(grace_s=5.0))
    listed = node.wait_for(m.FilesListed)
    node.send(m.FilesTaken("output", listed.number - 1))
    assert node.beats()
    assert node.all(m.FilesListed) == [listed]
    take(node, lambda: node.all(m.Drained))


def test_partial_files_of_our_own_and_what_links_lead_to_are_not_listed(start):
    partial = {".tfos-partial-model.keras": (b"x", 10), ".tfos-partial-model/variables": (b"x", 10)}
    node = start({**partial, "m": (b"x", 0), "link": ("/etc/hostname", 0), "folder": ("/etc", 0)})
    assert end(node) == {"m": b"x"}
    assert last_list(node).links == 2


def test_what_has_changed_since_it_was_listed_or_is_a_link_now_is_not_sent(start, tmp_path):
    node = start({"changed": (b"first", 10), "two": (b"own", 10)}, go=tmp_path / "never")
    take(node, lambda: any(len(one.files) == 2 for one in node.all(m.FilesListed)))
    listed = {file.name: file for file in node.wait_for(m.FilesListed, lambda one: len(one.files) == 2).files}
    [place] = output_folders(tmp_path)
    os.utime(place / "changed", (0, 0))
    (place / "two").unlink()
    (place / "two").symlink_to(place / "changed")
    for name, changed_ns in {"changed": listed["changed"].changed_ns, "two": 0}.items():
        node.send(m.PieceWanted("output", name, 0, 3, changed_ns))
        piece = node.wait_for(m.FilePiece, lambda piece, name=name: piece.name == name)
        assert piece.data == b""
        assert piece.problem
    node.close()  # what it keeps goes with the other files of the test


def test_what_the_driver_does_not_take_is_kept_on_the_host_and_replaces_nothing(start):
    node = start({"old.keras": (b"x" * 8, 100), "new.keras": (b"y" * 9, 50)})
    announced = Path(node.wait_for(m.FilesListed).place)
    (announced.parent / "other").touch()
    end(node, left_out=1)
    place = Path(settled(node).place)
    assert place == announced
    node.end()
    assert sorted(path.name for path in place.iterdir()) == ["new.keras", "old.keras"]
    (announced.parent / "other").unlink()


def test_an_agent_that_ends_early_keeps_files_that_the_driver_does_not_have(start, tmp_path):
    nodes = [start({"m": (b"x", 10)}, go=tmp_path / "never") for _ in ("has it", "leaves it out", "does not answer")]
    eventually(lambda: sum((folder / "m").exists() for folder in output_folders(tmp_path)) == len(nodes))
    for node, keeps in zip(nodes, (True, False), strict=False):
        take(
            node,
            lambda node=node: any(listed.files for listed in node.all(m.FilesListed)),
            keeps=lambda _piece, keeps=keeps: keeps,
        )
    places = [Path(node.wait_for(m.FilesListed).place) for node in nodes]
    for node in nodes:
        node.agent.leave()  # all at once, as they wait a while for their driver
    for node in nodes:
        node.close()
    assert [(place / "m").exists() for place in places] == [False, True, True]


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


def test_a_driver_that_sees_the_folder_is_not_asked(chief, tmp_path):
    (tmp_path / "probe").touch()
    node = chief({"train/events.out.tfevents.1": (1, 0)}, events_probe=str(tmp_path / "probe"))
    node.wait_for(m.Drained)
    assert not node.all(m.FilesListed)


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


def test_a_driver_that_does_not_answer_is_not_waited_for(chief):
    node = chief({"a.tfevents": (1, 0)})
    node.wait_for(m.FilesListed)
    node.wait_for(m.Drained)


def test_without_event_files_nothing_is_listed(chief):
    node = chief({"model.keras": (1, 0), "old.tfevents": (1, 3600)})
    node.wait_for(m.Drained)
    assert not node.all(m.FilesListed)


# ---- a remote log_dir -----------------------------------------------------------------------------------------------


class SlowStore:
    """Takes each file byte by byte, one whenever the test says so."""

    def __init__(self):
        self.next, self.taken, self.files = threading.Semaphore(0), 0, {}

    def put(self, source, path, on_block):
        data = b""
        for byte in source.read_bytes():
            self.next.acquire()
            data += bytes([byte])
            on_block()
            self.taken += 1
        self.files[path] = data


def write_one(args, ctx):
    Path(ctx.event_dir).mkdir(parents=True)
    Path(ctx.event_dir, "a.tfevents").write_bytes(b"12345")


def test_a_store_is_waited_for_while_it_takes_files_and_the_driver_hears_of_it(run, monkeypatch):
    store, now = SlowStore(), [1_000.0]
    monkeypatch.setattr("tfos_lab.gfile.store_of", lambda _address: (store, "logs"))
    monkeypatch.setattr("tfos_lab.node.files.remote_log.time", SimpleNamespace(monotonic=lambda: now[0]))
    for name, value in QUICK_ENV.items():
        monkeypatch.setenv(name, value)  # the agent, a thread here, takes its node's environment to ask the store
    node = run(write_one, start={"log_dir": "slow://logs"})
    node.outcome()
    node.send(m.Finish(grace_s=5.0))
    for taken in range(5):
        eventually(lambda taken=taken: node.poll() or len(node.all(m.EventFilesPut)) == taken + 1)
        assert not node.all(m.Drained)
        store.next.release()
        eventually(lambda taken=taken: store.taken == taken + 1)
        now[0] += 9.0  # less than a store has for each part, and together more
    node.wait_for(m.Drained)
    assert store.files == {"logs/a.tfevents": b"12345"}
    assert not any(message.problem for message in node.all(m.EventFilesPut))
