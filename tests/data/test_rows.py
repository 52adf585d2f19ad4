"""Arrays of rows: cut, copied, joined, filled up and made."""

from __future__ import annotations

import numpy as np
import pytest

from tfos_lab.data.rows import count_rows, fill_to, join_rows, slice_rows, take_rows, zeros
from tfos_lab.data.schema import ColumnSpec
from tfos_lab.errors import ConfigError, FeedError


def test_cutting_makes_views_and_taking_copies():
    batch = {"x": np.arange(10).reshape(5, 2), "y": np.arange(5)}
    cut = slice_rows(batch, 1, 3)
    assert np.shares_memory(cut["x"], batch["x"])
    assert cut["y"].tolist() == [1, 2]
    assert take_rows(batch, np.array([4, 0]))["x"].tolist() == [[8, 9], [0, 1]]


def test_joining_one_batch_copies_nothing():
    batch = {"x": np.arange(3)}
    assert join_rows([batch])["x"] is batch["x"]
    assert join_rows([batch, batch])["x"].tolist() == [0, 1, 2, 0, 1, 2]
    with pytest.raises(ValueError, match="no batches"):
        join_rows([])


def test_batches_are_filled_up_with_copies_of_their_last_row():
    batch = {"x": np.ones((2, 3), np.int16), "s": np.array([b"a", b"b"], object), "b": np.array([True, False])}
    filled = fill_to(batch, 4)
    assert filled["x"].dtype == np.int16
    assert filled["x"][2:].tolist() == [[1, 1, 1], [1, 1, 1]]
    assert filled["s"].tolist() == [b"a", b"b", b"b", b"b"]
    assert filled["b"].tolist() == [True, False, False, False]
    assert fill_to(batch, 2)["x"] is batch["x"]
    for rows in (1, 0):
        with pytest.raises(ValueError, match=f"2 rows cannot be filled up to {rows}"):
            fill_to(batch, rows)


def test_rows_that_hold_nothing_are_made_from_specs():
    specs = [
        ColumnSpec("x", "number", "float32", (2, 3)),
        ColumnSpec("s", "string", "object"),
        ColumnSpec("y", "bool", "bool"),
    ]
    made = zeros(specs, 4)
    assert {name: (values.shape, values.dtype) for name, values in made.items()} == {
        "x": ((4, 2, 3), "float32"),
        "s": ((4,), "object"),
        "y": ((4,), "bool"),
    }
    assert made["s"].tolist() == [b""] * 4
    with pytest.raises(ConfigError, match="x: float32 \\(None,\\): the shape of a row has to be known"):
        zeros([ColumnSpec("x", "number", "float32", (None,))], 1)


def test_columns_of_unequal_length_are_named():
    with pytest.raises(FeedError, match="'x' 2, 'y' 3"):
        count_rows({"x": np.zeros(2), "y": np.zeros(3)})
