"""The history of runs: read from their folders, found by what people call them, and removed if asked."""

import json
import math
import os
import secrets
import shutil
import socket
from pathlib import Path

import msgspec
import pandas as pd
import pytest

import tfos_lab
from tests.support.quick import QUICK_ENV
from tests.support.recorded_runs import GONE, curve, failure, this_process, write_run, write_some
from tests.support.trials import fit
from tfos_lab.driver.state.events import NodeView, RunFacts, SearchFacts
from tfos_lab.errors import ConfigError


@pytest.fixture(scope="module")
def some(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_some(folder)
    return folder


def test_columns_have_types_and_can_be_sorted(tmp_path):
    write_run(tmp_path, "a-1", reports=curve(0.1, 5), ago_s=10)
    write_run(tmp_path, "b-1", reports=curve(2.0, 50), ago_s=20)
    write_run(tmp_path, "c-1", reports=[], ago_s=30, **failure())
    table = tfos_lab.runs(tmp_path)
    assert list(table.sort_values("metrics.loss")["name"]) == ["b", "a", "c"]
    assert table["metrics.loss"].isna().tolist() == [False, False, True]
    assert table["when"].dt.tz is not None
    assert (table["when"] > "2026-01-01").all()
    assert table.loc["c-1", "error"] == "worker:0: ValueError: no such label: 11"
    assert table.loc["a-1", "files"] == ["model.keras"]
    assert table.loc["a-1", "options"]["cluster_size"] == 2


def test_a_run_whose_name_is_taken_has_another_in_the_same_folder(tmp_path, monkeypatch):
    tokens, draw = iter(["aaaa", "aaaa", "bbbb"]), secrets.token_hex
    monkeypatch.setattr(secrets, "token_hex", lambda size=32: next(tokens) if size == 2 else draw(size))
    for _ in range(2):
        tfos_lab.run(lambda: None, local="inline").wait()
    assert len(tfos_lab.runs(tmp_path / "runs")) == 2


@pytest.mark.parametrize("runs", ["runs", "{tmp_path}/runs"])
def test_a_working_folder_that_is_gone_is_told(tmp_path, monkeypatch, runs):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    monkeypatch.setenv("TFOS_LAB_RUNS", runs.format(tmp_path=tmp_path))
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match=r"the working folder is gone, removed or renamed: go to"):
        tfos_lab.run(print, local="processes")


def test_a_working_folder_whose_name_cannot_be_sent_to_nodes_is_told(tmp_path, monkeypatch):
    old = tmp_path / os.fsdecode(b"m\xfcller")
    old.mkdir()
    monkeypatch.chdir(old)
    with pytest.raises(ConfigError, match=r"working folder is no UTF-8, .*/m\\udcfcller: rename it, or go to another"):
        tfos_lab.run(print, local="processes")


def test_every_run_is_a_row(some):
    table = tfos_lab.runs(some)
    assert isinstance(table, pd.DataFrame)
    assert type(table.head(1)) is pd.DataFrame
    assert len(table) == 8
    assert table.index.name == "id"
    assert set(table["outcome"]) == {"done", "failed", "lost", "running"}
    assert len(table.attrs["unreadable"]) == 2


