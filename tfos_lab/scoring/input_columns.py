"""Chooses the columns for a model's inputs, and checks them: errors name the column that does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from tfos_lab.data.schema import select_columns
from tfos_lab.data.spark_types import sql_name, udt_name
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import Tensor
from tfos_lab.scoring.output_types import SPARK_TYPES
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# A number that rows do not contain.
_RARE = -1.7218354e-31
# A type as in the JSON of a DataFrame's schema: by name, or a dict for arrays, maps, structs and user-defined types.
JsonType: TypeAlias = "str | dict[str, Any]"
_NUMBERS = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double")


@dataclass(frozen=True)
class Input:
    """An input of the model: its name, the expression for it, and the shape of a row (None for single values)."""

    name: str
    column: Column
    shape: tuple[int, ...] | None


def choose_inputs(
    df: DataFrame, features: str | Iterable[str] | Mapping[str, str] | None, tensors: Sequence[Tensor]
) -> list[Input]:
    """Return the model's inputs, or raise a ConfigError with all problems."""
    if not isinstance(features, str | Mapping | None):
        features = list(features)
    several = list(features) if isinstance(features, list) else []
    if len(several) > 1 and len(tensors) == 1:
        return [_combined(df, several, tensors[0])]
    pairs = _pairs(df, features, tensors)
    select_columns(df.columns, [column for column, _ in pairs])
    fields = {field["name"]: field["type"] for field in df.schema.jsonValue()["fields"]}
    problems = [problem for column, tensor in pairs for problem in _problems(column, fields[column], tensor)]
    if problems:
        raise ConfigError(problems)
    return [_input(df, column, fields[column], tensor) for column, tensor in pairs]


def _pairs(
    df: DataFrame, features: str | list[str] | Mapping[str, str] | None, tensors: Sequence[Tensor]
) -> list[tuple[str, Tensor]]:
    """Return pairs of a column and the input that it is for."""
    names = [tensor.name for tensor in tensors]
    if features is None:
        if names and set(names) <= set(df.columns):
            features = {name: name for name in names}
        elif len(df.columns) == 1 and len(names) <= 1:
            features = df.columns[0]
        else:
            takes = f"; the model takes {', '.join(names)}" if names else ""
            raise ConfigError([f"which columns are to be scored? Name them with features=...{takes}"])
    if isinstance(features, Mapping):
        wanted = names or list(features)
        wrong = [f"features: the model has no input '{name}'" for name in features if name not in wanted]
        wrong += [f"features: the model's input '{name}' has no column" for name in wanted if name not in features]
        if wrong:
            raise ConfigError(wrong)
        by_name = {tensor.name: tensor for tensor in tensors}
        return [(features[name], by_name.get(name, _unknown(name))) for name in wanted]
    columns = [features] if isinstance(features, str) else features
    if names and len(columns) != len(names):
        raise ConfigError([f"features: the model takes {len(names)} inputs ({', '.join(names)}), not {len(columns)}"])
    if set(columns) == set(names):
        return [(tensor.name, tensor) for tensor in tensors]
    return list(zip(columns, tensors or [_unknown(column) for column in columns], strict=True))


def _unknown(name: str) -> Tensor:
    return Tensor(name, "", ())


def _leaf_of(spark_type: JsonType) -> tuple[int, str]:
    """Return how many arrays are around the innermost type, and that type in SQL."""
    depth = 0
    while not isinstance(spark_type, str) and spark_type["type"] == "array":
        depth, spark_type = depth + 1, spark_type["elementType"]
    if udt_name(spark_type) == "VectorUDT":
        return depth + 1, "vector"
    return depth, sql_name(spark_type)


def _problems(column: str, spark_type: JsonType, tensor: Tensor) -> list[str]:
    depth, leaf = _leaf_of(spark_type)
    is_number = leaf in _NUMBERS or leaf.startswith("decimal")
    if not is_number and leaf not in ("string", "binary") and (leaf != "vector" or depth > 1):
        return [
            f"column '{column}' of type {sql_name(spark_type)} cannot be scored: make it numbers or an array of them"
        ]
    if tensor.dtype and (leaf in ("string", "binary")) != (tensor.dtype == "string"):
        return [f"column '{column}' is {sql_name(spark_type)}, but the model's input '{tensor.name}' is {tensor.dtype}"]
    if not depth and tensor.dtype and tensor.size not in (1, None):
        shape = f"rows of shape {tensor.shape}"
        return [f"column '{column}' has one value per row, but the model's input '{tensor.name}' takes {shape}"]
    return []


