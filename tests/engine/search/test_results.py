"""What a search has found."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tfos_lab.engine.search.results import SearchResults, Trial
from tfos_lab.errors import RunFailed

RUN = Path("/runs/search-1")


@pytest.fixture
def results():
    failure = RunFailed(run=2, kind="raised", error="ValueError", message="no\nmore", noun="trial")
    ranking = [
        Trial(number=1, params={"lr": 0.1, "state": "x"}, metric=0.5, steps=9, state="done", seconds=2.0, tries=1,
              run_dir=RUN / "run-1", model_path=RUN / "run-1" / "output" / "model.keras"),
        Trial(number=0, params={"lr": 0.2, "state": "y"}, metric=0.7, steps=3, state="stopped early", seconds=1.0),
        Trial(number=2, params={"lr": 0.3}, state="failed", error=failure),
    ]  # fmt: skip
    return SearchResults(ranking, best=ranking[0], metric="loss", mode="min", run_dir=RUN)


def test_trials_are_found_by_their_numbers(results):
    assert len(results) == 3
    assert [trial.number for trial in results] == [0, 1, 2]
    assert results[1] is results.best
    assert list(results.failures) == [2]


def test_the_table_has_the_best_first_with_a_column_for_each_parameter(results):
    table = results.table
    assert list(table.columns) == [
        *("trial", "lr", "state_", "metric", "steps", "state", "seconds", "tries", "cluster_size", "error"),
        *("run_dir", "model_path"),
    ]
    assert list(table["trial"]) == [1, 0, 2]
    assert list(table["state"]) == ["done", "stopped early", "failed"]
    assert list(table["state_"]) == ["x", "y", None]
    assert list(table["metric"][:2]) == [0.5, 0.7]
    assert table["metric"].isna()[2]
    assert table["error"][2] == "ValueError: no"
    assert table["model_path"][0] == "/runs/search-1/run-1/output/model.keras"
    assert table["model_path"].isna()[1]


def test_they_are_shown_best_first(results):
    assert repr(results).splitlines() == [
        "trial 1 (lr=0.1, state='x'): done loss 0.5",
        "trial 0 (lr=0.2, state='y'): stopped early loss 0.7",
        "trial 2 (lr=0.3): failed ValueError: no",
    ]
    assert "stopped early" in results._repr_html_()


def test_they_survive_pickling(results):
    again = pickle.loads(pickle.dumps(results))
    assert again.best.params == {"lr": 0.1, "state": "x"}
    assert again.failures[2].headline == "trial 2: ValueError: no"