@pytest.mark.parametrize(
    ("name", "run_id"),
    [
        ("mnist-20260103-120000-3c4d", "mnist-20260103-120000-3c4d"),
        ("mnist", "mnist-20260106-120000-6c7d"),  # the newest
        ("3c4d", "mnist-20260103-120000-3c4d"),
        ("mnist-20260103", "mnist-20260103-120000-3c4d"),
        ("7e8f.1", "search-20260107-120000-7e8f.1"),
    ],
)
def test_an_identifier_a_label_or_an_end_is_enough(some, name, run_id, monkeypatch):
    assert tfos_lab.runs(some)[name].id == run_id
    assert tfos_lab.runs()[some / run_id.replace(".", "/run-")].id == run_id, "a folder is a name, too"
    monkeypatch.chdir(some)
    assert tfos_lab.runs()[f"./{run_id.replace('.', '/run-')}"].id == run_id


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("minst", "there is no run 'minst'; did you mean mnist?"),
        ("xyz", "there is no run 'xyz'; there are mnist, search, titanic"),
        ("", "there is no run ''; there are mnist, search, titanic"),
        ("search-", "'search-' could be any of 2 runs: search-20260107-120000-7e8f.1, search-20260107-120000-7e8f.0"),
        ("/nowhere/run", "/nowhere/run: there is no run.json, so this is no run's folder"),
    ],
)
def test_what_means_no_run_or_several_is_told(some, name, sentence):
    found = tfos_lab.runs(some)
    with pytest.raises(ConfigError) as error:
        found[name]
    assert str(error.value) == sentence
    assert isinstance(error.value, KeyError)
    assert found.get(name) is None


# ---- folders of runs -------------------------------------------------------------------------------------------------


def only(place):
    [name] = tfos_lab.runs(place).index
    return tfos_lab.runs(place)[name]


def test_each_that_cannot_be_read_is_one_line(tmp_path):
    record = write_run(tmp_path, "later-1") / "run.json"
    record.write_text(json.dumps({**json.loads(record.read_bytes()), "version": 99}))
    write_run(tmp_path, "folder-1")
    for name, data in {"empty": b"", "deep": b"[" * 100_000, "list": b"[1]", "bytes": b'"\xff"'}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").write_bytes(data)
    (tmp_path / "dir" / "run.json").mkdir(parents=True)
    (tmp_path / "no-run").mkdir()
    (tmp_path / "big").mkdir()
    with (tmp_path / "big" / "run.json").open("wb") as file:
        file.truncate(100 << 20)
    found = tfos_lab.runs(tmp_path)
    assert list(found.index) == ["folder-1"]
    lines = found.attrs["unreadable"]
    told = {Path(line.partition(": ")[0]).name: line.partition(": ")[2] for line in lines}
    assert set(told) == {"later-1", "empty", "deep", "list", "bytes", "dir", "big"}
    assert told["big"] == "run.json has 100 MB, which no run of tfos_lab writes"
    assert told["later-1"] == "run.json is of version 99; this tfos_lab reads versions up to 3"
    assert told["dir"] == "run.json: Is a directory"
    assert told["empty"].startswith("run.json is damaged")
    assert told["list"].startswith("run.json is not that of a run of tfos_lab")
    assert not any("\n" in line for line in lines)


def test_without_a_folder_those_are_searched_where_runs_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.delenv("TFOS_LAB_RUNS", raising=False)
    monkeypatch.chdir(tmp_path)
    assert tfos_lab.runs().empty
    write_run(tmp_path / "runs", "here-1", ago_s=10)
    write_run(tmp_path / ".cache" / "tfos_lab" / "runs", "cached-1", ago_s=20)
    assert list(tfos_lab.runs().index) == ["here-1", "cached-1"]
    monkeypatch.setenv("TFOS_LAB_RUNS", str(tmp_path / "elsewhere"))
    assert list(tfos_lab.runs().index) == ["cached-1"]


def test_a_run_that_has_not_ended_is_live_while_its_process_is_there(tmp_path):
    write_run(tmp_path / "a", process=this_process(), **GOING)
    write_run(
        tmp_path / "b", process=GONE, nodes=(NodeView("chief:0", "chief", 0, is_chief=True, state="running"),), **GOING
    )
    write_run(tmp_path / "c", process=msgspec.structs.replace(GONE, host=f"not-{socket.gethostname()}"), **GOING)
    assert [(only(tmp_path / place).state, only(tmp_path / place).live) for place in "abc"] == [
        ("running", True),
        ("lost", False),
        ("running", True),  # as far as this machine can know
    ]
    lost = only(tmp_path / "b")
    assert lost.ended_s == lost.record.written_s
    assert {node.state for node in lost.view().nodes} == {"lost"}
    assert "has gone" in lost.view().reason


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


