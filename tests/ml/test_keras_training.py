"""Which column is which input of the model that is trained."""

from __future__ import annotations

import pytest

from tfos_lab.errors import ConfigError
from tfos_lab.ml.keras_training import paired


@pytest.mark.parametrize(
    ("inputs", "names", "expected"),
    [
        ({"x": None}, ["in"], {"x": "in"}),
        ({"b": None, "a": None}, ["a", "b"], {"b": "b", "a": "a"}),
        ({"x": None, "y": None}, ["a", "b"], {"x": "a", "y": "b"}),
        ({"x": "b", "y": "a"}, ["a", "b"], {"x": "b", "y": "a"}),
        ({"x": None, "y": None}, [], {"x": "x", "y": "y"}),
    ],
)
def test_columns_are_inputs_by_mapping_by_name_or_by_order(inputs, names, expected):
    assert paired(inputs, names) == expected


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"x": "c", "y": "a"}, "^inputMapping: the model has no input 'c'; the model has a, b$"),
        ({"x": None}, r"^1 columns \(x\) for 2 inputs: the model has a, b$"),
        ({"x": "a", "y": "a"}, r"^2 columns \(x, y\) for 2 inputs: the model has a, b$"),
    ],
)
def test_columns_that_do_not_fit_are_refused(inputs, message):
    with pytest.raises(ConfigError, match=message):
        paired(inputs, ["a", "b"])
