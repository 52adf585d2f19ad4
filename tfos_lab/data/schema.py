"""Which tensor each column becomes: `column_specs` returns a `ColumnSpec` for each.

Rows reach a node as Arrow record batches. `column_specs` needs only their types: the Arrow schema of such a batch, or
the JSON of a DataFrame's schema (``df.schema.json()``). It looks them up in the table of `tfos_lab.data.type_table`.
`tfos_lab.data.batches` converts by these specs; `tfos_lab.data.prepare` gets a DataFrame ready for it.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tfos_lab.data.spark_types import arrow_columns
from tfos_lab.data.type_table import ColumnKind, find_advice, find_rule
from tfos_lab.errors import ConfigError

#: What batches without a label, which are dicts of columns, call the weights of their rows.
WEIGHT_KEY = "sample_weight"


@dataclass(frozen=True)
class ColumnSpec:
    """Which tensor a column becomes. It has plain values only, so it can be sent as JSON, msgpack or pickle.

    The ``kind`` of its values decides how they are converted. ``dtype`` is NumPy's name for the tensor's; ``"object"``
    (of bytes) stands for TensorFlow's ``string``. ``shape`` is that of one row, with None for a length that only the
    data tell.

    Examples
    --------
    >>> ColumnSpec("image", "number", "float32", (None,))
    ColumnSpec(name='image', kind='number', dtype='float32', shape=(None,))
    >>> print(ColumnSpec("image", "number", "float32", (None,)))
    image: float32 (None,)
    """

    name: str
    kind: ColumnKind
    dtype: str
    shape: tuple[int | None, ...] = ()

    @property
    def tf_dtype(self) -> str:
        """TensorFlow's name for the dtype."""
        return "string" if self.dtype == "object" else self.dtype

    def __str__(self) -> str:
        return f"{self.name}: {self.tf_dtype} {self.shape}"


def column_specs(schema: pa.Schema | str | Mapping[str, Any]) -> tuple[ColumnSpec, ...]:
    """Return which tensor each column becomes.

    The schema is that of a record batch; or one of Spark, as ``df.schema.json()`` or ``df.schema.jsonValue()`` return
    it. Lengths of arrays are None, as only rows tell them (`tfos_lab.data.batches.measure`). A ConfigError has every
    column that cannot become a tensor, and what to do about it.

    Examples
    --------
    >>> schema = pa.schema({"image": pa.list_(pa.float32()), "label": pa.int64()})
    >>> for spec in column_specs(schema):
    ...     print(spec)
    image: float32 (None,)
    label: int64 ()
    """
    if isinstance(schema, pa.Schema):
        found = [(field.name, field.type, str(field.type)) for field in schema]
    else:
        found = arrow_columns(schema)
    select_columns([name for name, _, _ in found], None)
    specs, problems = [], []
    for name, kind, label in found:
        rule, shape = find_rule(kind)
        if rule is None:
            problems.append(f"column '{name}' of type {label} cannot become a tensor: {find_advice(name, kind)}")
        else:
            specs.append(ColumnSpec(name, rule.kind, rule.dtype, shape))
    if problems:
        raise ConfigError(problems)
    return tuple(specs)


def select_columns(names: Sequence[str], columns: Iterable[str] | None) -> list[str]:
    """Check the names of the columns wanted against those that exist; None stands for all of them.

    A ConfigError has every name that is missing (and the nearest one that exists), and every name that occurs twice.

    Examples
    --------
    >>> select_columns(["image", "label"], ["lable"])
    Traceback (most recent call last):
    ...
    tfos_lab.errors.ConfigError: column 'lable' is not in the data; did you mean 'label'? It has: image, label
    """
    if isinstance(columns, str):
        columns = [columns]
    wanted = list(names if columns is None else columns)
    if not wanted:
        raise ConfigError(["no columns: name at least one column to feed"])
    there, asked = Counter(names), Counter(wanted)
    problems = [_missing(name, names) for name in wanted if name not in there]
    problems += [
        f"column '{name}' is there {there[name]} times: rename all but one" for name in asked if there[name] > 1
    ]
    if columns is not None:
        problems += [f"column '{name}' is asked for twice" for name in asked if asked[name] > 1]
    if problems:
        raise ConfigError(problems)
    return wanted


def columns_of_label(label: str | Sequence[str] | Mapping[str, str]) -> list[str]:
    """Return the columns that a label names: a column, several, or those of a dict of a model's outputs to columns.

    Examples
    --------
    >>> columns_of_label("y")
    ['y']
    >>> columns_of_label({"price": "y", "is_sold": "z"})
    ['y', 'z']
    """
    if isinstance(label, str):
        return [label]
    names = list(label.values()) if isinstance(label, Mapping) else list(label) if isinstance(label, Sequence) else []
    if not names or not all(isinstance(name, str) for name in names):
        wanted = "a column's name, a list of names or a dict of outputs to names is needed"
        raise ConfigError([f"label={label!r:.60}: {wanted}, as in label={{'price': 'y', 'is_sold': 'z'}}"])
    return names


def _missing(name: str, names: Sequence[str]) -> str:
    by_lower = {known.lower(): known for known in names}
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    hint = f"; did you mean '{by_lower[near[0]]}'?" if near else "."
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    return f"column '{name}' is not in the data{hint} It has: {shown or 'no columns'}"
