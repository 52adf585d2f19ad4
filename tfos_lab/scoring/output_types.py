"""Chooses the columns for a model's outputs, and their types."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfos_lab.errors import ConfigError
from tfos_lab.scoring.description import Tensor

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

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
_TYPE = re.compile(r"(?:array<(\w+)>|(\w+))")
_SYNONYMS = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "bool": "boolean"}


@dataclass(frozen=True)
class Output:
    """An output of the model as a column: the model calls it ``name``, and ``leaf`` is the Spark type of its values."""

    name: str
    column: str
    leaf: str
    is_array: bool

    @property
    def dtype(self) -> str:
        """NumPy's name for ``leaf``."""
        return NUMPY_TYPES[self.leaf]

    def spark_type(self) -> DataType:
        """Return the Spark type of the column."""
        from pyspark.sql import types as t

        kinds: dict[str, type[DataType]] = {
            "boolean": t.BooleanType,
            "tinyint": t.ByteType,
            "smallint": t.ShortType,
            "int": t.IntegerType,
            "bigint": t.LongType,
            "float": t.FloatType,
            "double": t.DoubleType,
            "string": t.StringType,
        }
        leaf = kinds[self.leaf]()
        return t.ArrayType(leaf) if self.is_array else leaf


def choose_outputs(tensors: Sequence[Tensor], output: str, returns: str | Mapping[str, str] | None) -> list[Output]:
    """Return the outputs that become columns, or raise a ConfigError with all problems."""
    if isinstance(returns, Mapping):
        outputs = [_parsed(name, name, text) for name, text in returns.items()]
        _check_names([out.name for out in outputs], [tensor.name for tensor in tensors])
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


def _check_names(wanted: Sequence[str], there: Sequence[str]) -> None:
    problems = [] if wanted else ["returns={}: name one output at least"]
    problems += [
        f"returns: the model has no output '{name}'; it has {', '.join(there)}"
        for name in wanted
        if there and name not in there
    ]
    if problems:
        raise ConfigError(problems)


def _parsed(name: str, column: str, text: str) -> Output:
    match = _TYPE.fullmatch(text.replace(" ", "").lower())
    leaf = (match[1] or match[2]) if match else ""
    leaf = _SYNONYMS.get(leaf, leaf)
    if match is None or leaf not in NUMPY_TYPES:
        raise ConfigError([f"returns={text!r}: use one of {', '.join(NUMPY_TYPES)}, or array<one of them>"])
    return Output(name, column, leaf, is_array=match[1] is not None)


def _inferred(tensor: Tensor, column: str) -> Output:
    leaf = SPARK_TYPES.get(tensor.dtype)
    if leaf is None:
        raise ConfigError(
            [f"output '{tensor.name}' is {tensor.dtype}, which no column holds: convert it, as with returns='float'"]
        )
    return Output(tensor.name, column, leaf, is_array=tensor.size != 1)
