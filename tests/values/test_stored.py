"""Large values in files: written once, mapped, removed when they are read, and refused when they are damaged."""

from __future__ import annotations

import errno
import gc
import os

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tfos_lab.errors import ResultNotStored, ResultTooLarge, ResultUnreadable
from tfos_lab.values import stored
from tfos_lab.values.remote import RemoteObject
from tfos_lab.values.stored import encode_result, load_stored

MIB = 1 << 20


@pytest.fixture
def path(tmp_path):
    return tmp_path / "result"


def sent(value, path):
    """Return what arrives of a value that is sent as a file."""
    encoded, size_bytes = encode_result(value, path, limit_bytes=64 * MIB, implicit=False)
    assert encoded == b""
    assert size_bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    arrived = load_stored(path, size_bytes)
    assert not path.exists()
    return arrived


@pytest.mark.parametrize(
    "array",
    [
        np.arange(MIB),
        np.arange(MIB).reshape(1024, 1024).T,
        np.arange(MIB)[::2],
        np.arange(MIB).astype("datetime64[s]"),
        np.zeros(MIB, [("a", "i2"), ("b", "S3")]),
        np.full((1, MIB), "ä"),
    ],
    ids=["numbers", "transposed", "strided", "times", "structure", "text"],
)
def test_an_array_arrives_as_it_was_and_can_be_written_to(array, path):
    arrived = sent(array, path)
    assert (arrived.dtype, arrived.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(arrived, array)
    arrived[0] = arrived[-1]
    np.testing.assert_array_equal(arrived[0], array[-1])


def test_an_array_is_mapped_and_lives_as_long_as_it_is_used(path):
    arrived = sent({"weights": [np.ones(MIB), np.arange(MIB)]}, path)["weights"][1]
    gc.collect()
    assert not arrived.flags.owndata
    assert arrived.ctypes.data % 64 == 0
    assert arrived[-1] == MIB - 1


def test_large_parts_of_other_kinds_arrive(path):
    frame = pd.DataFrame({"a": np.arange(100_000), "b": "text"})
    value = {"b": b"x" * MIB, "c": bytearray(b"y" * MIB), "t": "ü" * MIB, "frame": frame, "small": [1, np.arange(3)]}
    arrived = sent(value, path)
    assert [arrived[name] for name in "bct"] == [value[name] for name in "bct"]
    assert [type(arrived[name]) for name in "bct"] == [bytes, bytearray, str]
    pd.testing.assert_frame_equal(arrived["frame"], frame)
    assert arrived["small"][0] == 1
    table, series = pa.table({"x": np.arange(100_000)}), pd.Series(np.arange(100_000), name="s")
    assert sent(table, path).equals(table)
    pd.testing.assert_series_equal(sent(series, path), series)


class Thing:
    """Not plain data."""

    def __init__(self):
        self.data = b"z" * MIB


def test_an_object_arrives_pickled_and_is_not_unpickled(path):
    arrived = sent(Thing(), path)
    assert isinstance(arrived, RemoteObject)


@pytest.mark.parametrize("value", [None, 1, "text", np.zeros(100), np.zeros(20_000), b"x" * 100_000])
def test_a_small_value_makes_no_file(value, path):
    encoded, size_bytes = encode_result(value, path, limit_bytes=MIB, implicit=False)
    assert encoded
    assert size_bytes == 0
    assert not path.exists()


def test_a_value_that_is_too_large_leaves_no_file(path):
    value = [np.zeros(MIB, np.uint8) for _ in range(4)]
    with pytest.raises(ResultTooLarge, match=r"1.0 MB, and all of it may take 3.1 MB"):
        encode_result(value, path, limit_bytes=3 * MIB, implicit=False)
    assert not path.exists()
    encoded, size_bytes = encode_result(value, path, limit_bytes=3 * MIB, implicit=True)
    assert (len(encoded) < 10_000, size_bytes) == (True, 0)
    assert not path.exists()


def test_a_full_disk_is_named_and_nothing_is_left(path, monkeypatch):
    class FullDisk(stored.io.FileIO):
        def write(self, data):
            if self.tell():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data[:MIB])

    monkeypatch.setattr(stored.io, "FileIO", FullDisk)
    with pytest.raises(ResultNotStored, match=rf"stored in {path.parent} on .*: No space left on device, after 1.0 MB"):
        encode_result(np.zeros(MIB), path, limit_bytes=64 * MIB, implicit=False)
    assert not path.exists()


@pytest.mark.parametrize("damage", ["gone", "short", "long", "length", "head", "part"])
def test_a_file_that_is_not_what_a_node_writes_is_refused(damage, path):
    _, size_bytes = encode_result(np.arange(MIB), path, limit_bytes=64 * MIB, implicit=False)
    data = path.read_bytes()
    changed = {
        "short": data[:-1],
        "long": data + b"x",
        "length": data[:-8] + b"\xff" * 8,
        "head": data[:-20] + os.urandom(12) + data[-8:],
        "part": data[8 * MIB :].rjust(size_bytes),
    }
    path.unlink()
    if damage != "gone":
        path.write_bytes(changed[damage])
    if damage == "part":
        path.write_bytes(data[: 4 * MIB] + data[8 * MIB :])
        size_bytes -= 4 * MIB
    with pytest.raises(ResultUnreadable):
        load_stored(path, size_bytes)
