"""Old runs go when a new one has ended, if an option, a default of the notebook or the environment says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfos_lab
from tests.support.recorded_runs import this_process, write_run
from tests.support.trials import fit
from tfos_lab.engine.run_dir import RunDir
from tfos_lab.errors import ConfigError
from tfos_lab.jupyter.options.defaults import DEFAULTS, SESSION
from tfos_lab.jupyter.options.table import parse_options

DAY_S = 86_400.0


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with five runs, of the last five days; the oldest one is pinned."""
    place = tmp_path / "runs"
    monkeypatch.setenv("TFOS_LAB_RUNS", str(place))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    for number in range(1, 6):
        write_run(place, f"old-{number}", ago_s=(number - 0.5) * DAY_S)
    RunDir(place / "old-5").pin_mark.touch()
    return place


def nothing(args, ctx):
    """Return at once."""


def run(**options):
    with tfos_lab.run(nothing, local="inline", name="new", **options) as cluster:
        cluster.wait()


def left(place):
    return sorted(path.name.partition("-2")[0] if "new" in path.name else path.name for path in place.iterdir())


def test_by_default_all_stay(place):
    run()
    assert left(place) == ["new", "old-1", "old-2", "old-3", "old-4", "old-5"]


def test_so_many_of_the_newest_stay_and_pinned_ones_and_those_that_go_on(place):
    write_run(place, "old-6", ago_s=9 * DAY_S, state="running", outcome=None, ended_s=None, process=this_process())
    run(keep_runs=3)
    assert left(place) == ["new", "old-1", "old-2", "old-5", "old-6"]


def test_those_of_so_many_days_stay(place):
    run(keep_days=2)
    assert left(place) == ["new", "old-1", "old-2", "old-5"]


def test_with_both_a_run_goes_if_neither_keeps_it(place):
    run(keep_runs=1, keep_days=3)
    assert left(place) == ["new", "old-1", "old-2", "old-3", "old-5"]


def test_the_environment_holds_where_no_option_does(place, monkeypatch):
    monkeypatch.setenv("TFOS_LAB_KEEP_RUNS", "4")
    run()
    assert left(place) == ["new", "old-1", "old-2", "old-3", "old-5"]
    run(keep_runs=2)
    assert left(place) == ["new", "new", "old-5"]


@pytest.mark.parametrize("text", ["0", "all", "-1", "1.5"])
def test_a_wrong_limit_in_the_environment_removes_nothing_and_is_told(place, monkeypatch, caplog, text):
    monkeypatch.setenv("TFOS_LAB_KEEP_DAYS", text)
    run()
    assert len(left(place)) == 6
    assert f"TFOS_LAB_KEEP_DAYS={text}: a whole number, 1 or more, is needed" in caplog.text


def test_a_search_is_one_run_and_its_trials_stay_together(place):
    found = tfos_lab.search(fit, {"x": [1, 2, 5]}, local="inline", keep_runs=1, show=False, name="new")
    assert left(place) == ["new", "old-5"]
    assert all(trial.run_dir.is_dir() for trial in found)


def test_what_cannot_be_removed_is_told_and_costs_nothing_else(place, monkeypatch, caplog):
    rename = Path.rename

    def refuse(path, target):
        if path.name == "old-4":
            raise PermissionError(13, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    run(keep_runs=4)
    assert "old-4 is too old to stay, but it cannot be removed: Permission denied" in caplog.text


@pytest.mark.parametrize("options", [{"keep_runs": 0}, {"keep_runs": 1.5}, {"keep_days": 0}, {"keep_days": True}])
def test_limits_that_make_no_sense_are_refused(place, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        run(**options)


def test_a_notebook_may_have_another_default():
    try:
        DEFAULTS.set(SESSION, {"keep_runs": 20})
        assert parse_options("", {}).cluster.keep_runs == 20
        assert parse_options("keep_runs=None", {}).cluster.keep_runs is None
    finally:
        DEFAULTS.clear()
