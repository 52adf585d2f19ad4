"""Gets a DataFrame ready to be fed, on the driver and before any row moves: chooses columns, checks types.

``mapInArrow`` needs help in three places only (seen on Spark 4.3): with vectors of spark.ml, which arrive as structs
and are faster as arrays; with fields of structs, which become columns of their own; and with names of columns that it
cannot resolve (`map_batches`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfos_lab.core.threads import uninterrupted
from tfos_lab.data.schema import column_specs, select_columns
from tfos_lab.data.spark_types import udt_name

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType


@uninterrupted()
def prepare(df: DataFrame, columns: Iterable[str] | None = None) -> DataFrame:
    """Choose the columns to feed, and give them the form that is fastest to send; the result is as lazy as ``df``.

    The columns come in the order that is wanted; ``"person.age"`` is a field of a struct. Each is of a type that
    `tfos_lab.data.type_table` has a rule for: a ConfigError has every column that is missing or cannot become a tensor,
    and what to do about it.
    """
    return df.select(*map(_expression, choose_fields(df.schema.jsonValue()["fields"], columns)))


def widen(df: DataFrame, columns: Iterable[str] | None = None) -> tuple[DataFrame, list[int]]:
    """Add what `prepare` would make to the columns of ``df``, where it differs from them.

    Returns all columns of ``df``, in their order and first; and the positions of those that `prepare` would give.
    """
    own = [field.name for field in df.schema]
    positions: list[int] = []
    extra: list[Column] = []
    for field in choose_fields(df.schema.jsonValue()["fields"], columns):
        if "path" not in field and udt_name(field["type"]) is None:
            positions.append(own.index(field["name"]))
        else:
            positions.append(len(own) + len(extra))
            extra.append(_expression(field).alias(f"tfos_lab_{len(extra)}"))
    return (df.select("*", *extra) if extra else df), positions


def choose_fields(fields: Sequence[Mapping[str, Any]], columns: Iterable[str] | None) -> list[dict[str, Any]]:
    """Return the fields of the columns wanted, as `prepare` chooses them, of those of a Spark schema in JSON.

    A field of a struct has the ``path`` to it.
    """
    wanted = None if columns is None else [columns] if isinstance(columns, str) else list(columns)
    names = {field["name"] for field in fields}
    known = [*map(dict, fields)]
    # A dotted name is a field of a struct, unless a column has that very name.
    for path in dict.fromkeys(wanted or ()):
        field = None if path in names else _walk(fields, path.split("."))
        if field is not None:
            known.append({**field, "name": path, "path": path.split(".")})
    chosen = select_columns([field["name"] for field in known], wanted)
    by_name = {field["name"]: field for field in known}
    column_specs({"fields": [by_name[name] for name in chosen]})
    return [by_name[name] for name in chosen]


def taken_names(df: DataFrame, names: Iterable[str]) -> list[str]:
    """Return those of the names that ``df`` has a column for already, ignoring case where the session does."""
    is_case_sensitive = df.sparkSession.conf.get("spark.sql.caseSensitive", "false") == "true"
    fold = str if is_case_sensitive else str.casefold
    there = {fold(column) for column in df.columns}
    return [name for name in names if fold(name) in there]


def map_batches(
    df: DataFrame,
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str | StructType,
) -> DataFrame:
    """Do what ``df.mapInArrow`` does, for columns of any name.

    Spark looks columns up by their unquoted names there, so it finds none with dots or backticks, nor two of the same
    name. Here they are sent under numbers, and the batches that ``task`` gets have the real names again.
    """
    names = df.columns

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"c{i}" for i in range(len(names)))).mapInArrow(named, schema)


def _walk(fields: Sequence[Mapping[str, Any]], path: Sequence[str]) -> Mapping[str, Any] | None:
    field = next((field for field in fields if field["name"] == path[0]), None)
    if field is None or len(path) == 1:
        return field
    inner = field["type"]
    is_struct = not isinstance(inner, str) and inner["type"] == "struct"
    return _walk(inner["fields"], path[1:]) if is_struct else None


def _expression(field: Mapping[str, Any]) -> Column:
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    path = field.get("path", [field["name"]])
    column = F.col(".".join(f"`{part.replace('`', '``')}`" for part in path))
    if udt_name(field["type"]) == "VectorUDT":
        # Imported here, so that only users of vectors pay for importing spark.ml.
        from pyspark.ml.functions import vector_to_array

        column = vector_to_array(column)
    elif path == [field["name"]]:
        return column
    return column.alias(field["name"])
