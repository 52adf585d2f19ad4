"""The wire format of values: every list is ``[tag, ...]``, and anything that is not a list stands for itself."""

from __future__ import annotations

from enum import IntEnum
from typing import TypeAlias

# Deeper values are refused on both sides, which recurse.
MAX_DEPTH = 100

# The low-precision types of TensorFlow, from ml_dtypes. NumPy's file format has no names for them.
ML_DTYPES = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz"}
    | {"int2", "int4", "uint2", "uint4"}
)


class Tag(IntEnum):
    """What a list stands for. The numbers are the wire format: never give one another meaning."""

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
    BYTES = 50
    # Where in its file the contents of a part are, and their length.
    STORED = 51


# What MessagePack encodes; a list begins with its tag.
Encoded: TypeAlias = "bool | int | float | str | bytes | list[Encoded] | None"
