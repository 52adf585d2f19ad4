"""Finds and opens files of records on any file system, and names the folders of partitions."""

from __future__ import annotations

import fnmatch
import gzip
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, cast
from urllib.parse import quote, unquote

from pyarrow import fs

from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.data.file_systems import open_path, readable_errors
from tfos_lab.data.tfrecords.framing import starts_with_frame
from tfos_lab.errors import ConfigError

# Hive's, and so Spark's, name for the folder of rows without a value.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_GZIP_MAGIC = b"\x1f\x8b"
_HEAD_BYTES = 12
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Found:
    """A file of records, by its path within its file system, with the values of its folders, such as ``year=2024``."""

    path: str
    size_bytes: int
    partition: Mapping[str, str | None] = field(default_factory=dict)


def find_files(path: str) -> tuple[fs.FileSystem, list[Found]]:
    """Find the files of a path: one file, a folder with all below it, or a pattern such as ``/data/train-*``.

    Names that begin with ``_`` or ``.`` are left out, as Spark does.
    """
    with readable_errors(path):
        system, plain = open_path(path)
        base = plain.rstrip("/") or "/"
        pattern = ""
        if (wild := _WILD.search(base)) and system.get_file_info(base).type == fs.FileType.NotFound:
            pattern = base
            base = base[: wild.start()].rpartition("/")[0] or "/"
        info = system.get_file_info(base)
        if info.type == fs.FileType.NotFound:
            raise ConfigError([f"path='{path}': there is no such file or folder"])
        if info.type == fs.FileType.File:
            return system, [Found(base, info.size)]
        found = []
        for info in _list(system, base, [name for name in pattern[len(base) :].split("/") if name]):
            below = info.path[len(base) :].strip("/")
            is_hidden = any(part.startswith(("_", ".")) and "=" not in part for part in below.split("/"))
            wanted = not is_hidden and ("**" not in pattern or _matches(info.path, pattern))
            if wanted and info.type == fs.FileType.File:
                found.append(Found(info.path, info.size, partition_of(below)))
        if pattern and not found:
            raise ConfigError([f"path='{path}': no file has such a name"])
        return system, sorted(found, key=lambda file: file.path)


def _list(system: fs.FileSystem, folder: str, names: list[str]) -> Iterator[fs.FileInfo]:
    """List what has these names below a folder, and all that is below such folders; a ``*`` stands for no ``/``."""
    name, *rest = names or ["**"]
    is_deep = "**" in name
    for info in system.get_file_info(fs.FileSelector(folder, recursive=is_deep)):
        below = info.path[len(folder) :].strip("/")
        if is_deep:
            yield info
        elif "/" in below or not fnmatch.fnmatchcase(below, name):
            continue  # some stores list all that is below a folder in any case
        elif info.type == fs.FileType.Directory:
            yield from _list(system, info.path, rest)
        elif not rest:
            yield info


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a pattern with ``**``, for which ``*`` stands for any number of ``/``, too."""
    return fnmatch.fnmatchcase(path, pattern.replace("**/", "*")) or fnmatch.fnmatchcase(path, pattern)


def open_records(system: fs.FileSystem, path: str) -> IO[bytes]:
    """Open a file of records; its first bytes show whether it is compressed by gzip."""
    stream = io.BufferedReader(system.open_input_stream(path, compression=None))
    head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]
    if head.startswith(_GZIP_MAGIC) and not starts_with_frame(head):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    return stream


def is_compressed(stream: IO[bytes]) -> bool:
    """Whether a stream of `open_records` is decompressed as it is read."""
    return isinstance(stream, gzip.GzipFile)


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Return the folder of rows with these values, as Spark names it.

    Examples
    --------
    >>> partition_folder({"year": "2024", "city": "Sao/Paulo"})
    'year=2024/city=Sao%2FPaulo'
    """
    return "/".join(
        f"{quote(name, _SAFE)}={quote(value, _SAFE) if value else NO_VALUE}" for name, value in values.items()
    )


# Letters of all alphabets stay unchanged; characters that Hive does not allow in folders are written as %XX.
_SAFE = " !$&()+,-.;@_`|~<>"


def partition_of(below: str) -> dict[str, str | None]:
    """Return the values that the folders of a path name, such as ``year=2024``."""
    pairs: dict[str, Any] = {}
    for folder in below.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign:
            pairs[unquote(name)] = None if value == NO_VALUE else unquote(value)
    return pairs


def list_files(path: str) -> list[str]:
    """Return the files of a folder or pattern, sorted by name; a ConfigError if there are none.

    A path without a scheme is on this machine, and so are its files; others begin as ``path`` does, with its scheme and
    host.
    """
    found = [file.path for file in find_files(path)[1]]
    if not found:
        raise ConfigError([f"path='{path}': this folder has no files"])
    if is_local(path):
        return found
    scheme, host, rest = split_scheme(path)
    # To a file system, the host may be part of the path (s3: the bucket) or not (hdfs).
    root = open_path(path)[1].rstrip("/").removesuffix(rest.strip("/"))
    return [f"{scheme}://{host}/{file.removeprefix(root).lstrip('/')}" for file in found]
