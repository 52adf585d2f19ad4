"""Output, logs, results and arguments: of nodes that fail or are stopped, in floods, and as large as they may be.

The nodes are on this machine; some tests make them believe that it is another one.
"""

import hashlib
import os
import re
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from tests.faults.conftest import failure_of
from tests.faults.scene import wait_forever, waits_for
from tests.support.eventually import PATIENCE_S, eventually
from tests.support.leftovers import scratch_root
from tests.support.processes import gone
from tests.support.unix_http import write_events
from tfos_lab.core.listener import AgentData, Listener
from tfos_lab.errors import ClusterEnded

pytestmark = pytest.mark.leaves_nothing

CHECKPOINT = {"checkpoints/0.ckpt": bytes(range(256)) * 4096, "ready": b""}


@pytest.fixture(params=["shared", "remote"])
def run_folder(request, monkeypatch):
    """Whether nodes see the run folder."""
    if request.param == "remote":
        make_remote(monkeypatch)
    return request.param


@pytest.fixture
def remote(monkeypatch):
    """Nodes do not see the run folder."""
    make_remote(monkeypatch)


def make_remote(monkeypatch):
    monkeypatch.setattr("tfos_lab.driver.output.make_probe", lambda folder: folder / "no-such-file")


def checkpoint_and(args, ctx):
    """Write a checkpoint, and end as ``args`` say: how, which node, and the file that it waits for."""
    end, node, go = args
    if ctx.is_chief:
        folder = Path(ctx.output_dir, "checkpoints")
        folder.mkdir(exist_ok=True)
        folder.joinpath(f"{ctx.restart}.ckpt").write_bytes(bytes(range(256)) * 4096)
        Path(ctx.output_dir, "ready").touch()
    if ctx.restart:
        return ctx.restart
    if ctx.node != node:
        wait_forever(args, ctx)
    waits_for(go)
    if end == "raise":
        raise ValueError("the loss is not a number")
    os.kill(os.getpid(), 9)
    return None


def content(output):
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def kept_by(cluster, run_folder="remote"):
    """Return the folder that the chief writes to: on a remote host, it is in the agent's own folder."""
    if run_folder == "shared":
        return cluster.run_dir / "output"
    [scratch] = scratch_root().glob(f"{cluster.id}-0-*")
    return scratch / "output"


@pytest.mark.usefixtures("remote")
@pytest.mark.parametrize(("end", "node"), [("raise", "chief:0"), ("kill", "chief:0"), ("raise", "worker:0")])
def test_files_from_before_a_failure_are_here_when_wait_raises(run, end, node, tmp_path):
    cluster = run(checkpoint_and, (end, node, tmp_path / "go"))
    eventually(kept_by(cluster).joinpath("ready").exists)
    (tmp_path / "go").touch()
    failure_of(cluster)
    assert content(cluster.run_dir / "output") == CHECKPOINT
    cluster.stop()
    assert f"output: 2 files of 1.0 MB in {cluster.run_dir / 'output'}" in cluster.view().notes
    assert not list(scratch_root().glob(f"output/{cluster.id}*"))


@pytest.mark.parametrize("grace", [2.0, 0.0])
def test_files_from_before_a_stop_are_here_when_stop_returns(run, run_folder, grace, tmp_path):
    cluster = run(checkpoint_and, ("wait", "chief:0", tmp_path / "never"))
    eventually(kept_by(cluster, run_folder).joinpath("ready").exists)
    cluster.stop(grace=grace)
    assert content(cluster.run_dir / "output") == CHECKPOINT
    with pytest.raises(ClusterEnded):
        cluster.wait()


def test_a_restart_keeps_the_files_of_earlier_nodes(run, run_folder, tmp_path):
    cluster = run(checkpoint_and, ("kill", "chief:0", tmp_path), restarts=1)
    cluster.wait(timeout=120)
    assert sorted(content(cluster.run_dir / "output")) == ["checkpoints/0.ckpt", "checkpoints/1.ckpt", "ready"]


def test_files_that_an_agent_sent_before_it_was_killed_are_here(scene, remote, tmp_path):
    cluster = scene.run(checkpoint_and, ("wait", "chief:0", tmp_path / "never"))
    eventually(lambda: content(cluster.run_dir / "output") == CHECKPOINT)
    scene.agent("chief:0").kill()
    assert failure_of(cluster).kind == "Lost"
    cluster.stop()
    assert content(cluster.run_dir / "output") == CHECKPOINT
    [note] = [note for note in cluster.view().notes if "was lost before" in note]
    assert note.startswith("chief:0 was lost before all of its output had been copied here: what is missing ")


