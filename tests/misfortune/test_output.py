"""Output files of nodes that failed, were stopped or were killed: the notebook gets them from every host.

The nodes are on this machine; some tests make them believe that it is another one.
"""

from __future__ import annotations

import hashlib
import threading
import time
from pathlib import Path

import pytest

from tests.misfortune.conftest import PATIENCE_S, Family, failure_of
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.errors import ClusterEnded

pytestmark = pytest.mark.leaves_nothing


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
    monkeypatch.setattr("tfos_lab.engine.run_dir.RunDir.make_probe", lambda run_dir: run_dir.path / "no-such-file")


def checkpoint_and(args, ctx):
    """Write a checkpoint, and end as ``args`` say: how, which node, and the file that it waits for."""
    import os
    import signal
    import threading
    import time
    from pathlib import Path

    end, node, go = args
    if ctx.is_chief:
        folder = Path(ctx.output_dir, "checkpoints")
        folder.mkdir(exist_ok=True)
        folder.joinpath(f"{ctx.restart}.ckpt").write_bytes(bytes(range(256)) * 4096)
        Path(ctx.output_dir, "ready").touch()
    if ctx.restart or ctx.node != node:
        return ctx.restart or threading.Event().wait()
    while not go.exists():
        time.sleep(0.02)
    if end == "raise":
        raise ValueError("the loss is not a number")
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "exit":
        os._exit(3)
    return None


def content(output):
    return {path.relative_to(output).as_posix(): path.read_bytes() for path in output.rglob("*") if path.is_file()}


CHECKPOINT = {"checkpoints/0.ckpt": bytes(range(256)) * 4096, "ready": b""}


@pytest.mark.parametrize("end", ["raise", "kill", "exit"])
def test_files_from_before_a_failure_are_here_when_wait_raises(run, run_folder, end, tmp_path):
    cluster = run(checkpoint_and, (end, "chief:0", tmp_path / "go"))
    (tmp_path / "go").touch()
    failure_of(cluster)
    assert content(cluster.run_dir / "output") == CHECKPOINT
    cluster.stop()
    assert f"output: 2 files of 1.0 MB in {cluster.run_dir / 'output'}" in cluster.view().notes
    assert not (scratch_root() / "output").exists() or not list((scratch_root() / "output").glob(f"{cluster.id}*"))


def test_the_chief_s_files_are_here_when_another_node_fails(run, run_folder, tmp_path):
    cluster = run(checkpoint_and, ("raise", "worker:0", tmp_path / "go"))
    until(lambda: output_of(cluster, run_folder).joinpath("ready").exists())
    (tmp_path / "go").touch()
    failure_of(cluster)
    assert content(cluster.run_dir / "output") == CHECKPOINT


@pytest.mark.parametrize("grace_s", [2.0, 0.0])
def test_files_from_before_a_stop_are_here_when_stop_returns(run, run_folder, grace_s, tmp_path):
    cluster = run(checkpoint_and, ("wait", "chief:0", tmp_path / "never"))
    until(lambda: output_of(cluster, run_folder).joinpath("ready").exists())
    cluster.stop(grace_s=grace_s)
    assert content(cluster.run_dir / "output") == CHECKPOINT
    with pytest.raises(ClusterEnded):
        cluster.wait()


def test_a_restart_keeps_the_files_of_earlier_nodes(run, run_folder, tmp_path):
    cluster = run(checkpoint_and, ("kill", "chief:0", tmp_path), restarts=1)
    cluster.wait(timeout_s=120)
    assert sorted(content(cluster.run_dir / "output")) == ["checkpoints/0.ckpt", "checkpoints/1.ckpt", "ready"]


def test_files_that_an_agent_sent_before_it_was_killed_are_here(run, remote, tmp_path):
    cluster = run(checkpoint_and, ("wait", "chief:0", tmp_path / "never"))
    until(lambda: content(cluster.run_dir / "output") == CHECKPOINT)
    Family.of(cluster).agents[0].kill()
    assert failure_of(cluster).kind == "Lost"
    cluster.stop()
    assert content(cluster.run_dir / "output") == CHECKPOINT
    [note] = [note for note in cluster.view().notes if "was lost before" in note]
    assert note.startswith("chief:0 was lost before all of its output had been copied here: what is missing ")


