"""The files of a table, by Spark's catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tfos_lab.core.paths import is_local
from tfos_lab.data.file_systems import open_path
from tfos_lab.data.tfrecords.paths import partition_of
from tfos_lab.engine.feed.files.shares import FoundFile
from tfos_lab.engine.spark import session as spark_session
from tfos_lab.errors import ConfigError
from tfos_lab.messages import DataFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.engine.feed.files.spark_schema import SparkField

_DETAILS = "# Detailed Table Information"


def table_files(session: SparkSession, name: str) -> tuple[list[FoundFile], list[SparkField]]:
    """Return the files of a table, and its columns as Spark writes them in JSON.

    Raises
    ------
    ConfigError
        If there is no such table, or it is no plain table of Parquet files.
    """
    details = _details(session, name)
    is_parquet = details.get("provider") == "parquet" or "parquet" in details.get("serde library", "")
    if details.get("type") == "VIEW" or not is_parquet:
        kind = details.get("provider") or "a view"
        problem = f"data={name!r}: this table is {kind}, and nodes read the files of Parquet tables only"
        raise ConfigError([f"{problem}: feed the DataFrame, as in data=spark.table({name!r})"])
    table = session.table(name)
    fields = table.schema.jsonValue()["fields"]
    names = {field["name"] for field in fields}
    files = [_found(unquote(uri), names) for uri in sorted(table.inputFiles())]
    if not files:
        raise ConfigError([f"data={name!r}: this table has no files, so there are no rows to feed"])
    return files, fields


def _details(session: SparkSession, name: str) -> dict[str, str]:
    """Return what the catalog says of a table, by the names of the entries in lower case."""
    try:
        rows = session.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except Exception as error:
        problem = f"data={name!r}: there is no such file, and no such table ({spark_session.cause_of(error):.200})"
        raise ConfigError([f"{problem}; write './{name}' for a file"]) from error
    entries = [(str(row["col_name"]), str(row["data_type"])) for row in rows]
    begin = next((number for number, (key, _) in enumerate(entries) if key == _DETAILS), len(entries))
    return {key.lower(): value if key == "Type" else value.lower() for key, value in entries[begin:]}


def _found(uri: str, columns: set[str]) -> FoundFile:
    system, path = open_path(uri)
    size: Any = system.get_file_info(path).size
    partition = {name: value for name, value in partition_of(path).items() if name in columns}
    return FoundFile(DataFile("/" if is_local(uri) else uri, path, size or 0), None, partition)
