"""The working folder of each node, on every back end: what it shows, and what becomes of the files written there."""

import functools
import getpass
import os
from pathlib import Path

import pytest

import tfos_lab
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tfos_lab.errors import NodeFailed

pytestmark = pytest.mark.leaves_nothing


@pytest.fixture
def run(run, back_end):
    """The functions need no TensorFlow."""
    return run if back_end.is_inline else functools.partial(run, env=QUICK_ENV)


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """The folder where the program is launched, with a file in it."""
    folder = tmp_path / "notebook"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "x.csv").write_text("1,2")
    monkeypatch.chdir(folder)
    return folder


def write_model(args, ctx):
    """Write a model by a relative path, as programs do that were written for one node; and a file of the output."""
    Path(ctx.output_dir, "who.txt").write_text(ctx.node)
    Path("model").mkdir()
    Path("model", "weights").write_text(ctx.node)
    data = Path("data", "x.csv")
    return {
        "folder": str(Path.cwd()),
        "pwd": os.path.realpath(os.environ.get("PWD", Path.cwd())),
        "written": Path("model", "weights").read_text(),
        "read": data.read_text() if data.exists() else None,
        "working_dir": ctx.working_dir,
        "absolute": ctx.absolute_path("model"),
    }


def stays_in_the_notebook_s_folder(back_end, node):
    return back_end.is_inline or (back_end.launcher != "spark" and node == "chief:0")


def copies(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_nodes_that_write_the_same_relative_path_do_not_collide_and_know_the_notebook_s_folder(back_end, run, notebook):
    cluster = run(write_model, cluster_size=min(3, back_end.ranks), collect="all")
    results = cluster.wait(timeout=100)
    cluster.stop()
    assert len({result["folder"] for result in results.values()}) == len(results)
    for node, result in results.items():
        assert result["written"] == node
        assert (result["folder"] == str(notebook)) == stays_in_the_notebook_s_folder(back_end, node)
        assert result["working_dir"] == str(notebook)
        assert result["read"] == (None if back_end.launcher == "spark" else "1,2")
        if not back_end.is_inline:
            assert result["pwd"] == result["folder"] or result["folder"] == str(notebook)
        absolute = result["absolute"]  # where TensorFlowOnSpark puts a relative path: in the file system of Hadoop
        if back_end.name == "yarn":
            assert absolute.startswith("hdfs://")
            assert absolute.endswith(f"/user/{getpass.getuser()}/model")
        else:
            assert absolute == f"file://{notebook}/model"
    folders = {node: "" if node == "chief:0" else node.replace(":", "-") + "/" for node in results}
    expected = {f"{folder}who.txt": node for node, folder in folders.items()} | {
        f"{folder}work/model/weights": node
        for node, folder in folders.items()
        if not stays_in_the_notebook_s_folder(back_end, node)
    }
    assert copies(cluster.run_dir / "output") == expected
    here = {"data/x.csv": "1,2"}
    if stays_in_the_notebook_s_folder(back_end, "chief:0"):
        here["model/weights"] = "chief:0"
    assert copies(notebook) == here


@pytest.mark.back_ends("local", "standalone")
def test_by_default_only_the_chief_s_files_are_copied(back_end, run, notebook):
    cluster = run(write_model, cluster_size=2)
    folders = [result["folder"] for result in cluster.wait(timeout=100).values()]
    cluster.stop()
    assert any(note.startswith("worker:0 has written 1 file of 8 bytes by relative") for note in cluster.view().notes)
    copied = {} if back_end.launcher == "local" else {"work/model/weights": "chief:0"}
    assert copies(cluster.run_dir / "output") == {"who.txt": "chief:0", **copied}
    kept = [str(notebook)] * (back_end.launcher == "local")
    # Agents remove their folders when they have said good-bye.
    eventually(lambda: [folder for folder in folders if Path(folder).exists()] == kept)


@pytest.mark.back_ends("standalone")
def test_files_that_were_written_before_a_failure_of_the_start_are_copied(run, notebook, tmp_path, monkeypatch):
    def fail_as_chief(args, ctx):  # whom another node's failure might stop
        if ctx.is_chief:
            Path("checkpoint").write_text(ctx.node)
            raise ValueError("no more")

    looks = tfos_lab.Cluster.wait_until_running

    def looks_late(cluster):
        eventually(lambda: cluster.view().state == "failed")
        looks(cluster)

    monkeypatch.setattr(tfos_lab.Cluster, "wait_until_running", looks_late)
    with pytest.raises(NodeFailed, match="no more"):
        run(fail_as_chief)
    [run_dir] = tmp_path.glob("cluster-*")
    assert copies(run_dir / "output") == {"work/checkpoint": "chief:0"}


@pytest.mark.back_ends("local", "standalone")
def test_parallel_runs_do_not_collide(back_end, spark, notebook):
    def write(args, ctx):
        Path("model").mkdir()
        Path("model", "weights").write_text(str(args))
        return str(Path.cwd())

    folders = tfos_lab.parallel(write, [0, 1], spark=spark, local=back_end.local, show=False)
    assert len({*folders, str(notebook)}) == 3
    assert copies(notebook) == {"data/x.csv": "1,2"}
    written = copies(notebook.parent)
    assert sorted(text for name, text in written.items() if name.endswith("output/work/model/weights")) == ["0", "1"]


@pytest.mark.back_ends("local")
def test_a_file_that_was_there_is_written_anew_by_each_node_for_itself(run, notebook):
    (notebook / "m.keras").write_text("of the last run")

    def write(args, ctx):
        before = Path("m.keras").read_text()
        Path("m.keras").write_text(ctx.node)
        return before, Path("m.keras").read_text()

    results = run(write, cluster_size=3).wait(timeout=100)
    assert {node: after for node, (_, after) in results.items()} == {node: node for node in results}
    assert results["worker:0"][0] in ("of the last run", "", "chief:0")  # the chief may have been first
    assert copies(notebook)["m.keras"] == "chief:0"