def test_an_agent_that_is_terminated_sends_its_output_first(run, remote, tmp_path):
    """As happens when Spark ends a node's task because the executor of another one is lost."""
    cluster = run(checkpoint_and, ("wait", "chief:0", tmp_path / "never"))
    until(lambda: output_of(cluster, "remote").joinpath("ready").exists())
    family = Family.of(cluster)
    family.agents[0].terminate()
    failure_of(cluster)
    cluster.stop()
    assert content(cluster.run_dir / "output") == CHECKPOINT
    assert family.all_gone()
    assert not list((scratch_root() / "output").glob(f"{cluster.id}*"))
    assert not [note for note in cluster.view().notes if "was lost before" in note]


def write_much(args, ctx):
    import os
    from pathlib import Path

    for name, size in args.items():
        Path(ctx.output_dir, name).write_bytes(os.urandom(size))
    return {name: hash_of(Path(ctx.output_dir, name)) for name in args}


def hash_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_large_output_arrives_whole_and_with_progress(run, remote):
    sizes = {"large": 60 << 20, "small": 10, "empty": 0}
    cluster = run(write_much, sizes)
    hashes = cluster.wait(timeout_s=120)["chief:0"]
    output = cluster.run_dir / "output"
    assert {name: hash_of(output / name) for name in sizes} == hashes
    *coming, last = [event for event in cluster.events if type(event).__name__ == "OutputProgressed"]
    shown = [event.size_bytes for event in coming]
    assert shown == sorted(shown)
    assert {event.node for event in coming} == {"chief:0"}
    assert max(event.size_bytes for event in coming) == coming[-1].total_bytes == sum(sizes.values())
    assert (last.complete, last.files, last.size_bytes) == (True, 3, sum(sizes.values()))
    assert sorted(path.name for path in output.parent.iterdir()) == ["output", "run.json"]


def test_files_beyond_the_limit_stay_and_the_cell_says_where(run, remote):
    cluster = run(write_much, {"large": 3000, "small": 500}, output_limit_bytes=1000)
    hashes = cluster.wait(timeout_s=120)["chief:0"]
    assert sorted(content(cluster.run_dir / "output")) == ["small"]
    [note] = [note for note in cluster.view().notes if "not copied here" in note]
    told, _, folder = note.rpartition(" in ")
    assert told == (
        "output of chief:0: 1 file of 3,000 bytes was not copied here ("
        f"output_limit_bytes=1,000 is reached); it is on {cluster.nodes[0].host}"
    )
    assert hash_of(Path(folder, "large")) == hashes["large"]
    for path in Path(folder).iterdir():
        path.unlink()
    Path(folder).rmdir()


def test_a_second_stop_does_not_wait_for_files(run, remote, monkeypatch, tmp_path):
    """As with a second ■: files that have not arrived stay on the node's host."""
    stuck = threading.Event()

    def keep_nothing(_self, _piece):
        stuck.set()
        return []

    monkeypatch.setattr("tfos_lab.engine.files.receiver.FileReceiver.take", keep_nothing)
    monkeypatch.setattr("tfos_lab.engine.generations.STOP_EXTRA_S", 1.0)
    cluster = run(checkpoint_and, ("wait", "chief:0", tmp_path / "never"))
    until(lambda: output_of(cluster, "remote").joinpath("ready").exists())
    first = threading.Thread(target=cluster.stop)
    first.start()
    assert stuck.wait(PATIENCE_S)
    cluster.stop(grace_s=0.0)
    first.join(PATIENCE_S)
    assert not first.is_alive()
    [kept] = until(lambda: list((scratch_root() / "output").glob(f"{cluster.id}-0-*-chief-0")))
    assert content(kept) == CHECKPOINT
    for path in (*kept.glob("checkpoints/*"), kept / "ready"):
        path.unlink()
    (kept / "checkpoints").rmdir()
    kept.rmdir()


def output_of(cluster, run_folder):
    """Return the folder that the chief writes to: on a remote host, it is in the agent's own folder."""
    if run_folder == "shared":
        return cluster.run_dir / "output"
    [scratch] = scratch_root().glob(f"{cluster.id}-0-*")
    return scratch / "output"


def until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return result
