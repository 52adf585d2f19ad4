"""What differs between the versions of Spark, 3.5 to 4.3: all that asks which one there is stands here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tfos_lab.errors import ConfigError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

# What one row of a table's bytes may hold on its way to Spark 3.5.
_PART_BYTES = 16 << 20


def has_data_sources() -> bool:
    """Whether Spark reads and writes formats that Python declares; since 4.0."""
    return _version() >= (4, 0)


def require_data_sources() -> None:
    """Raise a ConfigError where Spark knows no formats of Python."""
    if not has_data_sources():
        from pyspark import __version__

        raise ConfigError(
            [
                (
                    f"Spark {__version__} has no formats that Python declares, so none of the name tfrecord: use "
                    "tfos_lab.data.read_tfrecords and write_tfrecords, or Spark 4.0 or newer"
                )
            ]
        )


def register_data_source(spark: SparkSession, source: Any) -> None:
    """Register a data source; Spark 4.0 raises if it has found one of that name in an installed package."""
    try:
        spark.dataSource.register(source)
    except Exception as error:
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def writer_of_data_source() -> tuple[type[Any], bool]:
    """Return the class of data sources' writers, and whether it is given record batches (since 4.1), not rows."""
    from pyspark.sql import datasource

    of_batches = getattr(datasource, "DataSourceArrowWriter", None)
    return of_batches or datasource.DataSourceWriter, of_batches is not None


def parsed_schema(text: str) -> StructType:
    """Return the schema that DDL such as ``"x float, label long"`` describes."""
    from pyspark.sql import types

    if hasattr(types.StructType, "fromDDL"):  # since 4.0
        return types.StructType.fromDDL(text)  # type: ignore[return-value]
    return types._parse_datatype_string(text)  # type: ignore[return-value]  # noqa: SLF001 - it has no public name


def why_no_connect() -> str:
    """Return why sessions of Spark Connect cannot be used, as a clause; "" if they can."""
    if _version() >= (4, 0):
        return ""
    from pyspark import __version__

    return f"tfos_lab uses Spark Connect from Spark 4.0 on, and this is {__version__}"


def ml_context(spark: SparkSession) -> SparkSession | SparkContext:
    """Return what Spark ML's metadata readers and writers take: the session, or its context before 4.0."""
    return spark if _version() >= (4, 0) else spark.sparkContext


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the schema that Spark expects of record batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before 4.2
        return to_arrow_schema(schema)


# ---- Arrow ----------------------------------------------------------------------------------------------------------


def frame_of_table(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Make a DataFrame of an Arrow table, in the order of its rows; Spark does so itself since 4.0."""
    if _version() >= (4, 0):
        return spark.createDataFrame(table, schema)
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = schema or from_arrow_schema(table.schema)
    table = table.cast(arrow_schema(schema))
    parts = max(spark.sparkContext.defaultParallelism, math.ceil(table.nbytes / _PART_BYTES))
    size = max(1, math.ceil(table.num_rows / parts))
    rows = [(_as_bytes(table.slice(start, size)),) for start in range(0, max(1, table.num_rows), size)]

    # Spark pickles a local function by value, for workers that need not have tfos_lab.
    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for part in batch.column(0):
                yield from pa.ipc.open_stream(part.as_buffer())

    return spark.createDataFrame(rows, "part binary").mapInArrow(unpack, schema)


def _as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def rows_of_batches(schema: str) -> Callable[[pa.RecordBatch], list[Any]]:
    """Return a function that makes of a record batch the rows that `DataFrame.collect` would return.

    The schema is Spark's, in JSON.
    """
    from pyspark.sql.types import StructType

    kind = StructType.fromJson(json.loads(schema))
    try:
        from pyspark.sql.conversion import ArrowTableToRowsConversion
    except ImportError:  # before 4.0
        make = _value_maker(kind)
        assert make is not None
        return lambda batch: [make(row) for row in batch.to_pylist()]

    def decode(batch: pa.RecordBatch) -> list[Any]:
        rows: list[Any] = ArrowTableToRowsConversion.convert(pa.Table.from_batches([batch]), kind)
        return rows

    return decode


def _value_maker(kind: DataType) -> Callable[[Any], Any] | None:
    """Return what makes Spark's value of one that Arrow gives; None where they are the same."""
    from pyspark.sql import Row
    from pyspark.sql import types as t

    def of_each(kind: DataType) -> Callable[[Any], Any]:
        make = _value_maker(kind)
        return lambda value: value if make is None or value is None else make(value)

    if isinstance(kind, t.UserDefinedType):
        stored = of_each(kind.sqlType())
        return lambda value: kind.deserialize(stored(value))
    if isinstance(kind, t.StructType):
        row, fields = Row(*kind.names), [(field.name, of_each(field.dataType)) for field in kind]
        return lambda value: row(*(make(value[name]) for name, make in fields))
    if isinstance(kind, t.ArrayType):
        element = of_each(kind.elementType)
        return lambda value: [element(one) for one in value]
    if isinstance(kind, t.MapType):
        key, entry = of_each(kind.keyType), of_each(kind.valueType)
        return lambda value: {key(name): entry(one) for name, one in value}
    if isinstance(kind, t.TimestampType):
        return lambda value: value.astimezone().replace(tzinfo=None)
    if isinstance(kind, t.BinaryType):
        return bytearray
    return None


def _version() -> tuple[int, ...]:
    import pyspark

    return tuple(int(part) for part in pyspark.__version__.split(".")[:2])
