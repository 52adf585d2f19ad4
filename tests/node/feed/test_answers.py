"""Results that nodes put: their types are kept, or refused with advice."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tfos_lab.errors import FeedError
from tfos_lab.node.feed.answers import Answers
from tfos_lab.node.feed.exchange_pool import ExchangePool
from tfos_lab.node.feed.results import as_array


@pytest.mark.parametrize(
    ("values", "kinds", "shown"),
    [
        ([("r", 0), ("s", 1)], "numbers and text", "('r', 0)"),
        ([[True, 2], [False, 3]], "numbers and true and false", "[True, 2]"),
        (["a", b"b"], "bytes and text", "['a', b'b']"),
        ([0.5, "b"], "numbers and text", "[0.5, 'b']"),
        ([[[1], ["x"]]], "numbers and text", "[[1], ['x']]"),
        (np.array([("r", 0)], object), "numbers and text", "['r', 0]"),
        ([np.float32(1), np.str_("x")], "numbers and text", "[np.float32(1.0), np.str_('x')]"),
    ],
    ids=["a tuple per row", "bool among numbers", "bytes and text", "scalars", "deep", "objects", "NumPy's scalars"],
)
def test_values_whose_types_would_be_lost_are_refused_with_what_keeps_them(values, kinds, shown):
    with pytest.raises(FeedError) as error:
        Answers(ExchangePool(0, lambda message: None, threading.Condition())).put({"both": values})
    assert str(error.value).startswith(
        f"put_results: 'both' mixes {kinds} ({shown}), and a column of Spark holds values of one type; give each type "
        "a column of its own, as in ctx.put_results({"
    )


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1, 2], "int64"),
        ([1, 2.5], "float64"),
        ([True, False], "bool"),
        (["a", None], "object"),
        ([None, 1.0], "object"),
        ([("a", "b")], "<U1"),
        ([np.float32(1), np.float32(2)], "float32"),
        ([np.zeros(3, "float32")] * 2, "float32"),
        ([{"label": "a", "score": 1}], "object"),
    ],
)
def test_values_of_one_kind_stay_what_they_are(values, dtype):
    assert as_array("x", values).dtype == dtype
