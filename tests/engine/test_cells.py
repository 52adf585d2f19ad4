"""Cells of an interactive cluster: which nodes run which, and what they report."""

from __future__ import annotations

import pytest

from tfos_lab import messages as m
from tfos_lab.engine.cells import Cells
from tfos_lab.engine.interactive.results import CellResults, failure_of_cell
from tfos_lab.errors import ConfigError
from tfos_lab.values import encode_value

NODES = {0: "chief:0", 1: "worker:0", 2: "worker:1"}


def ended(rank, cell=1, names=(), **outcome):
    return m.CellEnded(rank=rank, cell=cell, outcome=m.Outcome(**outcome), names=list(names))


def returned(rank, value=None, cell=1, names=()):
    return ended(rank, cell, names, kind="returned", value=encode_value(value))


def raised(rank, error, message, traceback=""):
    return ended(rank, kind="raised", error=error, message=message, traceback=traceback)


def test_a_cell_ends_when_all_its_nodes_have_ended_it():
    cells = Cells()
    cell = cells.begin({0: "chief:0", 2: "worker:1"})
    cells.handle(returned(0, 1))
    assert not cells.wait(cell, 0)
    assert cell.busy == ["worker:1"]
    cells.handle(m.CellWrote(rank=2, cell=1, stream="stdout", text="a"))
    cells.handle(m.CellWrote(rank=2, cell=1, stream="stderr", text="b"))
    cells.handle(returned(2, 2))
    assert cells.wait(cell, 0)
    results = CellResults(cell)
    assert dict(results) == {"chief:0": 1, "worker:1": 2}
    assert results.output == {"chief:0": "", "worker:1": "ab"}


def test_a_node_runs_one_cell_at_a_time():
    cells = Cells()
    cells.begin({1: "worker:0"})
    with pytest.raises(ConfigError, match="worker:0 still runs an earlier cell: wait, choose others with nodes"):
        cells.begin(NODES)
    other = cells.begin({0: "chief:0"})
    cells.handle(returned(1))
    cells.forget(other)
    cells.begin(NODES)


def test_reports_of_cells_and_nodes_that_are_not_known_are_dropped():
    cells = Cells()
    cell = cells.begin({0: "chief:0"})
    cells.handle(returned(1))
    cells.handle(returned(0, cell=7))
    assert cell.busy == ["chief:0"]


def test_the_names_that_all_chosen_nodes_have_are_known():
    cells = Cells()
    cells.begin(NODES)
    for rank, names in enumerate((("a", "b"), ("b", "c"), ())):
        cells.handle(returned(rank, names=names))
    assert cells.own_names({0: "chief:0", 1: "worker:0"}) == {"b"}
    assert cells.own_names(NODES) == set()


def test_equal_failures_are_one_and_others_are_named():
    cells = Cells()
    cell = cells.begin(NODES)
    cells.handle(raised(0, "ValueError", "x", "Traceback …\nValueError: x"))
    cells.handle(raised(1, "KeyError", "'y'", "Traceback …\nKeyError: 'y'"))
    cells.handle(raised(2, "ValueError", "x"))
    failure = failure_of_cell(cell)
    assert (failure.node, failure.also) == ("chief:0", ["worker:1"])
    assert failure.traceback == "worker:0: KeyError: 'y'\n\nTraceback …\nValueError: x"


def test_leaving_the_process_ends_only_the_cell():
    cells = Cells()
    cell = cells.begin({0: "chief:0"})
    cells.handle(ended(0, kind="exited", exit_code=3))
    assert str(failure_of_cell(cell)).startswith("chief:0: SystemExit")


def test_values_are_shown_once_where_nodes_agree():
    cells = Cells()
    cell = cells.begin(NODES)
    for rank, value in enumerate((1, 2, 1)):
        cells.handle(returned(rank, value))
    assert repr(CellResults(cell)) == "chief:0, worker:1: 1\nworker:0: 2"
