"""Results that are not plain data: pickled, described or refused; and bytes that a node never sends."""

from __future__ import annotations

import contextlib
import pickle
import threading
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tfos_lab.errors import ResultNotSendable, ResultTooLarge, ResultUnreadable
from tfos_lab.values import RemoteObject, decode_value, describe, encode_value
from tfos_lab.values.tags import Tag


@dataclass
class Settings:
    rate: float


class Colour(Enum):
    RED = 1


class Trap:
    """Records that it was unpickled."""

    sprung = False

    def __reduce__(self) -> Any:
        return spring, ()


def spring() -> str:
    Trap.sprung = True
    return "sprung"


def test_an_object_is_unpickled_only_by_load() -> None:
    Trap.sprung = False
    arrived = decode_value(encode_value({"trap": Trap()}))["trap"]
    assert isinstance(arrived, RemoteObject)
    assert "Trap object at" in repr(arrived)
    assert not Trap.sprung
    assert arrived.load() == "sprung"


def test_a_dataclass_shows_its_text_and_loads() -> None:
    arrived = decode_value(encode_value(Settings(0.1)))
    assert repr(arrived) == "Settings(rate=0.1)"
    assert arrived.type_name.endswith("Settings")
    assert arrived.load() == Settings(0.1)
    assert decode_value(encode_value(Colour.RED)).load() is Colour.RED


def test_data_frames_that_arrow_cannot_hold_arrive_pickled() -> None:
    frame = pd.DataFrame({"mixed": [1, "a", {2}]})
    arrived = decode_value(encode_value(frame))
    assert isinstance(arrived, RemoteObject)
    pd.testing.assert_frame_equal(arrived.load(), frame)


def test_an_unpicklable_part_is_named_by_its_path() -> None:
    with pytest.raises(ResultNotSendable) as error:
        encode_value({"model": [1, threading.Lock()]})
    assert str(error.value) == (
        "result['model'][1] (_thread.lock) cannot be returned to the notebook: locks and threads belong to the process "
        "that made them. Return plain data (numbers, text, arrays, data frames, lists and dicts of them), or save it "
        "under ctx.log_dir and return the path."
    )
    assert isinstance(error.value, TypeError)


def test_an_object_whose_pickling_fails_is_quoted() -> None:
    class Stubborn:
        def __reduce__(self) -> Any:
            raise ValueError("I stay here.\nmore")

    with pytest.raises(ResultNotSendable, match=r"result \(.*Stubborn\) cannot be returned .*: I stay here\. Return"):
        encode_value(Stubborn())


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ResultNotSendable, match="nested more than 100 deep, or holds itself"):
        encode_value(value)


def test_a_result_that_is_too_large_names_its_largest_part() -> None:
    with pytest.raises(ResultTooLarge) as error:
        encode_value({"small": 1, "weights": [np.zeros(1_000_000)]}, limit_bytes=4_000_000)
    assert str(error.value) == (
        "the result is too large to return: result['weights'][0] (numpy.ndarray) takes 8.0 MB, and all of it may take "
        "4.0 MB. Save it under ctx.log_dir and return the path."
    )
    assert isinstance(error.value, ValueError)


@pytest.mark.parametrize(
    "value",
    ["x" * 2000, b"x" * 2000, [1 << 8] * 500, ["x" * 100] * 20, pd.DataFrame({"a": range(2000)}), Settings("x" * 2000)],
)
def test_every_kind_of_value_counts_towards_the_limit(value: Any) -> None:
    with pytest.raises(ResultTooLarge):
        encode_value(value, limit_bytes=1000)


def test_the_value_of_a_last_line_is_sent_as_text_when_it_is_not_plain_data() -> None:
    arrived = decode_value(encode_value(Settings(0.1), implicit=True))
    assert repr(arrived) == "Settings(rate=0.1)"
    with pytest.raises(ValueError, match="Write `return` before it to bring the object itself"):
        arrived.load()


@pytest.mark.parametrize("value", [threading.Lock(), [threading.Lock()], np.zeros(10_000)])
def test_the_value_of_a_last_line_is_never_refused(value: Any) -> None:
    arrived = decode_value(encode_value(value, limit_bytes=5000, implicit=True))
    assert isinstance(arrived, RemoteObject) or "lock" in repr(arrived)


def test_the_value_of_a_last_line_that_is_plain_data_arrives_as_it_is() -> None:
    assert decode_value(encode_value({"loss": [1.0]}, implicit=True)) == {"loss": [1.0]}


def test_tensors_arrive_as_arrays_and_histories_as_their_dict() -> None:
    class FakeTensor:
        def numpy(self) -> Any:
            return np.ones((2, 2), "f4")

    class History:
        def __init__(self) -> None:
            self.history = {"loss": [0.5, np.float32(0.25)]}
            self.model = threading.Lock()

    class Symbolic:
        def numpy(self) -> Any:
            raise NotImplementedError("numpy() is only available when eager execution is enabled.")

    FakeTensor.__module__ = "tensorflow.python.framework.ops"
    Symbolic.__module__ = "tensorflow.python.framework.ops"
    History.__module__ = "keras.src.callbacks.history"
    arrived = decode_value(encode_value(FakeTensor()))
    assert arrived.dtype == np.float32
    assert arrived.shape == (2, 2)
    assert decode_value(encode_value(History())) == {"loss": [0.5, 0.25]}
    with pytest.raises(ResultNotSendable, match="it has no value outside its graph"):
        encode_value(Symbolic())


def test_describe_survives_any_repr() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise KeyError("x")

    assert describe(Broken()).endswith("Broken, whose repr failed: KeyError>")
    assert describe("x" * 10_000).endswith("… (10,002 characters)")
    assert describe([1]) == "[1]"


@given(st.binary())
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    with contextlib.suppress(ResultUnreadable):
        decode_value(data)


def test_bytes_that_are_not_a_result_are_refused_with_the_reason() -> None:
    with pytest.raises(ResultUnreadable, match="a node sent a result that cannot be read: DecodeError: "):
        decode_value(b"")


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-10, 300), st.floats(), st.text(max_size=5), st.binary(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=8,
)


@given(st.sampled_from(Tag), st.lists(anything, max_size=4))
def test_random_parts_of_every_tag_are_refused_and_nothing_else_happens(tag: Tag, parts: list[Any]) -> None:
    with contextlib.suppress(ResultUnreadable):
        decode_value(msgspec.msgpack.encode([tag, *parts]))


def test_nothing_is_unpickled_for_an_array_of_objects() -> None:
    Trap.sprung = False
    lowered = [Tag.ARRAY, "|O", [Tag.TUPLE, 1], pickle.dumps(Trap())]
    with pytest.raises(ResultUnreadable, match="an array of Python objects"):
        decode_value(msgspec.msgpack.encode(lowered))
    assert not Trap.sprung


def test_bytes_that_are_nested_too_deep_are_refused() -> None:
    lowered: Any = 1
    for _ in range(300):
        lowered = [Tag.LIST, lowered]
    with pytest.raises(ResultUnreadable, match="nested too deep"):
        decode_value(msgspec.msgpack.encode(lowered))


def test_the_name_of_a_named_tuple_cannot_contain_code() -> None:
    lowered = [Tag.NAMED_TUPLE, "P", [Tag.TUPLE, "a=print('x')"], 1]
    with pytest.raises(ResultUnreadable, match="valid identifiers"):
        decode_value(msgspec.msgpack.encode(lowered))
