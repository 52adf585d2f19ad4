"""Files and folders of records, wherever they are: found, opened, named by the values of their partitions.

A path without a scheme is a local one. Others are opened by pyarrow (file, hdfs, s3, gs, abfs), or by fsspec where it
knows more.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast
from urllib.parse import quote, unquote

from pyarrow import fs

from tfos_lab.data.tfrecords.framing import starts_with_frame
from tfos_lab.errors import ConfigError

# What Hive, and so Spark, calls the folder of rows without a value.
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_GZIP_MAGIC = b"\x1f\x8b"
_HEAD_BYTES = 12
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):/+", re.IGNORECASE)
_ARROW_SCHEMES = ("hdfs", "viewfs", "s3", "gs", "gcs", "abfs", "abfss")
_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Found:
    """A file of records.

    Parameters
    ----------
    path : str
        As the file system knows it, without a scheme.
    size_bytes : int
        Its size.
    partition : mapping of str to (str or None)
        The values that its folders stand for, ``year=2024``.
    """

    path: str
    size_bytes: int
    partition: Mapping[str, str | None] = field(default_factory=dict)


def has_scheme(path: str) -> bool:
    """Whether a path names its file system."""
    return _SCHEME.match(path) is not None


def absolute(path: str) -> str:
    """Return a local path in full; others as they are."""
    return path if has_scheme(path) else str(Path(path).expanduser().absolute())


def open_place(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system that a path is on, and the path as that one knows it."""
    match = _SCHEME.match(path)
    if match is None:
        return fs.LocalFileSystem(), absolute(path)
    scheme, rest = match[1].lower(), path[match.end() :]
    if scheme == "file":
        return fs.LocalFileSystem(), f"/{rest}"
    if scheme in ("s3a", "s3n"):
        scheme = "s3"
    known = f"{scheme}://" if scheme in _ARROW_SCHEMES else f"fsspec+{scheme}://"
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(f"{known}{rest}")
    except (ValueError, ImportError, OSError) as error:
        problem = (
            f"path='{path}': this host cannot open {scheme}:// ({error}); use one that pyarrow or fsspec opens, "
            "or install what it needs on the driver and the executors"
        )
        raise ConfigError([problem]) from error
    return found


def find_files(path: str) -> tuple[fs.FileSystem, list[Found]]:
    """Find the files of a path: one file, a folder with all below it, or a pattern such as ``/data/train-*``.

    Names that begin with ``_`` or ``.`` are left out, as Spark does.
    """
    system, plain = open_place(path)
    base = plain.rstrip("/") or "/"
    pattern = None
    if _WILD.search(base) and system.get_file_info(base).type == fs.FileType.NotFound:
        pattern = base
        base = base[: _WILD.search(base).start()].rpartition("/")[0] or "/"  # type: ignore[union-attr]
    info = system.get_file_info(base)
    if info.type == fs.FileType.NotFound:
        raise ConfigError([f"path='{path}': there is no such file or folder"])
    if info.type == fs.FileType.File:
        return system, [Found(base, info.size)]
    selector = fs.FileSelector(base, recursive=True)
    found = []
    for info in system.get_file_info(selector):
        below = info.path[len(base) :].strip("/")
        wanted = pattern is None or fnmatch.fnmatch(info.path, pattern) or fnmatch.fnmatch(info.path, f"{pattern}/*")
        if info.type == fs.FileType.File and wanted and not _is_hidden(below):
            found.append(Found(info.path, info.size, _partition_of(below)))
    if pattern and not found:
        raise ConfigError([f"path='{path}': no file has such a name"])
    return system, sorted(found, key=lambda file: file.path)


def open_records(system: fs.FileSystem, path: str) -> IO[bytes]:
    """Open a file of records, compressed by gzip or not: its first bytes tell."""
    stream = io.BufferedReader(system.open_input_stream(path, compression=None))
    head = stream.peek(_HEAD_BYTES)[:_HEAD_BYTES]
    if head.startswith(_GZIP_MAGIC) and not starts_with_frame(head):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    return stream


def partition_folder(values: Mapping[str, str | None]) -> str:
    """Name the folder of rows with these values, as Spark does.

    Examples
    --------
    >>> partition_folder({"year": "2024", "city": "Sao/Paulo"})
    'year=2024/city=Sao%2FPaulo'
    """
    return "/".join(f"{quote(name, _SAFE)}={_written(value)}" for name, value in values.items())


# Letters of all alphabets stay as they are; what Hive's folders cannot have is written as %XX.
_SAFE = " !$&()+,-.;@_`|~<>"


def _written(value: str | None) -> str:
    return NO_VALUE if value is None or value == "" else quote(value, _SAFE)


def _partition_of(below: str) -> dict[str, str | None]:
    pairs: dict[str, Any] = {}
    for folder in below.split("/")[:-1]:
        name, sign, value = folder.partition("=")
        if sign:
            pairs[unquote(name)] = None if value == NO_VALUE else unquote(value)
    return pairs


def _is_hidden(below: str) -> bool:
    return any(part.startswith(("_", ".")) and "=" not in part for part in below.split("/"))
