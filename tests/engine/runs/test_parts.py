"""Independent runs in the history: a search, or one call of `tfos_lab.parallel`, is one run with a table."""

from __future__ import annotations

import json
import math

import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV
from tests.support.recorded_runs import this_process, write_run
from tests.support.trials import fit
from tfos_lab.engine import runtime
from tfos_lab.engine.parallel import runs as parallel_runs
from tfos_lab.engine.record.format import NodeRecord, PartRecord, SearchRecord, decode
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.engine.runs.find import find_run
from tfos_lab.engine.runs.prune import pin_run, prune_runs
from tfos_lab.engine.runs.read import read_runs
from tfos_lab.errors import ConfigError, SearchFailed
from tfos_lab.jupyter.display.history import HistoryTable
from tfos_lab.jupyter.display.history_page import RunPage


@pytest.fixture(autouse=True)
def record_in_any_case(monkeypatch):
    """Have runs, and the call that makes them, wait for their records, however slow the disk is."""
    monkeypatch.setattr(runtime, "RECORD_TIMEOUT_S", 60.0)
    monkeypatch.setattr(parallel_runs, "_RECORD_TIMEOUT_S", 60.0)


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "runs"


def write_search(place, run_id="search-20260107-120000-7e8f", *, count=2, **fields):
    """Write a search whose last trial is the best one, and the runs of its trials."""
    nodes = tuple(
        NodeRecord(
            node=f"trial {number}",
            state="done",
            metrics={"loss": 1.0 / (number + 1)},
            part=PartRecord(
                number=number, args=f"lr={number}", params={"lr": number}, tries=1, seconds=2.0,
                best=1.0 / (number + 1), log=f"run-{number}/chief-0.log",
            ),
        )
        for number in reversed(range(count))
    )  # fmt: skip
    best = nodes[0]
    search = SearchRecord(metric="loss", best=best.part.best, trial=f"{best.node}: {best.part.args}")
    path = write_run(place, run_id, nodes=nodes, of_runs=True, search=search, reports=[], feeds=(), **fields)
    for number in range(count):
        write_run(path, f"run-{number}", id=f"{run_id}.{number}", name="search", log=f"of trial {number}\n")
    return path


def test_a_search_is_one_run_with_its_trials_best_first(place):
    tfos_lab.search(fit, {"x": [1, 2, 3]}, args={"units": 8}, local="processes", env=QUICK_ENV, show=False)
    table = tfos_lab.runs()
    assert len(table) == 1
    row = table.iloc[0]
    assert (row["kind"], row["outcome"], row["nodes"], row["best"]) == ("search", "done", 3, {"x": 2})
    assert row["metrics.loss"] == pytest.approx(1 / 3)
    assert row["inputs"] == {"args.units": 8}
    assert row["code"].startswith("def fit(args, ctx)")
    run = tfos_lab.run_record("search")
    trials = run.table
    assert trials["x"].tolist() == [2, 1, 3]
    assert trials["state"].tolist() == ["done", "done", "failed"]
    assert trials["best"].tolist()[:2] == pytest.approx([1 / 3, 4 / 3])
    assert trials["error"].tolist() == ["", "", "ValueError: no threes"]
    # Each trial is still a run of its own, and its folder is in the table.
    assert find_run(f"{run.id}.1").path == run.path / "run-1"
    assert trials["folder"].iloc[0] == str(run.path / "run-1")


def test_a_search_opens_as_its_cell_showed_it(place):
    write_search(place)
    shown = RunPage(find_run("search"))._repr_mimebundle_()
    assert "2 of 2 done · best loss 0.5 (trial 1: lr=1)" in shown["text/plain"]
    lines = [line.split()[:4] for line in shown["text/plain"].splitlines() if line.startswith("trial ")]
    assert lines[1:] == [["trial", "1", "0.5", "lr=1"], ["trial", "0", "1", "lr=0"]]
    assert "of trial 1" in shown["text/html"]
    assert find_run("search").logs("trial 0") == "of trial 0\n"
    assert find_run("search").logs() == "[trial 1] of trial 1\n[trial 0] of trial 0"
    assert find_run("search").event_dir == str(find_run("search").path)


