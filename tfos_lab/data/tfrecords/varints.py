"""Numbers as protocol buffers write them: seven bits a byte, lowest first, the high bit set on all but the last."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_MAX_BYTES = 10


def varint(value: int) -> bytes:
    r"""Write one number that is not negative.

    Examples
    --------
    >>> varint(300)
    b'\xac\x02'
    """
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def encode_varints(values: Array) -> tuple[Array, Array]:
    """Write int64 numbers one after another.

    Returns
    -------
    data : numpy.ndarray
        Their bytes, uint8.
    offsets : numpy.ndarray
        Where each begins in them, and where the last ends; int64 ``(n + 1,)``.
    """
    bits = values.view(np.uint64)
    largest = int(bits.max()) if len(bits) else 0
    if largest < 0x80:
        return bits.astype(np.uint8), np.arange(len(bits) + 1)
    sizes = np.ones(len(bits), np.int64)
    width = len(varint(largest))
    for i in range(1, width):
        sizes += bits >= np.uint64(1 << 7 * i)
    offsets = np.zeros(len(bits) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = np.empty(offsets[-1], np.uint8)
    data[offsets[:-1]] = bits.astype(np.uint8) & 0x7F
    for i in range(1, width):
        longer = np.flatnonzero(sizes > i)
        at = offsets[longer] + i
        data[at - 1] |= 0x80
        data[at] = (bits[longer] >> np.uint64(7 * i)).astype(np.uint8) & 0x7F
    return data, offsets


def decode_varints(data: Array) -> tuple[Array, Array]:
    """Read all numbers of a run of bytes (uint8), which ends with a whole one.

    Returns
    -------
    values : numpy.ndarray
        int64.
    ends : numpy.ndarray
        Where each one's bytes end.
    """
    if not len(data) or int(data.max()) < 0x80:
        return data.astype(np.int64), np.arange(1, len(data) + 1)
    ends = np.flatnonzero(data < 0x80) + 1
    starts = np.concatenate([[0], ends[:-1]])
    sizes = ends - starts
    values = (data[starts] & 0x7F).astype(np.uint64)
    for i in range(1, min(int(sizes.max()), _MAX_BYTES)):
        longer = np.flatnonzero(sizes > i)
        values[longer] |= (data[starts[longer] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    return values.view(np.int64), ends


def read_varints(data: Array, at: Array) -> tuple[Array, Array]:
    """Read one number at each of many places.

    Parameters
    ----------
    data : numpy.ndarray
        uint8, with ten bytes or more of anything behind the last place.
    at : numpy.ndarray
        The places.

    Returns
    -------
    values, after : numpy.ndarray
        The numbers (int64), and the places behind them.
    """
    values = data[at].astype(np.int64)
    after = at + 1
    longer = np.flatnonzero(values > 0x7F)
    values[longer] &= 0x7F
    for i in range(1, _MAX_BYTES):
        if not len(longer):
            break
        parts = data[after[longer]].astype(np.int64)
        after[longer] += 1
        values[longer] |= (parts & 0x7F) << (7 * i)
        longer = longer[parts > 0x7F]
    return values, after
