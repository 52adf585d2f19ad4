"""Runs are found by what people call them."""

from __future__ import annotations

import pytest

from tests.support.recorded_runs import write_run, write_some
from tfos_lab.engine.runs.find import find_run, fitting
from tfos_lab.engine.runs.read import read_runs
from tfos_lab.errors import ConfigError


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    write_some(folder)
    return folder


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
def test_an_identifier_a_label_or_an_end_is_enough(place, name, run_id):
    assert find_run(name, place).id == run_id


def test_a_folder_is_a_name_too(place, tmp_path, monkeypatch):
    path = write_run(tmp_path, "other-1")
    assert find_run(path, place).id == "other-1"
    monkeypatch.chdir(tmp_path)
    assert find_run("./other-1", place).id == "other-1"


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
def test_what_means_no_run_or_several_is_told(place, name, sentence):
    with pytest.raises(ConfigError) as error:
        find_run(name, place)
    assert str(error.value) == sentence


def test_a_damaged_run_is_told(place):
    with pytest.raises(ConfigError, match=r"damaged-1: run.json is damaged"):
        find_run(place / "damaged-1", place)


def test_where_nothing_was_recorded_that_is_told(tmp_path):
    with pytest.raises(ConfigError, match="there is no run 'x': no run has been recorded in "):
        find_run("x", tmp_path)


def test_patterns_choose_several(place):
    runs = read_runs(place).runs
    assert len(fitting([], runs)) == len(runs)
    assert [run.id[-4:] for run in fitting(["titanic", "*-1f2e"], runs)] == ["4e5f", "1f2e"]
    with pytest.raises(ConfigError, match="did you mean titanic"):
        fitting(["mnist", "titanik"], runs)