def test_the_history_says_what_was_best(place):
    write_search(place)
    [line] = [line for line in repr(HistoryTable(read_runs())).splitlines() if line.startswith("search")]
    assert "2 trials" in line
    assert "best: lr 1" in line


def test_independent_runs_are_one_run_with_what_became_of_each(place):
    def half(args, ctx):
        ctx.report(1, share=args / 2)
        if args == 2:
            raise KeyError("two")
        return args / 2

    tfos_lab.parallel(half, [1, 2, 3], local="inline", raise_failures=False, show=False)
    [row] = tfos_lab.runs().itertuples()
    assert (row.kind, row.outcome, row.nodes, row.best) == ("parallel", "failed", 3, {})
    assert row.error.startswith("ParallelFailed: ")
    table = tfos_lab.run_record("parallel").table
    assert table["args"].tolist() == ["1", "2", "3"]
    assert table["state"].tolist() == ["done", "failed", "done"]
    assert table["error"].tolist() == ["", "KeyError: 'two'", ""]
    assert table["best"].isna().all()


def test_a_search_of_which_nothing_came_says_why(place):
    with pytest.raises(SearchFailed):
        tfos_lab.search(fit, {"x": [3]}, local="inline", show=False)
    run = tfos_lab.run_record("search")
    assert (run.state, run.best_params, run.last_metrics) == ("failed", {}, {})
    assert run.record.error.type == "SearchFailed"


def test_parameters_of_any_type_are_recorded_and_secrets_are_not(place):
    class Anything:
        def __repr__(self):
            return "<anything>"

    space = {"layers": [[64, 10]], "drop": [None], "rate": [math.inf], "what": [Anything()], "api_key": ["hunter2"]}

    def fit(args, ctx):
        return {"loss": 1.0}

    tfos_lab.search(fit, space, metric="loss", local="inline", show=False)
    run = tfos_lab.run_record("search")
    params = run.record.nodes[0].part.params
    assert (params["layers"], params["drop"], params["what"]) == ("[64, 10]", None, "<anything>")
    assert params["api_key"] == "(not recorded)"


def test_a_search_whose_kernel_has_gone_is_lost(place):
    write_search(place, state="running", outcome=None, ended_s=None)
    run = find_run("search")
    assert run.state == "lost"
    assert run.best_params == {"lr": 1}


def test_the_trials_are_not_read_for_the_list(place):
    path = write_search(place)
    RunDir(path / "run-0").record.write_text("damaged")
    assert len(read_runs(place).runs) == 1
    assert read_runs(place).unreadable == ()
    assert find_run("7e8f.1", place).id.endswith("7e8f.1")
    for name in ("7e8f.0", "7e8f.9", "7e8f.x/y"):
        with pytest.raises(ConfigError):
            find_run(name, place)


def test_a_search_goes_as_a_whole_and_stays_for_the_sake_of_one_trial(place):
    write_search(place)
    pin_run(find_run("7e8f.1", place))
    assert [one.kept for one in prune_runs(keep=0, folder=place)] == ["pinned"]
    pin_run(find_run("7e8f.1", place), pinned=False)
    # Its kernel lives, but the search has ended.
    assert [one.kept for one in prune_runs(keep=0, folder=place)] == [""]


def test_a_search_that_goes_on_stays(place):
    write_search(place, state="running", outcome=None, ended_s=None, process=this_process())
    assert [one.kept for one in prune_runs(keep=0, folder=place)] == ["not ended"]


@pytest.mark.parametrize("log", ["/etc/passwd", "../../secret.log"])
def test_a_record_that_leads_elsewhere_is_not_followed(place, log):
    path = write_search(place, count=1)
    record = json.loads((path / "run.json").read_bytes())
    record["nodes"][0]["part"]["log"] = log
    RunDir(path).write_record(json.dumps(record).encode())
    assert decode((path / "run.json").read_bytes()).nodes[0].part.log == log
    run = find_run("search", place)
    assert run.log_path("trial 0").parent == path
    assert run.logs() == ""
    assert run.table["folder"].isna().all()
