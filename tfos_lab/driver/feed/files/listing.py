"""Finds the files that ``data`` names, and their format."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tfos_lab.core.messages import DataFile
from tfos_lab.core.paths import is_local
from tfos_lab.data.frames import path_in_full
from tfos_lab.data.tfrecords.framing import starts_with_frame
from tfos_lab.data.tfrecords.paths import find_files
from tfos_lab.driver.feed.files.shares import FoundFile
from tfos_lab.errors import ConfigError
from tfos_lab.node.feed.files.opened import CSV, JSON, PARQUET, TFRECORD, open_random, open_stream, readable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENDINGS = {
    **dict.fromkeys((".parquet", ".parq", ".pq"), PARQUET),
    **dict.fromkeys((".tfrecord", ".tfrecords", ".tfrec"), TFRECORD),
    ".csv": CSV,
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), JSON),
}
_PARQUET_MAGIC = b"PAR1"
_HEAD_BYTES = 12
_THREADS = 16
_NAMES = {PARQUET: "Parquet", TFRECORD: "TFRecords", CSV: "CSV", JSON: "JSON"}


def list_files(what: str, paths: Sequence[str], session: SparkSession | None) -> list[FoundFile]:
    """Return the files of some paths, folders and patterns; each path's are sorted by name.

    Raises
    ------
    ConfigError
        For a path without files.
    """
    found, empty = [], []
    for path in paths:
        whole = path if session is None else path_in_full(path, session)
        # A root is only there to find the file system by.
        root = "/" if is_local(whole) else whole
        try:
            _, files = find_files(whole)
        except ConfigError as error:
            empty += [problem.replace("path=", "data=", 1) for problem in error.problems]
            continue
        if not files:
            empty.append(f"data='{path}': there are no files in this folder")
        found += [FoundFile(DataFile(root, file.path, file.size_bytes), None, file.partition) for file in files]
    if empty or not found:
        raise ConfigError(empty or [f"{what}: there are no files"])
    return found


def find_format(what: str, files: Sequence[FoundFile]) -> str:
    """Return the one format that all files have, by their names or, where these do not say, their first bytes.

    Raises
    ------
    ConfigError
        For files of several formats, or of one that nodes do not read.
    """
    with ThreadPoolExecutor(_THREADS, "tfos-formats") as pool:
        formats = list(pool.map(_format_of, [file.file for file in files]))
    if None in formats:
        path = files[formats.index(None)].file.path
        problem = f"{what}: {path} is neither Parquet nor TFRecords, and its name does not end in .csv or .json"
        raise ConfigError([f"{problem}: name files of one of these, or feed a DataFrame of it"])
    found = {str(format_): files[formats.index(format_)].file.path for format_ in formats}
    if len(found) > 1:
        told = " and ".join(f"{_NAMES[format_]} ({path})" for format_, path in sorted(found.items()))
        raise ConfigError([f"{what}: there are both {told}: name files of one format, as in data='.../*.parquet'"])
    return next(iter(found))


def _format_of(file: DataFile) -> str | None:
    by_name = _by_name(file.path)
    if by_name is not None:
        return by_name
    with readable(file):
        with open_random(file) as source:
            if source.read(len(_PARQUET_MAGIC)) == _PARQUET_MAGIC:
                return PARQUET
        with open_stream(file) as stream:
            head = stream.read(_HEAD_BYTES)
    return TFRECORD if starts_with_frame(head) or not file.size_bytes else None


def _by_name(path: str) -> str | None:
    name = path.lower().removesuffix(".gz")
    return next((format_ for ending, format_ in _ENDINGS.items() if name.endswith(ending)), None)
