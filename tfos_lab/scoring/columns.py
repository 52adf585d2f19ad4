"""Chooses the columns for a model's inputs and outputs, and their types: errors name the column that does not fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tfos_lab.data.schema import ColumnSpec, select_columns
from tfos_lab.data.spark_types import SQL_NAMES, sql_name, udt_name
from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import Tensor, by_name, names_of
from tfos_lab.texts import format_count

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

# Spark's name of a type → NumPy's.
NUMPY_TYPES = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "str",
}
# TensorFlow's name of a dtype → the Spark type that holds it.
SPARK_TYPES = {
    **{numpy: spark for spark, numpy in NUMPY_TYPES.items()},
    "string": "string",
    "float16": "float",
    "bfloat16": "float",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "bigint",
}
# Spark's name of a type → the Spark type for Python values of this kind.
PYTHON_TYPES = {
    **dict.fromkeys(("float", "double"), "double"),
    **dict.fromkeys(("tinyint", "smallint", "int", "bigint"), "bigint"),
    "boolean": "boolean",
    "string": "binary",
}
_TYPE = re.compile(r"(?:array<(\w+)>|(\w+))")
_SYNONYMS = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "bool": "boolean"}
# A number that rows do not contain.
_RARE = -1.7218354e-31
# A type as in the JSON of a DataFrame's schema: by name, or a dict for arrays, maps, structs and user-defined types.
JsonType: TypeAlias = "str | dict[str, Any]"
_JSON_NAMES = {sql: name for name, sql in SQL_NAMES.items()}
_NUMBERS = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double")


# ---- inputs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """An input of the model: its name, the column for it, its expression, and the values in a row's array, if any."""

    name: str
    title: str
    column: Column
    size: int | None


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
    fields = _types(df)
    problems = [problem for column, tensor in pairs for problem in _problems(column, fields[column], tensor)]
    if problems:
        raise ConfigError(problems)
    return [_input(df, column, fields[column], tensor) for column, tensor in pairs]


def _types(df: DataFrame) -> dict[str, JsonType]:
    return {field["name"]: field["type"] for field in df.schema.jsonValue()["fields"]}


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
        own = {tensor.name: tensor for tensor in tensors}
        return [(features[name], own.get(name, _unknown(name))) for name in wanted]
    columns = [features] if isinstance(features, str) else features
    if names and len(columns) != len(names):
        raise ConfigError(
            [f"features: the model takes {format_count(len(names), 'input')} ({names_of(tensors)}), not {len(columns)}"]
        )
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
    is_text = leaf in ("string", "binary")
    return _misfits(column, sql_name(spark_type), tensor, is_text=is_text, is_single=not depth)


def spec_problems(spec: ColumnSpec, tensor: Tensor) -> list[str]:
    """Return what keeps a column that `prepare` has made from being an input."""
    return _misfits(spec.name, spec.tf_dtype, tensor, is_text=spec.tf_dtype == "string", is_single=not spec.shape)


def _misfits(column: str, shown: str, tensor: Tensor, *, is_text: bool, is_single: bool) -> list[str]:
    if tensor.dtype and is_text != (tensor.dtype == "string"):
        return [f"column '{column}' is {shown}, but the model's input '{tensor.name}' is {tensor.dtype}"]
    if is_single and tensor.dtype and tensor.size not in (1, None):
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
        return Input(tensor.name, name, checked.otherwise(column), None)
    size = tensor.size if tensor.dtype and tensor.size is not None else _first_size(df, column)
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
    return Input(tensor.name, name, checked.otherwise(column), size)


def _converted(name: str, spark_type: JsonType, tensor: Tensor) -> tuple[Column, str]:
    """Return a column as values or flat arrays of the type that the model takes, and that type."""
    from pyspark.sql import functions as F  # noqa: N812

    depth, leaf = _leaf_of(spark_type)
    column = F.col(f"`{name.replace('`', '``')}`")
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
    fields = _types(df)
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
    return Input(tensor.name, "', '".join(names), F.array(*parts), len(names))