def test_an_agent_that_is_terminated_sends_its_output_first(scene, remote, tmp_path):
    """As happens when Spark ends a node's task because the executor of another one is lost."""
    cluster = scene.run(checkpoint_and, ("wait", "chief:0", tmp_path / "never"))
    eventually(kept_by(cluster).joinpath("ready").exists)
    scene.agent("chief:0").terminate()
    failure_of(cluster)
    cluster.stop()
    assert content(cluster.run_dir / "output") == CHECKPOINT
    assert gone(scene.family.nodes)
    assert not list(scratch_root().glob(f"output/{cluster.id}*"))
    assert not [note for note in cluster.view().notes if "was lost before" in note]


def write_much(sizes, ctx):
    for name, size in sizes.items():
        Path(ctx.output_dir, name).write_bytes(os.urandom(size))
    return {name: hash_of(Path(ctx.output_dir, name)) for name in sizes}


def hash_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def move_in(args, ctx):
    """Move files into the output folder, when a file is there."""
    files, go = args
    waits_for(go)
    for file in files:
        shutil.move(file, ctx.output_dir)


def at_each_piece(monkeypatch, look):
    """Call a function at each piece of a file that arrives; the driver gets those for which it returns true."""
    post = Listener.post

    def take(self, item):
        is_data = isinstance(item, AgentData) and item.data is not None
        if not is_data or msgspec.msgpack.decode(item.data).get("type") != "FilePiece" or look():
            post(self, item)

    monkeypatch.setattr(Listener, "post", take)


def test_large_output_arrives_whole_and_with_progress(run, remote, monkeypatch, tmp_path):
    def look():
        shown.extend(note for note in cluster.view().notes if "copied here" in note)
        return True

    shown = []
    at_each_piece(monkeypatch, look)
    contents = {"large": os.urandom(60 << 20), "small": b"x" * 10, "empty": b""}
    for name, content_of_file in contents.items():
        (tmp_path / name).write_bytes(content_of_file)
    cluster = run(move_in, ([tmp_path / name for name in contents], tmp_path / "go"), cluster_size=1)
    (tmp_path / "go").touch()
    cluster.wait(timeout=120)
    output = cluster.run_dir / "output"
    assert content(output) == contents
    copied = [
        float(size) for size in re.findall(r"output of chief:0: (\S+) MB of 62.9 MB copied here", "\n".join(shown))
    ]
    assert copied == sorted(copied)
    assert len({*copied}) > 10
    assert cluster.view().notes == (f"output: 3 files of 62.9 MB in {output}",)
    assert sorted(path.name for path in output.parent.iterdir()) == ["output", "run.json"]


def remove(folder):
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


def test_files_that_do_not_fit_stay_and_the_cell_says_where(run, remote, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _folder: SimpleNamespace(total=0, free=1000))
    cluster = run(write_much, {"large": 3000, "small": 500})
    hashes = cluster.wait(timeout=120)["chief:0"]
    assert sorted(content(cluster.run_dir / "output")) == ["small"]
    [note] = [note for note in cluster.view().notes if "not copied here" in note]
    told, _, folder = note.rpartition(" in ")
    assert told == (
        "output of chief:0: 1 file of 3,000 bytes was not copied here ("
        f"the disk is nearly full); it is on {cluster.nodes[0].host}"
    )
    assert hash_of(Path(folder, "large")) == hashes["large"]
    remove(Path(folder))


def test_a_second_stop_does_not_wait_for_files(run, remote, monkeypatch, tmp_path):
    """As with a second ■: files that have not arrived stay on the node's host."""
    stuck = threading.Event()

    at_each_piece(monkeypatch, stuck.set)  # which returns None
    cluster = run(checkpoint_and, ("wait", "chief:0", tmp_path / "never"))
    eventually(kept_by(cluster).joinpath("ready").exists)
    first = threading.Thread(target=cluster.stop)
    first.start()
    assert stuck.wait(PATIENCE_S)
    cluster.stop(grace=0.0)
    first.join()
    [kept] = eventually(lambda: list(scratch_root().glob(f"output/{cluster.id}-0-*-chief-0")))
    assert content(kept) == CHECKPOINT
    remove(kept)


def write_scalars(args, ctx):
    """Write event files, as the training loops of two generations do."""
    write, written = args
    if ctx.is_chief:
        write(ctx.event_dir, loss=[3.0, 2.0, 1.0] if ctx.restart == 0 else [0.5])
        written.touch()
    if ctx.restart == 0:
        wait_forever(args, ctx)


