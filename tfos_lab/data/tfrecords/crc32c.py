"""CRC32C of many byte strings at once, masked as TFRecord files hold it.

The package ``google-crc32c`` computes them where it is installed. Executors need not have it: NumPy computes the same,
at a fraction of the speed. A CRC is linear, so that of a string follows from those of its halves: all strings are
folded at once, word by word and then half by half.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tfos_lab.data.rows import Array

_POLYNOMIAL = 0x82F63B78
_ALL_ONES = 0xFFFFFFFF
_WORD_BYTES = 4
# Strings that are folded together are padded to one length, so they are grouped by length, in limited numbers.
_GROUP_BYTES = 1 << 22


def masked_crcs(data: bytes, starts: Array, ends: Array) -> Array:
    """Compute the masked CRC32C of each ``data[start:end]``; uint32 ``(n,)``."""
    library = _library()
    crcs = (
        _fold_all(data, starts, ends)
        if library is None
        else np.fromiter(map(library, map(data.__getitem__, map(slice, starts.tolist(), ends.tolist()))), np.uint32)
    )
    return mask(crcs)


def mask(crcs: Array) -> Array:
    """Rotate CRCs (uint32) and add a constant: TFRecord files do so, as a CRC of data with CRCs would be unreliable."""
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + np.uint32(0xA282EAD8)


@functools.cache
def _library() -> Callable[[bytes], int] | None:
    try:
        import google_crc32c
    except ImportError:
        return None
    if google_crc32c.implementation == "python":  # pragma: no cover - a build without its compiled part
        return None
    compute: Callable[[bytes], int] = google_crc32c.value
    return compute


def _fold_all(data: bytes, starts: Array, ends: Array) -> Array:
    raw = np.frombuffer(data, np.uint8)
    sizes = ends - starts
    crcs = np.empty(len(starts), np.uint32)
    for row in np.flatnonzero(sizes < _WORD_BYTES).tolist():
        crcs[row] = _short(data[starts[row] : ends[row]])
    words = np.where(sizes < _WORD_BYTES, 0, 1 << np.ceil(np.log2(np.maximum(sizes, 4) / _WORD_BYTES)).astype(np.int64))
    for count in np.unique(words[words > 0]):
        rows = np.flatnonzero(words == count)
        step = max(1, _GROUP_BYTES // int(count * _WORD_BYTES))
        for first in range(0, len(rows), step):
            some = rows[first : first + step]
            crcs[some] = _fold(raw, starts[some], sizes[some], int(count))
    return crcs


def _fold(raw: Array, starts: Array, sizes: Array, words: int) -> Array:
    # Leading zeros do not change a CRC that starts from zero. CRC32C starts from all ones, which is the same as
    # inverting the first four bytes.
    width = words * _WORD_BYTES
    block = np.zeros((len(starts), width), np.uint8)
    for row, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        block[row, width - size :] = raw[start : start + size]
        block[row, width - size : width - size + _WORD_BYTES] ^= 0xFF
    inverted: Array = _shift(_halve(block.view("<u4"), _WORD_BYTES), _WORD_BYTES) ^ np.uint32(_ALL_ONES)
    return inverted


def _halve(words: Array, size_bytes: int) -> Array:
    """Fold blocks of ``size_bytes`` each, pair by pair, until each row has one; their number is a power of two."""
    while words.shape[1] > 1:
        words = _shift(np.ascontiguousarray(words[:, ::2]), size_bytes) ^ words[:, 1::2]
        size_bytes *= 2
    return words[:, 0]


def _shift(states: Array, size_bytes: int) -> Array:
    """Return what CRC states become after ``size_bytes`` zero bytes."""
    tables = _tables(size_bytes)
    parts = np.ascontiguousarray(states).view(np.uint8).reshape(*states.shape, 4)
    shifted: Array = tables[0][parts[..., 0]]
    for i in range(1, 4):
        shifted ^= tables[i][parts[..., i]]
    return shifted


@functools.cache
def _tables(size_bytes: int) -> Array:
    """Tabulate `_shift` by the four bytes of a state; uint32 ``(4, 256)``."""
    if size_bytes == 1:
        step = _byte_table()
        states = np.arange(256, dtype=np.uint32)[None, :] << (np.arange(4, dtype=np.uint32) * 8)[:, None]
        first: Array = step[states & 0xFF] ^ (states >> np.uint32(8))
        return first
    half = _tables(size_bytes // 2)
    parts = half.view(np.uint8).reshape(4, 256, 4)
    whole: Array = half[0][parts[..., 0]]
    for i in range(1, 4):
        whole = whole ^ half[i][parts[..., i]]
    return whole


@functools.cache
def _byte_table() -> Array:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1).astype(np.uint32)
    return table


def _short(data: bytes) -> int:
    crc, table = _ALL_ONES, _byte_table()
    for byte in data:
        crc = int(table[(crc ^ byte) & 0xFF]) ^ (crc >> 8)
    return crc ^ _ALL_ONES