@pytest.mark.parametrize("name", ["mnist", "search"])
def test_a_record_of_the_first_edition_is_read_as_any(tmp_path, name):
    (tmp_path / "old").mkdir()
    shutil.copy(Path(__file__).parent / "version_1" / f"{name}.json", tmp_path / "old" / "run.json")
    run = only(tmp_path)
    view = run.view()
    assert view.name == name
    if name == "mnist":
        assert (run.state, str(run.record.error)) == ("failed", "worker:0: ValueError: no such label")
        assert [(node.name, node.job_name, node.task_index, node.is_chief) for node in view.nodes] == [
            ("chief:0", "chief", 0, True),
            ("worker:0", "worker", 0, False),
        ]
        assert math.isnan(run.last_metrics["loss"])
        assert run.metrics["loss"].tolist()[0] == 1.0
        assert 0 <= run.metrics["time"].min() < 10
        assert set(run.phases) > {"launch", "reserve"}
    else:
        assert (run.kind, run.state, run.best_params) == ("search", "done", {"lr": 0.1})
        assert run.table["run"].tolist() == [0, 1]
        assert run.table["best"].tolist() == [0.1, 0.2]


# ---- searches and independent runs -----------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path / "runs"


# The fields of a run that has not ended.
GOING = {"state": "running", "ended_s": None}


def write_search(place, run_id="search-20260107-120000-7e8f", *, count=2, ago_s=3600.0, **fields):
    """Write a search whose last trial is the best one, and the runs of its trials."""
    nodes = tuple(
        NodeView(
            f"trial {number}",
            "run",
            number,
            is_chief=False,
            state="done",
            metrics={"loss": 1.0 / (number + 1)},
            run=RunFacts(f"lr={number}", tries=1, seconds=2.0, best=1.0 / (number + 1), params={"lr": number},
                         log=f"run-{number}/chief-0.log"),
        )
        for number in reversed(range(count))
    )  # fmt: skip
    best = nodes[0]
    search = SearchFacts("loss", best.run.best, f"{best.name}: {best.run.args}")
    path = write_run(
        place, run_id, ago_s=ago_s, nodes=nodes, of_runs=True, search=search, reports=[], feeds=(), **fields
    )
    for number in range(count):
        write_run(
            path,
            f"run-{number}",
            ago_s=ago_s,
            cluster_id=f"{run_id}.{number}",
            name="search",
            log=f"of trial {number}\n",
        )
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
    run = tfos_lab.runs()["search"]
    trials = run.table
    assert trials["x"].tolist() == [2, 1, 3]
    assert trials["state"].tolist() == ["done", "done", "failed"]
    assert trials["best"].tolist()[:2] == pytest.approx([1 / 3, 4 / 3])
    assert trials["error"].tolist() == ["", "", "ValueError: no threes"]
    # Each trial is still a run of its own, and its folder is in the table.
    assert tfos_lab.runs()[f"{run.id}.1"].run_dir == run.run_dir / "run-1"
    assert trials["folder"].iloc[0] == str(run.run_dir / "run-1")


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
    table = tfos_lab.runs()["parallel"].table
    assert table["args"].tolist() == ["1", "2", "3"]
    assert table["state"].tolist() == ["done", "failed", "done"]
    assert table["error"].tolist() == ["", "KeyError: 'two'", ""]
    assert table["best"].isna().all()


def test_parameters_of_any_type_are_recorded_and_secrets_are_not(place):
    class Anything:
        def __repr__(self):
            return "<anything>"

    space = {"layers": [[64, 10]], "drop": [None], "rate": [math.inf], "what": [Anything()], "api_key": ["hunter2"]}

    def fit(args, ctx):
        return {"loss": 1.0}

    tfos_lab.search(fit, space, metric="loss", local="inline", show=False)
    run = tfos_lab.runs()["search"]
    params = run.record.view.nodes[0].run.params
    assert (params["layers"], params["drop"], params["what"]) == ("[64, 10]", None, "<anything>")
    assert params["api_key"] == "(not recorded)"


