"""What independent runs returned."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tfos_lab.engine.parallel.results import ParallelResults
from tfos_lab.engine.parallel.state import ParallelState
from tfos_lab.errors import RunFailed


@pytest.fixture
def results():
    state = ParallelState(["lr=0.1", "lr=0.2", "lr=0.3"])
    first, second = state.begin(1.0), state.begin(1.0)
    state.returned(first, 0.5, 3.0)
    state.failed(second, RunFailed(run=1, kind="raised", error="ValueError", message="no\nmore"), 2.0)
    state.stop()
    return ParallelResults(state.entries)


def test_values_stand_in_the_order_of_their_arguments(results):
    assert len(results) == 3
    assert results[0] == 0.5
    assert results[-3:1] == [0.5]
    assert isinstance(results[1], RunFailed)
    assert results[2] is None
    assert results.done == 1


def test_failures_are_found_by_place(results):
    assert list(results.failures) == [1]
    assert results.states == ["done", "failed", "stopped"]


def test_the_table_has_a_row_for_each_run(results):
    table = results.table()
    assert list(table.columns) == ["run", "args", "state", "tries", "seconds", "error"]
    assert list(table["error"]) == ["", "ValueError: no", ""]
    assert list(table["tries"]) == [1, 1, 0]
    np.testing.assert_array_equal(table["seconds"], [2.0, 1.0, np.nan])


def test_they_are_shown_as_lines(results):
    assert repr(results) == "0: 0.5\n1: failed ValueError: no\n2: stopped"
    assert repr(ParallelResults([])) == "no runs"


def test_they_survive_pickling(results):
    again = pickle.loads(pickle.dumps(results))
    assert again[0] == 0.5
    assert again[1].error == "ValueError"
    assert again.states == results.states


def test_an_empty_table_has_its_columns():
    assert "run" in ParallelResults([]).table().columns
