"""The rows that a script's nodes get: a DataFrame, or files and tables that Spark reads."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfos_lab.engine.spark.session import active_session
from tfos_lab.errors import ConfigError, NoSession
from tfos_lab.texts import first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS = {
    ".parquet": ("parquet", {}),
    ".json": ("json", {}),
    ".jsonl": ("json", {}),
    ".csv": ("csv", {"header": "true", "inferSchema": "true"}),
    ".orc": ("orc", {}),
}
_TFRECORDS = (".tfrecord", ".tfrecords")
# A name, with its database and catalog perhaps; a file of such a name that is there comes first.
_TABLE = re.compile(r"[A-Za-z_]\w*(\.\w+){0,2}")


def open_rows(data: Any, spark: SparkSession | None = None) -> Any:
    """Return what `Cluster.train` takes: ``data`` itself, or the DataFrame of the files that it names.

    Parameters
    ----------
    data : DataFrame, arrays, str, path-like, or sequence of str
        A path or pattern (its end says the format; Parquet by default), several of them, or the name
        of a table.

    Raises
    ------
    ConfigError
        If the files cannot be read.
    NoSession
        If files are named and no session can read them.
    """
    paths = _paths_in(data)
    if not paths:
        return data
    session = spark or active_session()
    if session is None:
        raise NoSession(reason=f"data={paths[0]!r} is read by Spark, but there is no SparkSession")
    try:
        return _read(session, paths)
    except Exception as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError([f"data={data!r} cannot be read: {first_line(error)}"]) from error


def _paths_in(data: Any) -> list[str]:
    if isinstance(data, str | os.PathLike):
        return [os.fspath(data)]
    if isinstance(data, Sequence) and data and all(isinstance(one, str | os.PathLike) for one in data):
        return [os.fspath(one) for one in data]
    return []


def _read(session: SparkSession, paths: list[str]) -> DataFrame:
    first = paths[0]
    if _TABLE.fullmatch(first) and not first.endswith((*_FORMATS, *_TFRECORDS)) and not Path(first).exists():
        return session.table(first)
    ending = os.path.splitext(first.rstrip("/*"))[1].lower()  # noqa: PTH122 - also addresses such as hdfs://…
    if ending in _TFRECORDS:
        from tfos_lab.data.tfrecords.tables import read_tfrecords

        return read_tfrecords(session, first if len(paths) == 1 else ",".join(paths))
    name, options = _FORMATS.get(ending, _FORMATS[".parquet"])
    return session.read.format(name).options(**options).load(paths)