def _input(df: DataFrame, name: str, spark_type: JsonType, tensor: Tensor) -> Input:
    """Return a column as an input, with checks of its rows that run with the job."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's users know

    column, leaf = _converted(name, spark_type, tensor)
    null = F.lit(f"column '{name}' has a null, which cannot be scored: fill it, or leave the row out with df.dropna")
    checked = F.when(column.isNull(), F.raise_error(null))
    if not _leaf_of(spark_type)[0]:
        return Input(tensor.name, checked.otherwise(column), None)
    shape = tensor.shape if tensor.dtype and tensor.size is not None else None
    size = tensor.size if shape is not None else _first_size(df, column)
    text = F.concat(
        F.lit(f"column '{name}' has a row of "),
        F.size(column),
        F.lit(f" values, where {size} are expected: make all rows equally long"),
    )
    checked = checked.when(F.size(column) != size, F.raise_error(text))
    if _may_have_nulls(spark_type):
        inside = F.lit(
            f"column '{name}' has a null inside its arrays, which cannot be scored: replace it, as in "
            f"F.transform('{name}', lambda x: F.coalesce(x, F.lit(0)))"
        )
        checked = checked.when(_has_null(column, leaf), F.raise_error(inside))
    row_shape = tuple(known or 0 for known in shape) if shape else (size or 0,)
    return Input(tensor.name, checked.otherwise(column), row_shape)


def _converted(name: str, spark_type: JsonType, tensor: Tensor) -> tuple[Column, str]:
    """Return a column as values or flat arrays of the type that the model takes, and that type."""
    from pyspark.sql import functions as F  # noqa: N812

    depth, leaf = _leaf_of(spark_type)
    column = F.col(_quoted(name))
    for _ in range(depth - 1):
        column = F.flatten(column)
    if leaf == "vector":
        from pyspark.ml.functions import vector_to_array

        column = vector_to_array(column, "float32")
    target = SPARK_TYPES.get(tensor.dtype, "double" if leaf.startswith("decimal") else "")
    if leaf not in ("string", "binary", target) and target and target != "string":
        column = column.cast(f"array<{target}>" if depth else target)
    return column, target or leaf


def _may_have_nulls(spark_type: JsonType) -> bool:
    """Whether arrays of a type may contain nulls. pandas would turn these into NaN, and the model would score them."""
    if isinstance(spark_type, str) or spark_type["type"] != "array":
        return False
    return bool(spark_type["containsNull"]) or _may_have_nulls(spark_type["elementType"])


def _has_null(column: Column, leaf: str) -> Column:
    """Whether an array contains a null."""
    from pyspark.sql import functions as F  # noqa: N812

    if leaf in ("float", "double"):
        # `array_contains` returns null for an array that lacks the number but has nulls. `exists` is far slower.
        return F.array_contains(column, F.lit(_RARE).cast(leaf)).isNull()
    return F.exists(column, lambda value: value.isNull())


def _first_size(df: DataFrame, column: Column) -> int:
    """Return the length of the first row's array, for a model that takes rows of any length."""
    from pyspark.sql import functions as F  # noqa: N812

    first = df.select(F.size(column)).first()
    return int(first[0]) if first is not None and first[0] is not None else 0


def _combined(df: DataFrame, names: Sequence[str], tensor: Tensor) -> Input:
    """Combine several columns of single numbers into one input."""
    from pyspark.sql import functions as F  # noqa: N812

    select_columns(df.columns, names)
    fields = {field["name"]: field["type"] for field in df.schema.jsonValue()["fields"]}
    one = Tensor(tensor.name, tensor.dtype, ())
    problems = [problem for name in names for problem in _problems(name, fields[name], one)]
    problems += [
        f"column '{name}' is an array: give the model's one input one column"
        for name in names
        if _leaf_of(fields[name])[0]
    ]
    if tensor.size not in (None, len(names)):
        problems.append(
            f"features: {format_count(len(names), 'column')}, but the model's input '{tensor.name}' takes "
            f"{format_count(tensor.size, 'value')}"
        )
    if problems:
        raise ConfigError(problems)
    parts = [_input(df, name, fields[name], one).column for name in names]
    shape = tensor.shape if tensor.shape and tensor.size is not None else (len(names),)
    return Input(tensor.name, F.array(*parts), tuple(known or 0 for known in shape))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
