"""How ``ctx.dataset`` arranges columns as elements, and which columns it refuses."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import ConfigError, FeedError
from tfos_lab.node.feed.dataset import DatasetRequest, _Layout
from tfos_lab.node.feed.epoch import Piece

SPECS = (ColumnSpec("x", "number", "float32", (2,)), ColumnSpec("y", "number", "int64"))
X, Y = np.zeros((3, 2), np.float32), np.zeros(3, np.int64)


def layout(specs=SPECS, **asked):
    request = {"features": None, "label": None, "weight": None, "shuffle": False, "seed": None, "remainder": None}
    return _Layout(specs, DatasetRequest(batch_size=3, prefetch=2, **{**request, **asked}))


def test_rows_of_the_kind_that_a_dataset_was_made_for_are_arranged():
    x, y, weights = layout(label="y").arrange(Piece({"x": X, "y": Y}, 2))
    assert (x.shape, y.shape, weights.tolist()) == ((3, 2), (3,), [1.0, 1.0, 0.0])


def test_rows_that_only_fill_up_have_a_zero_of_their_own():
    weighted = layout((*SPECS, ColumnSpec("u", "number", "float64")), label="y", weight="u")
    _, _, weights = weighted.arrange(Piece({"x": X, "y": Y, "u": np.array([-0.0, 0.5, 3.0])}, 2, factor=1.5))
    assert weights.tolist() == [0.0, 0.75, 0.0]
    assert np.signbit(weights).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("columns", "came"),
    [
        ({"z": X}, "z: float32 (2,)"),
        ({"x": X, "y": np.full(3, b"", object)}, "x: float32 (2,), y: string ()"),
        ({"x": X.astype(float), "y": Y}, "x: float64 (2,), y: int64 ()"),
        ({"x": X[:, :1], "y": Y}, "x: float32 (1,), y: int64 ()"),
        ({"x": X[:, 0], "y": Y}, "x: float32 (), y: int64 ()"),
    ],
    ids=["names", "strings", "dtype", "length", "rank"],
)
def test_rows_of_another_table_are_refused_with_what_was_expected(columns, came):
    with pytest.raises(
        FeedError, match=re.escape(f"for rows of (x: float32 (2,), y: int64 ()), and now come rows of ({came})")
    ):
        layout().arrange(Piece(columns, 3))


def test_rows_that_hold_nothing_fit():
    unknown = (ColumnSpec("x", "number", "float32", (None,)),)
    assert layout(unknown).nothing()["x"].shape == (0, 0)


def test_a_column_is_not_overwritten_with_the_weights_of_the_rows():
    specs = (*SPECS, ColumnSpec("sample_weight", "number", "float32"))
    with pytest.raises(ConfigError, match=r"column 'sample_weight': .* say weight='sample_weight'"):
        layout(specs)
    weighted = layout(specs, weight="sample_weight")
    element = weighted.arrange(Piece({"x": X, "y": Y, "sample_weight": np.full(3, 0.25, np.float32)}, 2))
    assert element["sample_weight"].tolist() == [0.25, 0.25, 0.0]
    assert layout(specs, label="y").arrange(Piece({"x": X, "y": Y, "sample_weight": np.ones(3, np.float32)}, 3))
