"""Sentence matrices are of one shape, or a sentence says which is not."""

from __future__ import annotations

import pytest
from pyspark.ml.linalg import DenseMatrix, SparseVector, Vectors

from tfos_lab.errors import FeedError
from tfos_lab.ml.text_rows import NotRectangular, checked, problem_of, shape_of

MATRIX = [[0.0, 0.5], [1.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize(
    ("feature", "shape"),
    [
        (MATRIX, (3, 2)),
        ([Vectors.dense(1.0, 2.0), SparseVector(2, {0: 1.0})], (2, 2)),
        (DenseMatrix(2, 3, [0.0] * 6), (2, 3)),
        (Vectors.dense(1.0, 2.0, 3.0), (3,)),
        ([7, 8, 9, 0], (4,)),
        ([], (0,)),
        ("a text", ()),
        (3.5, ()),
    ],
)
def test_the_shape_of_a_feature(feature, shape):
    assert shape_of(feature) == shape


@pytest.mark.parametrize("feature", [[[1.0], [1.0, 2.0]], [[1.0], 2.0], [[1.0], None]])
def test_vectors_of_several_sizes_make_no_matrix(feature):
    with pytest.raises(NotRectangular, match=r"vectors of .+ and .+ values: all need to have one size"):
        shape_of(feature)


def test_rows_pass_until_one_has_another_shape():
    rows = checked([{"m": MATRIX}, {"m": MATRIX}, {"m": MATRIX[:2]}], "m", (3, 2))
    assert [next(rows), next(rows)] == [{"m": MATRIX}] * 2
    with pytest.raises(FeedError, match=r"'m': the first row's sentence matrix is 3 × 2, another row's is 2 × 2: pad"):
        next(rows)


@pytest.mark.parametrize(
    ("feature", "told"),
    [
        (None, r"'m' has a null: leave such rows out, as in df.dropna\(subset=\['m'\]\)"),
        ([[1.0], [1.0, 2.0]], "'m': a sentence matrix has vectors of 1 and 2 values"),
        ("no", "another row's is no matrix"),
    ],
)
def test_other_misfits_are_told_as_well(feature, told):
    with pytest.raises(FeedError, match=told):
        list(checked([{"m": feature}], "m", (3, 2)))


def test_lists_of_words_may_have_any_length():
    assert problem_of([1, 2, 3], (5,), "m") == ""
