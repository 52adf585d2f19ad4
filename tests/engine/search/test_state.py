"""What trials have reported: the metric, the best value, the order, and what proves that none can be compared."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.core.states import NodeState
from tfos_lab.engine.parallel.state import RunEntry
from tfos_lab.engine.search.halving import Halving
from tfos_lab.engine.search.state import SearchState


def entries(*states):
    return [RunEntry(index, "", state) for index, state in enumerate(states)]


def test_the_first_metric_that_is_reported_is_compared():
    search = SearchState(2)
    search.report(0, 0, 1, {"epoch": 1.0, "loss": 2.0, "accuracy": 0.5})
    assert (search.metric, search.trials[0].best, search.trials[0].steps) == ("loss", 2.0, 1)


@pytest.mark.parametrize(("mode", "best"), [("min", 0.25), ("max", 3.0)])
def test_a_trial_counts_by_its_best_value(mode, best):
    search = SearchState(1, metric="m", mode=mode)
    for step, value in enumerate([1.0, 0.25, math.nan, 3.0, math.inf]):
        search.report(0, 0, step, {"m": value})
    assert search.trials[0].best == best
    assert search.trials[0].steps == 4
    assert search.trials[0].history == [(0, 1.0), (1, 0.25), (3, 3.0)]


def test_the_most_leading_node_that_reports_the_metric_counts():
    search = SearchState(1, metric="loss")
    search.report(0, 2, 1, {"loss": 0.1})
    search.report(0, 1, 1, {"loss": 0.2})
    search.report(0, 2, 2, {"loss": 0.01})
    assert search.trials[0].best == 0.2
    search.report(0, 0, 1, {"loss": 0.5})
    search.report(0, 1, 2, {"loss": 0.1})
    assert search.trials[0].best == 0.5


def test_an_evaluator_may_report_what_the_chief_does_not():
    search = SearchState(1, metric="val_loss")
    search.report(0, 0, 5, {"loss": 0.1})
    search.report(0, 3, 4, {"val_loss": 0.7})
    assert search.trials[0].best == 0.7


def test_another_try_begins_from_nothing():
    search = SearchState(1)
    search.trials[0].params = {"x": 1}
    search.report(0, 0, 3, {"loss": 0.1})
    search.begin(0)
    assert (search.trials[0].best, search.trials[0].steps, search.trials[0].params) == (None, None, {"x": 1})


def test_halving_cuts_what_is_worse():
    search = SearchState(4, mode="max", judge=Halving(4))
    assert not search.report(0, 0, 1, {"accuracy": 0.9})
    assert search.report(1, 0, 1, {"accuracy": 0.2})
    assert search.report(2, 0, 1, {"accuracy": math.nan})
    assert not search.report(3, 0, 1, {"other": 7.0}), "what is not compared cuts nothing"


# ---- what was not reported ------------------------------------------------------------------------------------------


def test_a_metric_that_the_first_trial_never_reports_is_a_mistake():
    search = SearchState(3, metric="accuracy")
    search.report(0, 0, 1, {"loss": 1.0, "val_loss": 2.0})
    problem = search.returned(0, None)
    assert problem == "metric='accuracy': trial 0 has returned without reporting it; it has reported loss, val_loss"


def test_a_trial_that_reports_nothing_proves_it_too():
    problem = SearchState(3).returned(0, None)
    assert problem.startswith(
        "trial 0 has returned without reporting anything to compare: call ctx.report(step, loss=…)"
    )


def test_once_one_has_reported_it_a_trial_without_is_only_a_row():
    search = SearchState(2, metric="loss")
    search.report(1, 0, 1, {"loss": 1.0})
    assert search.returned(0, None) == ""
    assert search.trials[0].best is None


def test_a_metric_that_was_never_a_number_is_a_row():
    search = SearchState(2, metric="loss")
    search.report(0, 0, 1, {"loss": math.nan})
    assert search.returned(0, None) == ""


def test_a_function_may_return_the_metric():
    search = SearchState(3, metric="loss")
    assert search.returned(0, {"loss": 0.5}) == ""
    assert search.trials[0].best == 0.5
    unnamed = SearchState(2)
    assert unnamed.returned(0, 3) == ""
    assert unnamed.returned(1, 2.5) == ""
    assert (unnamed.metric, unnamed.trials[0].best, unnamed.trials[1].best) == ("value", 3.0, 2.5)
    assert SearchState(1).returned(0, True) != ""


def test_what_was_reported_counts_before_what_is_returned():
    search = SearchState(1)
    search.report(0, 0, 1, {"loss": 0.5})
    assert search.returned(0, {"loss": 9.0}) == ""
    assert search.trials[0].best == 0.5


# ---- order ----------------------------------------------------------------------------------------------------------


def test_the_best_comes_first_and_failures_last():
    search = SearchState(6)
    for trial, value in {0: 3.0, 1: 1.0, 2: 0.5, 4: 2.0}.items():
        search.report(trial, 0, 1, {"loss": value})
    rows = entries(
        NodeState.DONE, NodeState.STOPPED_EARLY, NodeState.FAILED, NodeState.WAITING, NodeState.DONE, NodeState.RUNNING
    )
    assert [row.index for row in search.ranking(rows)] == [1, 4, 0, 5, 3, 2]
    assert search.best(rows).index == 4, "of those that have returned"


def test_without_any_that_has_returned_a_stopped_one_is_best():
    search = SearchState(2)
    search.report(1, 0, 1, {"loss": 1.0})
    assert search.best(entries(NodeState.STOPPED, NodeState.STOPPED)).index == 1
    assert SearchState(2).best(entries(NodeState.DONE, NodeState.FAILED)) is None


REPORTS = st.tuples(st.integers(0, 4), st.integers(0, 2), st.floats(width=32))


@given(st.lists(REPORTS, max_size=40), st.sampled_from(["min", "max"]))
def test_the_order_is_that_of_the_best_values(reports, mode):
    search = SearchState(5, metric="m", mode=mode)
    for step, (trial, order, value) in enumerate(reports):
        search.report(trial, order, step, {"m": value})
    ranking = [search.trials[row.index].best for row in search.ranking(entries(*[NodeState.DONE] * 5))]
    known = [value for value in ranking if value is not None]
    assert known == sorted(known, reverse=mode == "max")
    assert ranking == known + [None] * (5 - len(known))
    best = search.best(entries(*[NodeState.DONE] * 5))
    assert (best is None) == (not known)
    for trial in search.trials:
        values = [value for _, value in trial.history]
        assert trial.best == ((min if mode == "min" else max)(values) if values else None)
