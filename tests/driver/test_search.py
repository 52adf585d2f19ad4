"""Searches: which points are tried, which trials go on, which is best, and what is refused before anything begins."""

import itertools
import math
import pickle
import re
import sys

import numpy as np
import optuna
import pytest

import tfos_lab
from tfos_lab.errors import ConfigError

# ---- what a search finds --------------------------------------------------------------------------------------------


@pytest.fixture
def search():
    return lambda space, function=report, **options: tfos_lab.search(
        function, space, **{"local": "inline", "show": False, **options}
    )


def report(args, ctx):
    """Report what is to be reported, and return what is to be returned."""
    for step, value in enumerate(args.get("values", [float(args.get("x", 0))]), 1):
        ctx.report(step, epoch=1.0, loss=value)
    return args.get("value")


@pytest.mark.parametrize(("mode", "best"), [("min", 0.25), ("max", 3.0)])
def test_a_trial_counts_by_its_best_value_and_nothing_that_is_no_number(search, mode, best):
    found = search({"values": [[1.0, 0.25, math.nan, 3.0, math.inf]]}, mode=mode)
    assert (found.metric, found.best.metric, found.best.steps) == ("loss", best, 5)


@pytest.mark.parametrize(
    ("options", "metric", "best"),
    [
        ({"metric": "loss"}, "loss", {"lr": 0.1, "loss": 0.5}),
        ({}, "loss", {"note": "good", "loss": 0.5, "accuracy": 0.9}),
        ({}, "value", 0.5),
    ],
    ids=["a dict", "a dict whose first number it is", "a number"],
)
def test_a_function_may_return_the_metric_and_what_was_reported_counts_first(search, options, metric, best):
    found = search({"values": [()], "value": [best]}, **options)
    assert (found.metric, found.best.metric) == (metric, 0.5)
    assert search({"values": [[0.5]], "value": [{"loss": 9.0}]}).best.metric == 0.5


def test_trials_are_found_by_number_and_shown_best_first_with_a_column_for_each_parameter(search):
    def fit(args, ctx):
        if args["x"] == 2:
            raise ValueError("no\nmore")
        ctx.report(1, loss=1.0 - args["x"])

    found = search({"x": [0, 1, 2], "state": ["y"]}, fit)
    assert ([trial.number for trial in found], list(found.failures)) == ([0, 1, 2], [2])
    assert found[1] is found.best
    assert re.fullmatch(
        r"Trial\(number=1, params={'x': 1, 'state': 'y'}, metric=0.0, steps=1, state='done', seconds=[\d.e-]+, "
        r"value=None, error=None\)",
        repr(found.best),
    )
    table = found.table
    assert list(table["trial"]) == [1, 0, 2]
    assert list(table["state"]) == ["done", "done", "failed"]
    assert list(table["state_"]) == ["y"] * 3, "a parameter may have the name of a column"
    assert (table["metric"].isna()[2], table["error"][2]) == (True, "ValueError: no")
    assert repr(found).splitlines()[0].startswith("trial 1 (x=1, state='y'): done loss 0")
    html = found._repr_html_()
    assert ("<th>error</th>" in html, "<th>model_path</th>" in html) == (True, False), "none of them has saved a model"
    again = pickle.loads(pickle.dumps(found))
    assert again.best.params == {"x": 1, "state": "y"}
    assert again.failures[2].headline == "trial 2 (x=2, state='y'): ValueError: no"


# ---- which points are tried -----------------------------------------------------------------------------------------


def points(found):
    return [trial.params for trial in found]


def test_a_grid_has_every_point_once_and_the_last_parameter_changes_first(search):
    space = {"lr": [0.1, 0.01], "units": range(2), "b": np.array([0.5]), "c": "relu", "d": tfos_lab.search.choice("x")}
    rest = {"b": 0.5, "c": "relu", "d": "x"}
    assert points(search(space)) == [{"lr": lr, "units": units, **rest} for lr in (0.1, 0.01) for units in (0, 1)]
    several = [{"kind": "linear"}, {"kind": "deep", "layers": [1, 2]}]
    assert points(search(several)) == [{"kind": "linear"}, *({"kind": "deep", "layers": layers} for layers in (1, 2))]


