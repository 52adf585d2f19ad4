"""Old runs are removed if asked; pinned runs and those that have not ended stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.recorded_runs import this_process, write_run, write_some
from tfos_lab.engine.runs import prune as prune_module
from tfos_lab.engine.runs.find import find_run
from tfos_lab.engine.runs.prune import pin_run, prune_runs
from tfos_lab.errors import ConfigError

DAY_S = 86_400.0


@pytest.fixture
def place(tmp_path):
    for number in range(1, 5):
        write_run(tmp_path, f"run-{number}", ago_s=number * DAY_S)
    return tmp_path


def names(place):
    return sorted(path.name for path in place.iterdir())


def removed(done):
    return [one.folder.path.name for one in done if not one.kept]


def test_without_a_limit_nothing_is_removed(place):
    assert removed(prune_runs(folder=place)) == []
    assert len(names(place)) == 4


def test_the_newest_stay(place):
    assert removed(prune_runs(keep=2, folder=place)) == ["run-3", "run-4"]
    assert names(place) == ["run-1", "run-2"]


def test_recent_ones_stay(place):
    assert removed(prune_runs(days=2.5, folder=place)) == ["run-3", "run-4"]


def test_with_two_limits_a_run_goes_only_if_both_let_it_go(place):
    assert removed(prune_runs(days=2.5, keep=3, folder=place)) == ["run-4"]
    assert removed(prune_runs(days=2.5, keep=0, folder=place)) == ["run-3"]


def test_a_dry_run_says_what_would_go_and_how_large_it_is(place):
    (place / "run-4" / "model").write_bytes(bytes(10_000))
    done = prune_runs(keep=3, dry_run=True, folder=place)
    assert removed(done) == ["run-4"]
    assert done[-1].size_bytes > 10_000
    assert len(names(place)) == 4


def test_pinned_runs_stay_and_do_not_count(place):
    pin_run(find_run("run-4", place))
    assert find_run("run-4", place).pinned
    assert removed(prune_runs(keep=1, folder=place)) == ["run-2", "run-3"]
    pin_run(find_run("run-4", place), pinned=False)
    assert removed(prune_runs(keep=1, folder=place)) == ["run-4"]


def test_runs_that_have_not_ended_stay(tmp_path):
    write_run(tmp_path, "live-1", state="running", outcome=None, ended_s=None, process=this_process())
    write_run(tmp_path, "lost-1", state="running", outcome=None, ended_s=None)
    assert removed(prune_runs(keep=0, folder=tmp_path)) == ["lost-1"]
    assert names(tmp_path) == ["live-1"]


def test_independent_runs_go_together_once_their_kernel_has_gone(tmp_path):
    for process in ({}, {"process": this_process()}):
        for part in range(2):
            write_run(tmp_path / f"search-{len(process)}", f"run-{part}", id=f"search-{len(process)}.{part}", **process)
    pin_run(find_run("search-0.1", tmp_path))
    assert removed(prune_runs(keep=0, folder=tmp_path)) == []
    pin_run(find_run("search-0.1", tmp_path), pinned=False)
    assert removed(prune_runs(keep=0, folder=tmp_path)) == ["search-0"]


def test_what_is_no_run_of_ours_is_left_alone(tmp_path):
    write_some(tmp_path)
    outside = write_run(tmp_path / ".." / "outside", "real-1")
    (tmp_path / "link").symlink_to(outside)
    (tmp_path / "notes").mkdir()
    prune_runs(keep=0, folder=tmp_path)
    assert {"damaged-1", "foreign", "link", "notes"} <= set(names(tmp_path))
    assert outside.is_dir()


def test_links_in_a_run_are_not_followed(place, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "data").touch()
    (place / "run-4" / "output").symlink_to(outside)
    prune_runs(keep=3, folder=place)
    assert (outside / "data").exists()


def test_a_run_that_cannot_be_removed_is_told_and_the_others_go(place, monkeypatch):
    rename = Path.rename

    def refuse(path, target):
        if path.name == "run-3":
            raise PermissionError(13, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    done = prune_runs(keep=2, folder=place)
    assert removed(done) == ["run-4"]
    assert [one.kept for one in done if one.folder.path.name == "run-3"] == ["it cannot be removed: Permission denied"]


def test_an_interrupted_removal_leaves_no_half_run(place, monkeypatch):
    monkeypatch.setattr(prune_module.shutil, "rmtree", lambda path: os.kill(os.getpid(), 2))
    with pytest.raises(KeyboardInterrupt):
        prune_runs(keep=3, folder=place)
    assert removed(prune_runs(folder=place)) == []
    assert "run-4" not in names(place)
    monkeypatch.undo()
    prune_runs(keep=3, folder=place)
    assert names(place) == ["run-1", "run-2", "run-3"]


@pytest.mark.parametrize("limits", [{"keep": -1}, {"keep": True}, {"keep": 1.5}, {"days": -1}, {"days": float("nan")}])
def test_limits_that_make_no_sense_are_refused(place, limits):
    with pytest.raises(ConfigError, match=r"0 or more"):
        prune_runs(folder=place, **limits)
    assert len(names(place)) == 4
