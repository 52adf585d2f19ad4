"""Streams of batches of any size, cut into batches and multiples of one size."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfos_lab.data.rebatch import in_multiples, rebatch
from tfos_lab.data.rows import count_rows


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 7)), rows=st.integers(1, 9))
def test_rebatching_keeps_every_row_in_order(sizes, rows):
    total = sum(sizes)
    ends = np.cumsum([0, *sizes])
    stream = [{"x": np.arange(a, b), "y": np.arange(a, b) * 2} for a, b in pairwise(ends)]
    batches = list(rebatch(stream, rows))
    assert [v for batch in batches for v in batch["x"].tolist()] == list(range(total))
    assert all((batch["y"] == 2 * batch["x"]).all() for batch in batches)
    assert [count_rows(batch) for batch in batches[:-1]] == [rows] * (len(batches) - 1)
    assert all(1 <= count_rows(batch) <= rows for batch in batches)


def test_rebatching_within_one_batch_copies_nothing():
    whole = {"x": np.arange(6)}
    assert all(np.shares_memory(batch["x"], whole["x"]) for batch in rebatch([whole], 3))


def test_batches_of_no_rows_are_refused():
    with pytest.raises(ValueError, match="at least one row"):
        next(rebatch([{"x": np.arange(3)}], 0))


@given(
    sizes=st.lists(st.one_of(st.none(), st.integers(0, 30)), max_size=12),
    rows=st.integers(1, 8),
    most=st.integers(1, 40),
)
def test_pieces_are_whole_multiples_and_hold_each_row_once(sizes, rows, most):
    total = sum(size or 0 for size in sizes)
    numbers = iter(range(total))
    stream = [None if size is None else {"x": np.array([next(numbers) for _ in range(size)], int)} for size in sizes]
    pieces = list(in_multiples(stream, rows, most))
    assert pieces.count(None) == sizes.count(None)
    lengths = [len(piece["x"]) for piece in pieces if piece is not None]
    assert [x for piece in pieces if piece is not None for x in piece["x"]] == list(range(total))
    assert all(length % rows == 0 and length <= max(rows, most) for length in lengths[:-1])
    assert not lengths or lengths[-1] % rows == total % rows
