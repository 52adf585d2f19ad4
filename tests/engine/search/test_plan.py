"""What a search refuses before anything starts, and how many trials it has."""

from __future__ import annotations

import pytest

from tfos_lab.engine.search.domains import log_uniform
from tfos_lab.engine.search.plan import SearchPlan
from tfos_lab.engine.search.space import make_space
from tfos_lab.errors import ConfigError

FINITE = make_space({"lr": [1, 2, 3], "units": [1, 2]})
ENDLESS = make_space({"lr": log_uniform(1e-3, 1)})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"strategy": "gird"}, "strategy='gird': did you mean 'grid'? there are grid, random, halving, optuna"),
        ({"strategy": "Random"}, "did you mean 'random'?"),
        ({"strategy": 7}, "strategy=7: there are grid"),
        ({"trials": 0}, "trials=0: a whole number from 1 on is needed"),
        ({"trials": 2.5}, "trials=2.5: a whole number"),
        ({"mode": "minimum"}, "mode='minimum': did you mean 'min'? there are min, max"),
        ({"reduction": 1}, "reduction=1: a whole number from 2 on is needed"),
        ({"min_steps": 0}, "min_steps=0"),
        ({"metric": ""}, "metric=''"),
        ({"seed": "a"}, "seed='a': a whole number is needed"),
    ],
)
def test_bad_options_are_refused_in_a_sentence(options, text):
    with pytest.raises(ConfigError) as caught:
        SearchPlan(**options)
    assert text in str(caught.value)


def test_all_bad_options_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        SearchPlan(strategy="gird", trials=0, mode="x")
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize(
    ("options", "space", "kind", "count"),
    [
        ({}, FINITE, "grid", 6),
        ({"trials": 4}, FINITE, "random", 4),
        ({"trials": 40}, FINITE, "random", 6),
        ({"trials": 4}, ENDLESS, "random", 4),
        ({"strategy": "grid", "trials": 4}, FINITE, "grid", 4),
        ({"strategy": "random"}, FINITE, "random", 6),
        ({"strategy": "halving"}, FINITE, "halving", 6),
        ({"strategy": "halving", "trials": 9}, ENDLESS, "halving", 9),
        ({"strategy": "optuna", "trials": 9}, FINITE, "optuna", 9),
    ],
)
def test_a_search_has_so_many_trials(options, space, kind, count):
    plan = SearchPlan(**options)
    assert (plan.kind_for(space), plan.count_for(space)) == (kind, count)


@pytest.mark.parametrize(
    ("options", "space", "text"),
    [
        ({"strategy": "grid", "trials": 3}, ENDLESS, "strategy='grid': there is no end of values for lr; list them"),
        ({}, ENDLESS, "trials=None: there is no end of values for lr; say how many to try, such as trials=20"),
        ({"strategy": "random"}, ENDLESS, "trials=None: there is no end of values for lr"),
        ({"strategy": "optuna"}, FINITE, "trials=None: Optuna would go on without end"),
        ({}, make_space({"a": range(1000), "b": range(1000)}), "space has 1,000,000 points: say how many to try"),
    ],
)
def test_a_search_without_an_end_is_refused(options, space, text):
    with pytest.raises(ConfigError) as caught:
        SearchPlan(**options).count_for(space)
    assert text in str(caught.value)
