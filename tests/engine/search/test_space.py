"""Spaces: what may be written, their points, and points drawn at random."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.engine.search.domains import choice, integers, log_uniform, uniform
from tfos_lab.engine.search.space import make_space
from tfos_lab.errors import ConfigError


def points(space):
    return [space.point(number) for number in range(space.size)]


def test_the_last_parameter_changes_first():
    space = make_space({"lr": [0.1, 0.01], "units": range(2)})
    assert points(space) == [{"lr": lr, "units": units} for lr in (0.1, 0.01) for units in (0, 1)]


def test_values_may_be_listed_in_many_ways():
    space = make_space(
        {"a": (1, 2), "b": np.array([0.5]), "c": "relu", "d": choice("xy"), "e": integers(3, 4), "f": None}
    )
    assert space.size == 8
    assert space.point(0) == {"a": 1, "b": 0.5, "c": "relu", "d": "x", "e": 3, "f": None}
    assert type(space.point(0)["b"]) is float


def test_the_points_of_several_spaces_follow_one_another():
    space = make_space([{"kind": "linear"}, {"kind": "deep", "layers": [1, 2]}])
    assert points(space) == [{"kind": "linear"}, {"kind": "deep", "layers": 1}, {"kind": "deep", "layers": 2}]
    assert space.names == ["kind", "layers"]


def test_a_range_of_numbers_has_no_end():
    space = make_space({"lr": log_uniform(1e-4, 1), "units": [1, 2]})
    assert space.size is None
    assert space.endless == ["lr"]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_space_has_each_point_once(lengths):
    lists = {f"p{place}": list(range(length)) for place, length in enumerate(lengths)}
    product = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    assert points(make_space(lists)) == product


@given(st.integers(1, 40), st.integers(0, 1000))
def test_points_drawn_from_a_finite_space_are_all_different(count, seed):
    space = make_space({"a": range(4), "b": range(5)})
    drawn = list(space.sample(count, random.Random(seed)))
    assert len(drawn) == min(count, 20)
    assert len({tuple(point.values()) for point in drawn}) == len(drawn)
    assert drawn == list(space.sample(count, random.Random(seed)))


@given(st.integers(0, 1000))
def test_numbers_are_drawn_within_their_bounds(seed):
    space = make_space({"a": uniform(-1, 2), "b": log_uniform(1e-6, 1e-2), "c": integers(-3, 3), "d": ["x", "y"]})
    [point] = space.sample(1, random.Random(seed))
    assert -1 <= point["a"] <= 2
    assert 1e-6 <= point["b"] <= 1e-2
    assert point["c"] in range(-3, 4)
    assert point["d"] in "xy"


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ({}, "space={} is empty: a dict of names and values is needed"),
        ([], "space=[] is empty"),
        ([{"a": [1]}, {}], "is empty"),
        ("lr", "space is a str: a dict of names and values"),
        (7, "space is a int"),
        ([1], "space has a int in it"),
        ({"lr": []}, "space['lr'] is empty: it needs at least one value"),
        ({3: [1]}, "space[3]: the name of a parameter has to be a string"),
        ({"lr": itertools.count()}, "space['lr'] is a count: a list of values, a range, or tfos_lab.search.uniform"),
        ({"lr": {1, 2}}, "space['lr'] is a set"),
    ],
)
def test_what_is_no_space_is_refused_in_a_sentence(space, text):
    with pytest.raises(ConfigError) as caught:
        make_space(space)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: uniform(1, 0), "uniform(1, 0): two finite numbers are needed, the smaller one first"),
        (lambda: uniform(0, float("inf")), "two finite numbers"),
        (lambda: uniform("a", "b"), "two finite numbers"),
        (lambda: log_uniform(0, 1), "log_uniform(0, 1): both bounds have to be more than 0"),
        (lambda: integers(3, 1), "integers(3, 1): two whole numbers are needed"),
        (lambda: integers(0.5, 1), "two whole numbers"),
        (lambda: choice([]), "choice([]): at least one value is needed"),
    ],
)
def test_bad_bounds_are_refused(make, text):
    with pytest.raises(ConfigError) as caught:
        make()
    assert text in str(caught.value)
