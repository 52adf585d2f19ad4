"""Runs are read from their folders, whoever has made them; what cannot be read is told in one line."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import msgspec
import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV
from tests.support.recorded_runs import GONE, curve, this_process, write_run, write_some
from tfos_lab.engine.record.format import NodeRecord
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.runs.read import read_runs
from tfos_lab.engine.runs.run import Run
from tfos_lab.engine.state.activity import NodeActivity
from tfos_lab.errors import ConfigError


def only(place) -> Run:
    (run,) = read_runs(place).runs
    return run


def test_runs_are_there_newest_first_with_those_of_searches(tmp_path):
    write_some(tmp_path)
    assert [run.id.rpartition("-")[2] for run in read_runs(tmp_path).runs] == [
        "6c7d", "5a6b", "7e8f.1", "7e8f.0", "4e5f", "3c4d", "2a3b", "1f2e",
    ]  # fmt: skip


def test_each_that_cannot_be_read_is_one_line(tmp_path):
    record = write_run(tmp_path, "later-1") / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_bytes()), "version": 99}))
    write_run(tmp_path, "folder-1")
    for name, data in {"empty": b"", "deep": b"[" * 100_000, "list": b"[1]", "bytes": b'"\xff"'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_bytes(data)
    (tmp_path / "dir" / "run.json").mkdir(parents=True)
    (tmp_path / "no-run").mkdir()
    found = read_runs(tmp_path)
    assert [run.id for run in found.runs] == ["folder-1"]
    told = {one.path.name: one.reason for one in found.unreadable}
    assert set(told) == {"later-1", "empty", "deep", "list", "bytes", "dir"}
    assert told["later-1"] == "run.json is of version 99; this tfos_lab reads versions up to 1"
    assert told["dir"] == "run.json: Is a directory"
    assert told["empty"].startswith("run.json is damaged")
    assert told["list"].startswith("run.json is not that of a run of tfos_lab")
    assert all("\n" not in str(one) for one in found.unreadable)


def test_a_folder_of_another_user_is_one_line(tmp_path, monkeypatch):
    write_run(tmp_path, "own-1")
    closed = write_run(tmp_path, "closed-1")
    stat = Path.stat

    def refuse(path, **options):
        if path.parent == closed:
            raise PermissionError(13, "Permission denied")
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    found = read_runs(tmp_path)
    assert [run.id for run in found.runs] == ["own-1"]
    assert [(one.path, one.reason) for one in found.unreadable] == [(closed, "run.json: Permission denied")]
    assert not RunDir(closed).is_pinned


def test_a_file_that_no_run_writes_is_not_read(tmp_path):
    (tmp_path / "big").mkdir()
    with (tmp_path / "big" / "run.json").open("wb") as file:
        file.truncate(100 << 20)
    (bad,) = read_runs(tmp_path).unreadable
    assert bad.reason == "run.json has 100 MB, which no run of tfos_lab writes"


def test_a_folder_that_is_not_there_is_a_config_error(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: there is no such folder"):
        read_runs(tmp_path / "nowhere")


def test_without_a_folder_those_are_searched_where_runs_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("TFOS_LAB_RUNS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert read_runs().runs == ()
    write_run(tmp_path / "runs", "here-1", ago_s=10)
    write_run(tmp_path / ".cache" / "tfos_lab" / "runs", "cached-1", ago_s=20)
    assert [run.id for run in read_runs().runs] == ["here-1", "cached-1"]
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "elsewhere"))
    assert [run.id for run in read_runs().runs] == ["cached-1"]


def test_a_run_that_has_not_ended_is_live_while_its_process_is_there(tmp_path):
    going = {"state": "running", "outcome": None, "ended_s": None}
    write_run(tmp_path / "a", process=this_process(), **going)
    write_run(tmp_path / "b", process=GONE, nodes=(NodeRecord(node="chief:0", state="running"),), **going)
    write_run(tmp_path / "c", process=msgspec.structs.replace(GONE, host=f"not-{socket.gethostname()}"), **going)
    assert [(only(tmp_path / place).state, only(tmp_path / place).live) for place in "abc"] == [
        ("running", True),
        ("lost", False),
        ("running", True),  # as far as this machine can know
    ]
    lost = only(tmp_path / "b")
    assert lost.ended_s == lost.record.written_s
    assert {node.state for node in lost.view().nodes} == {"lost"}
    assert "has gone" in lost.view().reason


def test_words_of_other_versions_are_no_error(tmp_path):
    write_run(tmp_path, state="dreaming", outcome="dreamt", nodes=())
    run = only(tmp_path)
    assert run.state == "lost"
    assert run.view().nodes == ()


def test_a_run_tells_its_metrics_rows_phases_and_logs(tmp_path):
    write_run(tmp_path, reports=curve(1.0, 3), log="one\ntwo\n")
    run = only(tmp_path)
    assert run.rows == 2000
    assert set(run.last_metrics) == {"loss", "accuracy"}
    assert list(run.metrics.columns) == ["time", "node", "step", "loss", "accuracy"]
    assert len(run.metrics) == 6
    phases = {name: round(seconds, 2) for name, seconds in run.phases.items()}
    assert phases == {"launch": 0.1, "reserve": 0.1, "release": 0.02, "import": 0.08, "start": 0.1, "run": 0.75}
    assert run.logs("chief:0", tail=1) == "two"
    assert run.logs() == "[chief:0] one\n[chief:0] two"
    with pytest.raises(KeyError, match="no node 'ps:0' in the run mnist-"):
        run.logs("ps:0")


def test_what_was_measured_is_in_the_view(tmp_path):
    activity = NodeActivity(step=3, step_s=0.1, computes=0.9)
    nodes = (NodeRecord(node="chief:0", state="done", activity=activity),)
    write_run(tmp_path, nodes=nodes, verdict="compute bound", progress=0.5)
    view = only(tmp_path).view()
    assert (view.verdict, view.progress, view.nodes[0].activity) == ("compute bound", 0.5, activity)


def test_event_files_are_where_this_machine_sees_them(tmp_path):
    there = tmp_path / "logs"
    there.mkdir()
    for number, (log_dir, expected) in enumerate(
        [(None, "events"), (str(there), str(there)), ("gs://bucket/x", "gs://bucket/x"), ("/not/here", "events")]
    ):
        path = write_run(tmp_path / str(number), options={"log_dir": log_dir})
        assert only(tmp_path / str(number)).event_dir == (str(path / "events") if expected == "events" else expected)


def train(args, ctx):
    for step in range(3):
        ctx.report(step, loss=args["lr"] / (step + 1))
    print("trained")  # noqa: T201 - into the node's log


def test_a_real_run_is_in_the_table_with_what_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    options = {"local": "processes", "env": QUICK_ENV, "name": "mnist", "cluster_size": 2}
    with tfos_lab.run(train, {"lr": 0.5}, **options) as cluster:
        cluster.wait(timeout_s=60)
    row = tfos_lab.runs(tmp_path).loc[cluster.id]
    assert (row["name"], row["outcome"], row["launcher"], row["nodes"]) == ("mnist", "done", "local", 2)
    assert row["inputs"] == {"args.lr": 0.5}
    assert row["metrics.loss"] == pytest.approx(0.5 / 3)
    assert row["options"]["cluster_size"] == 2
    assert "def train(args, ctx)" in row["code"]
    assert row["phases.run"] > 0
    run = tfos_lab.run_record("mnist", tmp_path)
    assert run.logs("chief:0") == "trained\n"
    assert run.view().timings == cluster.timings