def test_random_points_are_all_different_within_their_bounds_and_the_same_for_a_seed(search):
    space = {
        "a": tfos_lab.search.uniform(-1, 2), "b": tfos_lab.search.log_uniform(1e-6, 1e-2),
        "c": tfos_lab.search.integers(-3, 3), "d": ["x", "y"],
    }  # fmt: skip
    drawn = points(search(space, trials=8, seed=3))
    assert len(drawn) == len({tuple(point.values()) for point in drawn}) == 8
    for point in drawn:
        assert -1 <= point["a"] <= 2
        assert 1e-6 <= point["b"] <= 1e-2
        assert point["c"] in range(-3, 4)
        assert point["d"] in "xy"
    assert points(search(space, trials=8, seed=3)) == drawn
    assert len(search({"a": range(2), "b": range(3)}, trials=40)) == 6, "a finite space has no more"
    assert points(search({"a": range(9)}, strategy="grid", trials=4)) == [{"a": number} for number in range(4)]


@pytest.mark.parametrize(
    ("space", "options", "text"),
    [
        ({}, {}, "space={} is empty: a dict of names and values is needed"),
        ("lr", {}, "space is a str: a dict of names and values"),
        ({"lr": []}, {}, "space['lr'] is empty: it needs at least one value"),
        ({3: [1]}, {}, "space[3]: the name of a parameter has to be a string"),
        ({"lr": itertools.count()}, {}, "space['lr'] is a count: a list of values, a range, or"),
        ({"a": [1]}, {"strategy": "gird"}, "strategy='gird': did you mean 'grid'? there are grid, random, halving"),
        ({"a": [1]}, {"trials": 0}, "trials=0: a whole number from 1 on is needed"),
        ({"a": [1]}, {"mode": "minimum"}, "mode='minimum': did you mean 'min'? there are min, max"),
        ({"a": [1]}, {"retries": -1}, "retries=-1"),
        ({"a": [1]}, {"reduction": 1}, "reduction=1: a whole number from 2 on is needed"),
        ({"a": tfos_lab.search.uniform(0, 1)}, {"strategy": "grid"}, "there is no end of values for a"),
        ({"a": tfos_lab.search.uniform(0, 1)}, {}, "say how many to try, such as trials=20"),
        ({"a": range(1000), "b": range(1000)}, {}, "space has 1,000,000 points: say how many to try"),
        ({"a": [1]}, {"args": 5}, "args=5: a dict, or an argparse.Namespace, is needed"),
        ({"a": [1]}, {"cluster_size": 0}, "cluster_size=0: at least one node is needed"),
        ({"a": [1]}, {"cluster_size": "size"}, "cluster_size='size': no parameter of that name; there are a"),
        ({"a": [1]}, {"data": "x", "epochs": 0}, "epochs=0"),
        ({"a": [1]}, {"strategy": optuna.create_study(direction="maximize"), "trials": 1}, "give mode='max'"),
        ([{"a": 1}, {"b": 2}], {"strategy": "optuna", "trials": 1}, "Optuna samples from one dict"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_what_makes_no_sense_is_refused_in_a_sentence(search, tmp_path, space, options, text):
    with pytest.raises(ConfigError) as caught:
        search(space, lambda args, ctx: pytest.fail("it began"), **options)
    assert text in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: tfos_lab.search.uniform(1, 0), "uniform(1, 0): two finite numbers are needed, the smaller one first"),
        (lambda: tfos_lab.search.log_uniform(0, 1), "log_uniform(0, 1): both bounds have to be more than 0"),
        (lambda: tfos_lab.search.integers(0.5, 1), "two whole numbers"),
        (lambda: tfos_lab.search.choice([]), "choice([]): at least one value is needed"),
    ],
)
def test_bad_bounds_are_refused(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)


