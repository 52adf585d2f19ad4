"""Rows as pickled objects in record batches."""

import threading

import numpy as np
import pytest

from tfos_lab.errors import FeedError
from tfos_lab.node.feed import object_rows


class Point:
    def __init__(self, x):
        self.x = x

    def __eq__(self, other):
        return isinstance(other, Point) and other.x == self.x

    __hash__ = None


class Gone:
    """Pickles, and cannot be made again."""

    def __reduce__(self):
        return (int, ("no number",))


ROWS = ["a", "", None, 1, True, 2.5, b"b", bytearray(b"c"), [1, [2], []], (1, (None, "x")), {"a": {1: 2}}, Point(3)]


def test_objects_come_back_as_they_were():
    back = object_rows.decode(object_rows.encode(ROWS))
    assert back == ROWS
    assert list(map(type, back)) == list(map(type, ROWS))


def test_arrays_of_numpy_keep_dtype_and_shape():
    (array, scalar) = object_rows.decode(object_rows.encode([np.ones((2, 3), np.float16), np.int8(4)]))
    assert (array.dtype, array.shape) == (np.float16, (2, 3))
    assert type(scalar) is np.int8


def test_a_slice_of_a_batch_has_its_own_rows_only():
    assert object_rows.decode(object_rows.encode(range(10)).slice(4, 3)) == [4, 5, 6]


def test_no_rows_make_an_empty_batch():
    batch = object_rows.encode([])
    assert (batch.num_rows, object_rows.decode(batch)) == (0, [])


def test_a_class_that_no_module_has_is_pickled_with_its_rows():
    class Local(Point):
        pass

    first, second = object_rows.decode(object_rows.encode([Local(1), Local(2)]))
    assert (first.x, second.x) == (1, 2)
    assert type(first) is type(second)


def test_a_row_that_cannot_be_pickled_is_named_with_the_reason():
    with pytest.raises(
        FeedError, match=r"a row of type _thread.lock cannot be pickled \(TypeError: cannot pickle '_th"
    ):
        object_rows.encode([threading.Lock()])


def test_a_row_that_cannot_be_unpickled_says_why():
    with pytest.raises(FeedError, match=r"a row cannot be unpickled on this node.*ValueError: invalid literal"):
        object_rows.decode(object_rows.encode([Gone()]))


def test_batches_are_bounded_by_rows():
    batches = list(object_rows.encoded(iter(range(10)), most_rows=4))
    assert [object_rows.decode(batch) for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_batches_are_bounded_by_bytes():
    batches = object_rows.encoded((bytes(100) for _ in range(7)), most_bytes=250)
    assert [batch.num_rows for batch in batches] == [3, 3, 1]


def test_rows_are_pulled_no_further_than_the_batch_needs():
    rows = iter(range(100))
    next(object_rows.encoded(rows, most_rows=4))
    assert next(rows) == 4


def test_no_rows_make_no_batch():
    assert list(object_rows.encoded([])) == []