@pytest.mark.parametrize("lost", ["child", "agent"])
def test_event_files_of_all_generations_are_copied_here_and_kept_apart(scene, remote, tmp_path, lost):
    far, written = tmp_path / "far", tmp_path / "written"  # an event file is there before its events are in it
    cluster = scene.run(
        write_scalars, (write_events, written), restarts=1, tensorboard=True, log_dir=str(far), cluster_size=1
    )
    eventually(written.exists)
    getattr(scene, lost)(cluster.nodes[0].name).kill()
    cluster.wait(timeout=120)
    cluster.stop()
    there = content(far)
    assert {name.split("/")[0] for name in there} == {"chief-0", "chief-0-restart-1"}
    assert content(cluster.run_dir / "events") == there
    cluster.publisher.close()  # it shows the run's TensorBoard for as long as the kernel lives


# ---- logs -----------------------------------------------------------------------------------------------------------


def test_stdin_read_whole_is_empty_and_a_configured_breakpoint_hook_is_called(run):
    def ask():
        try:
            return input()
        except EOFError:
            os.environ["PYTHONBREAKPOINT"] = "0"
            breakpoint()  # noqa: T100 - that is the test
            return sys.stdin.read(), list(sys.stdin), sys.stdin.isatty()

    assert run(ask, cluster_size=1).wait(timeout=120)["chief:0"] == ("", [], False)


def test_many_lines_and_a_long_one_arrive_whole_without_being_held_in_memory(run):
    lines, count, long = b"x" * 99 + b"\n", 2_500_000, 50_000_000

    def map_fun(args, ctx):
        sys.stdout.buffer.write(b"y" * long + b"\n")
        for _ in range(count // 10_000):
            sys.stdout.buffer.write(lines * 10_000)

    before = psutil.Process().memory_info().rss
    cluster = run(map_fun, cluster_size=1)
    cluster.wait(timeout=240)
    grown = psutil.Process().memory_info().rss - before
    path = cluster.run_dir / "chief-0.log"
    try:
        assert path.stat().st_size == count * len(lines) + long + 1
        assert cluster.logs("chief:0", tail=2) == "\n".join(["x" * 99] * 2)
        assert grown < 40_000_000
    finally:
        path.unlink()


def test_random_bytes_arrive_unchanged_and_are_shown_as_text(run):
    def map_fun(args, ctx):
        garbage = os.urandom(1 << 20)
        sys.stdout.buffer.write(garbage)
        return garbage

    cluster = run(map_fun)
    for node, garbage in cluster.wait(timeout=120).items():
        assert (cluster.run_dir / f"{node.replace(':', '-')}.log").read_bytes() == garbage
    assert isinstance(cluster.logs(), str)


def test_a_flood_of_reports_is_thinned_on_the_node_and_told_once(run):
    def map_fun(count, ctx):
        for step in range(count):
            ctx.report(step, loss=1.0)

    cluster = run(map_fun, 50_000)
    cluster.wait(timeout=120)
    for node in ("chief:0", "worker:0"):
        steps = cluster.metrics.query("node == @node")["step"]
        assert 1000 <= len(steps) < 25_000
        assert steps.iloc[-1] == 49_999
        assert cluster.logs(node).count("ctx.report is called more than") == 1


# ---- results and arguments ------------------------------------------------------------------------------------------


def return_much(args, ctx):
    import numpy as np

    return {"rank": ctx.rank, "weights": np.arange(8 << 20)}


def test_a_large_result_comes_in_pieces_where_the_run_s_folder_is_on_another_disk(run, monkeypatch):
    disk = Path("/dev/shm")
    if not os.access(disk, os.W_OK) or disk.stat().st_dev == scratch_root().stat().st_dev:
        pytest.skip("there is no other disk")
    with tempfile.TemporaryDirectory(dir=disk) as folder:
        monkeypatch.setenv("TFOS_LAB_RUNS", folder)
        cluster = run(return_much)
        results = cluster.wait(timeout=120)
        stored = cluster.run_dir / "results"
        assert {path.name for path in stored.iterdir()} == {"chief-0", "worker-0"}
        assert [value["rank"] for value in results.values()] == [0, 1]
        assert all(int(value["weights"][-1]) == (8 << 20) - 1 for value in results.values())
        assert not list(stored.iterdir())


def test_large_arguments_arrive_whole_and_leave_no_file(run):
    args = bytes(range(256)) * (1 << 17)
    cluster = run(lambda args, ctx: (sum(args[:: 1 << 20]), len(args)), args, cluster_size=3)
    assert set(cluster.wait(timeout=120).values()) == {(sum(args[:: 1 << 20]), 32 << 20)}
    eventually(lambda: not list(scratch_root().glob(f"{cluster.id}-*/payload")))