def test_a_size_that_a_function_gets_wrong_is_told_with_the_parameters(search):
    with pytest.raises(ConfigError) as caught:
        search({"nodes": [2]}, cluster_size=lambda params: params["nods"])
    assert str(caught.value) == "cluster_size: your function raised KeyError: 'nods' for {'nodes': 2}"


# ---- Optuna ---------------------------------------------------------------------------------------------------------


def test_a_study_is_told_how_trials_have_ended(search):
    def fit(args, ctx):
        if args["x"] > 0.5:
            raise ValueError("no")
        ctx.report(1, loss=0.25)

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    found = search({"x": tfos_lab.search.uniform(0, 1), "layers": [(1, 2), (3,)]}, fit, strategy=study, trials=6)
    states = ["COMPLETE" if trial.state == "done" else "FAIL" for trial in found]
    assert [trial.state.name for trial in study.trials] == states
    assert set(states) == {"COMPLETE", "FAIL"}
    assert study.best_value == 0.25
    assert all(trial.params["layers"] in [(1, 2), (3,)] for trial in found), "values that Optuna cannot store"


def test_without_optuna_it_says_how_to_get_it_and_listed_values_need_none(search, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    for what in (
        lambda: search({"a": [1]}, strategy="optuna", trials=1),
        lambda: search({"a": [1]}, strategy="halving"),
        lambda: tfos_lab.search.uniform(0, 1),
    ):
        with pytest.raises(ConfigError, match=r"needs Optuna, which is not installed here: pip install optuna"):
            what()
    space = {"a": tfos_lab.search.integers(1, 3), "b": tfos_lab.search.choice("xy")}
    assert (len(search(space)), len(search(space, trials=4))) == (6, 4)


def test_a_space_may_have_distributions_of_optunas(search):
    space = {
        "lr": optuna.distributions.FloatDistribution(0.1, 0.5, step=0.1),
        "units": optuna.distributions.IntDistribution(8, 64, step=8),
        "layers": range(3, 0, -1),
        "kind": optuna.distributions.CategoricalDistribution(["a", "b"]),
    }
    for strategy in ("random", optuna.samplers.RandomSampler(seed=1)):
        for point in points(search(space, strategy=strategy, trials=5)):
            assert round(point["lr"], 1) in (0.1, 0.2, 0.3, 0.4, 0.5)
            assert point["units"] in range(8, 65, 8)
            assert point["layers"] in (1, 2, 3)
            assert point["kind"] in "ab"
    assert len(search({name: space[name] for name in ("units", "kind")})) == 16, "a grid of what can be listed"
    with pytest.raises(ConfigError, match=r"Optuna samples from one dict; list values for lr, or search each dict"):
        search([space, {"kind": "c"}], trials=3)


# ---- which trials halving cuts, at which rung ------------------------------------------------------------------------


def train(args, ctx):
    """Take nine steps, with the same loss at each."""
    for step in range(1, 10):
        ctx.report(step, total_steps=args["of"], loss=args["loss"])


def last_steps(losses, rungs):
    """Return the last step of each trial, one after another: of those that reach a rung, the best third goes on."""
    reached, ends = {rung: [] for rung in rungs}, []
    for loss in losses:
        for rung in rungs:
            reached[rung].append(loss)
            if sorted(reached[rung]).index(loss) >= max(1, len(reached[rung]) // 3):
                ends.append(rung)
                break
        else:
            ends.append(9)
    return ends


@pytest.mark.parametrize(
    ("steps", "options", "rungs"),
    [(None, {}, (1, 3, 9)), (None, {"min_steps": 4}, (4,)), (9, {}, (1, 3)), (18, {}, (2, 6))],
    ids=["steps", "a later first rung", "parts of the steps", "parts of more steps"],
)
def test_a_trial_that_is_not_among_the_best_third_at_its_rung_is_cut_there(search, steps, options, rungs):
    found = search({"loss": range(9), "of": [steps]}, train, strategy="halving", seed=1, **options)
    assert [trial.steps for trial in found] == last_steps([trial.params["loss"] for trial in found], rungs)
    assert {trial.state for trial in found if trial.steps < 9} == {"stopped early"}
    assert (found.best.params["loss"], found.best.steps) == (0, 9)
