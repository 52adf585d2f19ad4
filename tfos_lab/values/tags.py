"""The tags of values on the wire: every list is ``[tag, ...]``, and everything that is not a list stands for itself."""

from __future__ import annotations

from enum import IntEnum

# Deeper values are refused when encoded and when decoded: both sides recurse.
MAX_DEPTH = 100

# Types of ml_dtypes, which NumPy cannot name: the low-precision numbers of TensorFlow.
ML_DTYPES = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"}
    | {"int2", "int4", "uint2", "uint4"}
)


class Tag(IntEnum):
    """What a list on the wire stands for; the numbers are the format, so they never change their meaning."""

    LIST = 0
    TUPLE = 1
    SET = 2
    FROZENSET = 3
    DICT = 4
    NAMED_TUPLE = 5
    BIG_INT = 6
    COMPLEX = 7
    SURROGATES = 8
    BYTEARRAY = 9
    DATETIME = 10
    DATE = 11
    TIME = 12
    TIMEDELTA = 13
    DECIMAL = 14
    FRACTION = 15
    UUID = 16
    RANGE = 17
    PATH = 18
    ARRAY = 20
    SCALAR = 21
    OBJECT_ARRAY = 22
    FRAME = 30
    SERIES = 31
    TIMESTAMP = 32
    PANDAS_TIMEDELTA = 33
    NAT = 34
    NA = 35
    TABLE = 36
    OPAQUE = 40
