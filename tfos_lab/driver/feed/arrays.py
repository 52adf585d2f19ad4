"""DataFrames from what is in this process's memory: pandas' DataFrames, and NumPy's arrays.

They go to Spark as an Arrow table, so numbers are not copied one by one. Types that Spark lacks become the next wider
one; shapes stay, as arrays within arrays.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from tfos_lab.data.batches import nested_lists
from tfos_lab.data.spark_versions import frame_of_table
from tfos_lab.data.type_table import is_array
from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The columns of arrays that have no names: of a single array, and of a tuple.
TUPLE_NAMES = ("x", "y", "w")
_WIDER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.float16(): pa.float32(),
}
# The offsets of Arrow's lists have 32 bits.
_MOST_VALUES = 2**31 - 1


class _NoColumnError(TypeError):
    """Why values cannot be a column, as the rest of a sentence that begins with its name."""


def is_in_memory(data: Any) -> bool:
    """Whether this is a pandas DataFrame, a NumPy array, or a dict or tuple, whose values should be arrays."""
    pandas = sys.modules.get("pandas")
    is_frame = pandas is not None and isinstance(data, pandas.DataFrame)
    return is_frame or isinstance(data, np.ndarray | Mapping | tuple)


def frame_of_arrays(session: SparkSession, data: Any) -> DataFrame:
    """Make a DataFrame from a pandas DataFrame, a NumPy array, or a dict or tuple of arrays.

    Raises ConfigError with every column that Spark cannot hold; for columns of different lengths, and for no rows.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    table = table_of(data)
    # Times without a zone stay so, whatever zone and default type the session has.
    return frame_of_table(session, table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


def table_of(data: Any) -> pa.Table:
    """Return an Arrow table of columns that Spark can hold; raises as `frame_of_arrays` does.

    Examples
    --------
    >>> import numpy as np
    >>> table_of((np.zeros((3, 2), np.uint8), np.arange(3))).schema
    x: list<item: int16>
      child 0, item: int16
    y: int64
    """
    columns = _named_columns(data)
    if not columns:
        raise ConfigError([f"data: this {type(data).__name__} has no columns"])
    made: dict[str, pa.ChunkedArray] = {}
    problems = []
    for name, values in columns.items():
        try:
            made[name] = _column(values)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            problems.append(f"data: column '{name}' {_explained(values, error)}")
    if problems:
        raise ConfigError(problems)
    if len({len(column) for column in made.values()}) > 1:
        told = ", ".join(f"'{name}' has {len(column)}" for name, column in made.items())
        raise ConfigError([f"data: columns differ in their number of rows ({told}); each needs one value per row"])
    table = pa.table(made)
    if not table.num_rows:
        raise ConfigError(["data: there are no rows, only empty columns; give at least one row"])
    return table


def _named_columns(data: Any) -> dict[str, Any]:
    if isinstance(data, np.ndarray):
        names = data.dtype.names
        return {"x": data} if names is None else {name: data[name] for name in names}
    if isinstance(data, tuple):
        if len(data) > len(TUPLE_NAMES):
            raise ConfigError(
                [f"data: a tuple of {len(data)} has no names for its columns; give a dict, as in data={{'x': x}}"]
            )
        return dict(zip(TUPLE_NAMES, data, strict=False))
    names = [str(name) for name in data]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError([f"data: there are several columns '{twice[0]}'; rename all but one"])
    series = data.values() if isinstance(data, Mapping) else (data.iloc[:, number] for number in range(len(names)))
    return dict(zip(names, series, strict=True))


# ---- one column -----------------------------------------------------------------------------------------------------


def _column(values: Any) -> pa.ChunkedArray:
    if isinstance(values, np.ma.MaskedArray):
        raise _NoColumnError("is a masked array, and Spark has no masks: fill it first, as in array.filled(0)")
    if hasattr(values, "array") and hasattr(values, "iloc"):  # of pandas; NaN stays NaN where the column is NumPy's
        is_numpy = isinstance(values.dtype, np.dtype)
        return _array(values.to_numpy()) if is_numpy else _spark_column(pa.Array.from_pandas(values))
    if isinstance(values, list | tuple):
        return _objects(list(values))
    if not hasattr(values, "__array__"):
        raise _NoColumnError(f"is of type {type(values).__name__}, and an array with one value per row is needed")
    return _array(np.asarray(values))


def _array(array: np.ndarray) -> pa.ChunkedArray:
    if not array.ndim:
        raise _NoColumnError(f"is a single value, {array!r:.60}, and one per row is needed")
    if array.dtype == object:
        return _objects(array.tolist() if array.ndim > 1 else list(array))
    if array.dtype.name == "bfloat16":
        array = array.astype(np.float32)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    at_once = max(1, _MOST_VALUES // max(1, math.prod(array.shape[1:])))
    parts = [array[start : start + at_once] for start in range(0, max(1, len(array)), at_once)]
    return _spark_column(pa.chunked_array([nested_lists(part) for part in parts]))


def _objects(values: list[Any]) -> pa.ChunkedArray:
    """Convert Python's values; arrays of one shape are put into a single array first."""
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    if arrays and len(arrays) == len(values) and len({(value.shape, value.dtype) for value in arrays}) == 1:
        return _array(np.stack(arrays))
    return _spark_column(pa.array(values))


def _spark_column(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_type

    made = _cast(column)
    try:
        from_arrow_type(made.type)
    except PySparkTypeError as error:
        raise _NoColumnError(f"is {made.type}, which Spark lacks; convert it to numbers or text") from error
    return made if isinstance(made, pa.ChunkedArray) else pa.chunked_array([made])


def _cast(column: pa.Array | pa.ChunkedArray) -> Any:
    """Cast to types that Spark has; times lose what is below a microsecond."""
    wanted = _spark_type(column.type)
    return column if wanted == column.type else column.cast(wanted, safe=not _has_time(wanted))


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if is_array(kind):
        return pa.list_(_spark_type(kind.value_type))
    if types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if types.is_duration(kind):
        return pa.duration("us")
    return _WIDER.get(kind, kind)


def _has_time(kind: pa.DataType) -> bool:
    return _has_time(kind.value_type) if types.is_list(kind) else types.is_timestamp(kind) or types.is_duration(kind)


def _explained(values: Any, error: Exception) -> str:
    """Return why Spark cannot hold this column, as the rest of a sentence."""
    if isinstance(error, _NoColumnError):
        return str(error)
    kind = getattr(values, "dtype", type(values).__name__)
    why = " ".join(str(error).split())
    return f"({kind}) becomes no column of Spark: {why:.200}; give it numbers, text, or arrays of either"
