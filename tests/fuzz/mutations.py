"""Bytes that nearly are what a reader expects: flipped, cut, doubled, and with lengths that promise too much."""

from __future__ import annotations

import tracemalloc
from contextlib import contextmanager

from hypothesis import strategies as st

# What lengths look like in MessagePack, in varints and in a TFRecord's frame, and what nests.
_TOKENS = [
    b"\xff" * 8,
    b"\x00" * 8,
    b"\xdf\xff\xff\xff\xff",
    b"\xdd\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\x91" * 3000,
]
# Python itself, and what a reader needs for inputs of some kilobytes.
MOST_BYTES = 16 << 20


@st.composite
def damaged(draw, whole: st.SearchStrategy[bytes]) -> bytes:
    """Return a strategy for bytes that are damaged in up to four places."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["flip", "cut", "insert", "double", "token"])):
            case "flip" if at < len(data):
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at : at + draw(st.integers(1, 16))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=16))
            case "double":
                data[at:at] = data[at : at + 16]
            case "token":
                data[at:at] = draw(st.sampled_from(_TOKENS))
    return bytes(data)


@contextmanager
def little_memory(most_bytes: int = MOST_BYTES):
    """Fail if the block allocates more than so much at any moment, by Python's own allocator or NumPy's."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most_bytes, f"{peak >> 20} MiB were allocated"
