"""The ended runs that the panel lists: read from run records, the newest first, without damaged and foreign ones."""

from __future__ import annotations

import os
import socket

import msgspec
import pytest

from tfos_lab.core.cluster_records import birth_of
from tfos_lab.engine.discovery.ended_runs import EndedRuns
from tfos_lab.engine.record.format import ErrorRecord, NodeRecord, ProcessRecord, RunRecord, SearchRecord, encode

HERE = ProcessRecord(host=socket.gethostname(), pid=os.getpid(), born=birth_of(os.getpid()), notebook="/n/a.ipynb")


@pytest.fixture
def runs(tmp_path):
    made = EndedRuns()
    made.remember([tmp_path, tmp_path / "not there"])
    return made


@pytest.fixture
def write(tmp_path):
    def write(run_id="mnist-1", **changes):
        record = RunRecord(
            id=run_id,
            name="mnist",
            launcher="local",
            started_s=100.0,
            written_s=160.0,
            process=HERE,
            options={},
            versions={},
            state="running",
            nodes=(NodeRecord(node="chief:0", state="done", step=3, total_steps=4, metrics={"loss": None}),),
        )
        (tmp_path / run_id).mkdir(exist_ok=True)
        (tmp_path / run_id / "run.json").write_bytes(encode(msgspec.structs.replace(record, **changes)))

    return write


def test_a_run_is_listed_once_it_has_ended(runs, write, tmp_path):
    write()
    assert runs.find(5) == []
    write(outcome="done", ended_s=150.0)
    [run] = runs.find(5)
    assert (run.id, run.name, run.outcome, run.ended_s, run.nodes) == ("mnist-1", "mnist", "done", 150.0, 1)
    assert (run.notebook, run.run_dir) == ("/n/a.ipynb", str(tmp_path / "mnist-1"))
    assert (run.figures.step, run.figures.metric, run.figures.value) == (3, "loss", None)


def test_a_search_shows_its_best_value_and_other_independent_runs_no_step(runs, write):
    search = SearchRecord(metric="loss", best=0.25, trial="trial 3: lr=0.1")
    write(outcome="done", ended_s=150.0, of_runs=True, search=search)
    assert (runs.find(1)[0].figures.metric, runs.find(1)[0].figures.value) == ("best loss", 0.25)
    write(outcome="done", ended_s=150.5, of_runs=True)
    assert (runs.find(1)[0].figures.step, runs.find(1)[0].figures.metric) == (None, "")


def test_a_failed_run_says_why(runs, write):
    error = ErrorRecord(type="NodeFailed", message="label 11", node="worker:1", kind="ValueError")
    write(outcome="failed", ended_s=1.0, error=error)
    assert runs.find(5)[0].reason == "worker:1: ValueError: label 11"


def test_a_run_is_lost_when_its_process_is_gone(runs, write):
    write("lost-1", process=msgspec.structs.replace(HERE, born="long ago"))
    write("elsewhere-1", process=msgspec.structs.replace(HERE, born="long ago", host="another host"))
    [run] = runs.find(5)
    assert (run.id, run.outcome, run.ended_s, run.reason) == ("lost-1", "lost", 160.0, "its kernel ended before it")


def test_the_newest_runs_come_first_and_no_more_than_asked_for(runs, write):
    for number in range(6):
        write(f"run-{number}", outcome="done", ended_s=100.0 + number)
    assert [run.id for run in runs.find(2)] == ["run-5", "run-4"]


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'{"version": 99, "id": "x"}'])
def test_damaged_and_foreign_records_are_left_out(runs, write, tmp_path, data):
    write(outcome="done", ended_s=1.0)
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "run.json").write_bytes(data)
    (tmp_path / "a file").touch()
    (tmp_path / "empty").mkdir()
    assert [run.id for run in runs.find(5)] == ["mnist-1"]


def test_newer_folders_that_are_no_runs_crowd_nothing_out(runs, write, tmp_path):
    write(outcome="done", ended_s=1.0)
    for number in range(10):
        (tmp_path / f"later-{number}").mkdir()
    assert [run.id for run in runs.find(1)] == ["mnist-1"]


def test_records_that_have_not_changed_are_not_read_again(runs, write, monkeypatch):
    write(outcome="done", ended_s=1.0)
    before = runs.find(5)
    monkeypatch.setattr("tfos_lab.engine.discovery.ended_runs._read", lambda _path: pytest.fail("it was read again"))
    assert runs.find(5) == before
