"""Runs that are kept at an address, and their history: here on ``local://``, a file system of fsspec."""

import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import tfos_lab
from tests.support.eventually import eventually
from tests.support.quick import QUICK_ENV
from tests.support.recorded_runs import this_process, write_run
from tests.support.trials import fit
from tfos_lab.cli import main
from tfos_lab.errors import ConfigError, NodeFailed

pytestmark = pytest.mark.leaves_nothing

HERE = {"local": "processes", "env": QUICK_ENV}


@pytest.fixture
def store(tmp_path):
    return f"local://{tmp_path}/store"


def files_below(folder):
    return {path.relative_to(folder).as_posix() for path in Path(folder).rglob("*") if path.is_file()}


def work(args, ctx):
    """Leave a line, a metric and a file."""
    print("hello from", ctx.node)  # noqa: T201 - it is looked for in the log
    ctx.report(step=1, loss=0.5)
    Path(ctx.output_dir, "notes.txt").write_text("kept")
    if args == "fail":
        raise ValueError("the function has failed")


def test_a_run_s_folder_is_at_the_address_when_it_has_ended_and_the_history_opens_it(store, tmp_path, capsys):
    with pytest.raises(ConfigError, match=rf"{store}: there is no such folder"):
        tfos_lab.runs(store)
    with tfos_lab.run(work, run_store=store, name="first", **HERE) as cluster:
        cluster.wait()
        run_id = cluster.run_dir.name
        there = tmp_path / "store" / run_id
        assert files_below(there) == files_below(cluster.run_dir) >= {"run.json", "chief-0.log", "output/notes.txt"}
    assert all((there / name).read_bytes() == (cluster.run_dir / name).read_bytes() for name in files_below(there))
    assert f"The run's folder is kept at {store}/{run_id}" in cluster.view().notes
    table = tfos_lab.runs(store)
    assert table.index.tolist() == [run_id]
    assert (table.loc[run_id, "folder"], table.loc[run_id, "metrics.loss"]) == (f"{store}/{run_id}", 0.5)
    for run in (tfos_lab.runs(store)["first"], tfos_lab.runs()[f"{store}/{run_id}"]):
        assert (run.id, run.state, run.folder) == (run_id, "done", f"{store}/{run_id}")
        assert run.logs() == "[chief:0] hello from chief:0"
        assert (run.output_dir / "notes.txt").read_text() == "kept"
        assert run.metrics["loss"].tolist() == [0.5]
        assert run.event_dir == f"{store}/{run_id}/events"
    assert main(["history", store]) == main(["history", "first", "--folder", store]) == 0
    assert capsys.readouterr().out.count(f"first {run_id[-4:]}") == 2


def test_a_run_that_failed_or_was_stopped_is_there_too(store):
    with pytest.raises(NodeFailed):
        tfos_lab.run(work, "fail", run_store=store, name="failed", **HERE).wait()
    cluster = tfos_lab.run(lambda: time.sleep(60), run_store=store, name="stopped", **HERE)
    cluster.stop()
    eventually(lambda: {*tfos_lab.runs(store)["outcome"]} == {"failed", "stopped"})
    assert tfos_lab.runs(store).set_index("name").loc["failed", "error"].endswith("the function has failed")
    assert tfos_lab.runs(store)["failed"].logs() == "[chief:0] hello from chief:0"


def test_a_search_is_kept_with_its_trials(store):
    tfos_lab.search(fit, {"x": [1, 2]}, metric="loss", run_store=store, show=False, **HERE)
    run = tfos_lab.runs(store)["search"]
    assert run.table["x"].tolist() == [2, 1]
    assert run.table["folder"].tolist() == [f"{run.folder}/run-1", f"{run.folder}/run-0"]
    part = tfos_lab.runs(store)[f"{run.id}.1"]
    assert (part.folder, part.state) == (f"{run.folder}/run-1", "done")


def test_a_driver_that_is_killed_leaves_a_run_that_has_not_ended_here_and_at_the_address(store, tmp_path):
    program = f"""
        import tfos_lab

        def work():
            print("so far", flush=True)
            import time
            time.sleep(600)

        tfos_lab.run(work, run_store={store!r}, local="processes", env={QUICK_ENV!r}).wait()
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path) as driver:
        try:
            eventually(lambda: list(tmp_path.glob("store/*/chief-0.log")))
        finally:
            driver.kill()
    (run_id,) = tfos_lab.runs(store).index
    for run in (tfos_lab.runs(store)[run_id], tfos_lab.runs()[run_id]):
        assert (run.state, run.record.view.state.ended, run.record.process.pid) == ("lost", False, driver.pid)
        assert run.logs() == "[chief:0] so far"


def test_a_run_of_another_machine_is_lost_when_nothing_has_come_for_minutes(store, tmp_path):
    process = type(this_process())(host=f"not-{socket.gethostname()}", pid=1, born="x")
    going = {"state": "running", "ended_s": None}
    path = write_run(tmp_path / "store", "away-1", **going, process=process)
    assert tfos_lab.runs(store).loc["away-1", "outcome"] == "running"
    before = time.time() - 1000
    os.utime(path / "run.json", (before, before))
    assert tfos_lab.runs(store).loc["away-1", "outcome"] == "lost"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("runs", r"run_store='runs': an address such as 'hdfs:///user/ada/runs' is needed"),
        ("local:///proc/no/such", r"path='local:///proc/no/such': .* cannot write to it"),
    ],
)
def test_a_store_that_cannot_be_is_refused_before_anything_starts(address, problem, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=problem):
        tfos_lab.run(work, run_store=address, **HERE)
    monkeypatch.setenv("TFOS_LAB_RUN_STORE", address)
    with pytest.raises(ConfigError, match=problem):
        tfos_lab.run(work, **HERE)
    assert not (tmp_path / "runs").exists()


def test_the_environment_names_a_store_and_an_option_none(store, monkeypatch, tmp_path):
    monkeypatch.setenv("TFOS_LAB_RUN_STORE", store)
    with tfos_lab.run(work, run_store="", **HERE) as cluster:
        cluster.wait()
    assert not (tmp_path / "store").exists()
    with tfos_lab.run(work, **HERE) as cluster:
        cluster.wait()
    assert tfos_lab.runs(store).index.tolist() == [cluster.run_dir.name]


def test_a_store_that_takes_no_more_is_a_note_and_the_run_ends_well(store, tmp_path):
    def wait_and_work(args, ctx):
        while not Path(args).exists():
            time.sleep(0.05)

    cluster = tfos_lab.run(wait_and_work, str(tmp_path / "go-on"), run_store=store, **HERE)
    there = tmp_path / "store" / cluster.run_dir.name
    eventually((there / "run.json").exists)
    for path in sorted(there.rglob("*"), reverse=True):
        path.unlink()
    there.rmdir()
    there.write_text("in the way")
    (tmp_path / "go-on").touch()
    assert dict(cluster.wait()) == {"chief:0": None}
    assert any(f"not all of the run's folder {cluster.run_dir} is at" in note for note in cluster.view().notes)


def test_a_driver_in_a_container_without_a_store_says_what_goes_with_it(spark, caplog):
    spark.conf.set("spark.kubernetes.submitInDriver", "true")
    try:
        tfos_lab.run(work, local="inline", spark=spark).wait()
    finally:
        spark.conf.unset("spark.kubernetes.submitInDriver")
    assert "the run's folder goes with this container's disk: Spark's default file system is this host's" in caplog.text