# ---- outputs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Output:
    """An output of the model as a column: the model's name for it, the Spark type of its values, and arrays around."""

    name: str
    column: str
    leaf: str
    depth: int

    @property
    def wanted(self) -> tuple[str, str, str, int]:
        """The output as a scorer takes it."""
        return self.name, self.column, NUMPY_TYPES.get(self.leaf, "object"), self.depth

    @property
    def field(self) -> dict[str, Any]:
        """The column as a field of a schema, as Spark writes it in JSON."""
        kind: JsonType = _JSON_NAMES.get(self.leaf, self.leaf)
        for _ in range(self.depth):
            kind = {"type": "array", "elementType": kind, "containsNull": True}
        return {"name": self.column, "type": kind, "nullable": True, "metadata": {}}


def schema_of(outputs: Iterable[Output]) -> StructType:
    """Return the columns that outputs become."""
    from pyspark.sql.types import StructType

    return StructType.fromJson({"type": "struct", "fields": [out.field for out in outputs]})


def choose_outputs(tensors: Sequence[Tensor], output: str, returns: str | Mapping[str, str] | None) -> list[Output]:
    """Return the outputs that become columns, or raise a ConfigError with all problems."""
    if isinstance(returns, Mapping):
        outputs = [_parsed(name, name, text) for name, text in returns.items()]
        there = [tensor.name for tensor in tensors]
        problems = [] if outputs else ["returns={}: name one output at least"]
        problems += [
            f"returns: the model has no output '{name}'; it has {', '.join(there)}"
            for name in returns
            if there and name not in there
        ]
        if problems:
            raise ConfigError(problems)
    elif isinstance(returns, str):
        outputs = [_parsed(tensors[0].name if len(tensors) == 1 else output, output, returns)]
        if len(tensors) > 1:
            names = ", ".join(f"'{tensor.name}': ..." for tensor in tensors)
            raise ConfigError([f"returns={returns!r}: the model has several outputs; use returns={{{names}}}"])
    elif not tensors:
        raise ConfigError(["the model does not declare its outputs: choose a type, as in returns='array<float>'"])
    else:
        outputs = [_inferred(tensor, output if len(tensors) == 1 else tensor.name) for tensor in tensors]
    return outputs


def _parsed(name: str, column: str, text: str) -> Output:
    match = _TYPE.fullmatch(text.replace(" ", "").lower())
    leaf = (match[1] or match[2]) if match else ""
    leaf = _SYNONYMS.get(leaf, leaf)
    if match is None or leaf not in NUMPY_TYPES:
        raise ConfigError([f"returns={text!r}: use one of {', '.join(NUMPY_TYPES)}, or array<one of them>"])
    return Output(name, column, leaf, depth=int(match[1] is not None))


def _inferred(tensor: Tensor, column: str) -> Output:
    leaf = SPARK_TYPES.get(tensor.dtype)
    if leaf is None:
        raise ConfigError(
            [f"output '{tensor.name}' is {tensor.dtype}, which no column holds: convert it, as with returns='float'"]
        )
    return Output(tensor.name, column, leaf, depth=int(tensor.size != 1))


# ---- mappings -------------------------------------------------------------------------------------------------------


def pair_inputs(
    option: str, mapping: Mapping[str, str], tensors: Sequence[Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return each column's input by a mapping of columns to inputs, and what is wrong with the mapping.

    A model that does not declare its inputs takes any names.
    """
    declared = tensors or [_unknown(name) for name in mapping.values()]
    known, problems = pick(option, "input", mapping.values(), declared)
    paired = {column: known[name] for column, name in mapping.items() if name in known}
    given = [tensor.name for tensor in paired.values()]
    twice = sorted({name for name in given if given.count(name) > 1})
    return paired, [*problems, *(f"{option}: two columns are for the input '{name}'" for name in twice)]


def pick(
    option: str, side: Literal["input", "output"], names: Iterable[str], tensors: Sequence[Tensor]
) -> tuple[dict[str, Tensor], list[str]]:
    """Return a model's inputs or outputs by all of their names, and a problem for each name that is not among them."""
    known, there = by_name(tensors), names_of(tensors) or "none that it declares"
    unknown = [name for name in dict.fromkeys(names) if name not in known]
    return known, [f"{option}: the model has no {side} '{name}'; it has {there}" for name in unknown]