@pytest.mark.parametrize("log", ["/etc/passwd", "../../secret.log"])
def test_a_record_that_leads_elsewhere_is_not_followed(place, log):
    path = write_search(place, count=1)
    record = json.loads((path / "run.json").read_bytes())
    record["view"]["nodes"][0]["run"]["log"] = log
    (path / "run.json").write_text(json.dumps(record))
    run = tfos_lab.runs(place)["search"]
    assert run.log_path("trial 0").parent == path
    assert run.logs() == ""
    assert run.table["folder"].isna().all()


# ---- old runs go when a new one has ended, if an option or the environment says so ---------------------------------


DAY_S = 86_400.0


@pytest.fixture
def five(tmp_path):
    """A folder with five runs, of the last five days; the oldest one is tagged."""
    place = tmp_path / "runs"
    for number in range(1, 6):
        write_run(place, f"old-{number}", ago_s=(number - 0.5) * DAY_S)
    tfos_lab.runs(place)["old-5"].tag("good")
    return place


def run(**options):
    with tfos_lab.run(lambda: None, local="inline", name="new", **options) as cluster:
        cluster.wait()


def left(place):
    return sorted(path.name.partition("-20")[0] for path in place.iterdir())


def test_so_many_of_the_newest_stay_and_tagged_ones_and_those_that_go_on(five, monkeypatch):
    write_run(five, "old-6", ago_s=9 * DAY_S, **GOING, process=this_process())
    run()
    assert left(five) == ["new", "old-1", "old-2", "old-3", "old-4", "old-5", "old-6"], "all, by default"
    monkeypatch.setenv("TFOS_LAB_KEEP_RUNS", "4")
    run()
    assert left(five) == ["new", "new", "old-1", "old-2", "old-5", "old-6"]
    run(keep_runs=3)
    assert left(five) == ["new", "new", "new", "old-5", "old-6"], "an option counts more than the environment"


@pytest.mark.parametrize("text", ["0", "all", "-1", "1.5"])
def test_a_wrong_limit_in_the_environment_removes_nothing_and_is_told(five, monkeypatch, caplog, text):
    monkeypatch.setenv("TFOS_LAB_KEEP_RUNS", text)
    run()
    assert len(left(five)) == 6
    assert f"TFOS_LAB_KEEP_RUNS={text}: a whole number, 1 or more, is needed" in caplog.text


def test_a_search_goes_as_a_whole_and_stays_while_it_goes_on_or_for_the_sake_of_one_trial(place):
    path = write_search(place, ago_s=9 * DAY_S)
    trial = tfos_lab.runs(place)[f"{path.name[-4:]}.1"]
    trial.tag("good")
    write_search(place, "search-20260101-120000-1f2e", ago_s=9 * DAY_S, **GOING, process=this_process())
    run(keep_runs=1)
    assert len(left(place)) == 3
    trial.untag("good")
    run(keep_runs=1)
    assert left(place) == ["new", "search"]


def test_a_lost_run_goes_and_what_is_no_run_of_ours_is_left_alone(five, tmp_path):
    outside = write_run(tmp_path / "outside", "real-1")
    (five / "link").symlink_to(outside)
    (five / "notes").mkdir()
    (five / "foreign").mkdir()
    (five / "foreign" / "run.json").write_text("{}")
    (five / "old-4" / "output").symlink_to(outside)
    write_run(five, "old-6", ago_s=9 * DAY_S, **GOING)
    run(keep_runs=1)
    assert left(five) == ["foreign", "link", "new", "notes", "old-5"]
    assert (outside / "run.json").exists(), "links are not followed"
