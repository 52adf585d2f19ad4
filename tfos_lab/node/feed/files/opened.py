"""Opens a file of a feed as the driver saw it; errors explain in one sentence why it cannot be read."""

from __future__ import annotations

import contextlib
import os
import socket
import zlib
from collections.abc import Iterator
from typing import IO, Any

import pyarrow as pa

from tfos_lab.core.messages import DataFile
from tfos_lab.data.file_systems import open_path
from tfos_lab.data.tfrecords.paths import open_records
from tfos_lab.errors import ConfigError, FeedError, TfosError

PARQUET, TFRECORD, CSV, JSON = "parquet", "tfrecord", "csv", "json"
_ADVICE = "leave files alone while they are read, then train again"


def check_file(file: DataFile) -> None:
    """Raise a FeedError if this host does not find a file, or finds another than the driver saw."""
    with readable(file):
        system, _ = open_path(file.root)
        info = system.get_file_info(file.path)
        if not info.is_file:
            raise FileNotFoundError(file.path)
        _check_size(file, info.size)


@contextlib.contextmanager
def open_random(file: DataFile) -> Iterator[Any]:
    """Open a file for reading anywhere in it: a `pyarrow.NativeFile`."""
    system, _ = open_path(file.root)
    with system.open_input_file(file.path) as source:
        _check_size(file, source.size())
        yield source


@contextlib.contextmanager
def open_stream(file: DataFile, offset: int = 0) -> Iterator[IO[bytes]]:
    """Open a file of records or lines, which may be compressed, for reading in order from a byte on."""
    if offset:
        with open_random(file) as source:
            source.seek(offset)
            yield source
        return
    system, _ = open_path(file.root)
    with contextlib.closing(open_records(system, file.path)) as stream:
        yield stream


def _check_size(file: DataFile, size: int) -> None:
    if size != file.size_bytes:
        raise FeedError(
            reason=f"{file.path}: it had {file.size_bytes:,} bytes when the driver looked at it, and has {size:,} now: "
            f"it was cut off or written again; {_ADVICE}"
        )


@contextlib.contextmanager
def readable(file: DataFile) -> Iterator[None]:
    """Raise a FeedError or RecordError, which names the file, for whatever goes wrong in reading it."""
    try:
        yield
    except TfosError as error:
        if file.path not in str(error):
            raise FeedError(reason=f"{file.path}: {error}") from error
        if isinstance(error, ConfigError):
            raise FeedError(reason=str(error)) from error
        raise
    except FileNotFoundError as error:
        raise FeedError(
            reason=f"{file.path}: the driver saw this file, and {socket.gethostname()} does not find it: it is gone, "
            "or only the driver's host has it; put it where the driver and all nodes find it, and train again"
        ) from error
    except (EOFError, zlib.error) as error:
        raise FeedError(
            reason=f"{file.path}: the compressed file ends in the middle, or is damaged: write it again or leave it out"
        ) from error
    except (OSError, pa.ArrowException) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else " ".join(str(error).split())
        raise FeedError(
            reason=f"{file.path}: {socket.gethostname()} cannot read it: {why:.300}; if it has changed, {_ADVICE}, and "
            "if it is damaged, write it again or leave it out"
        ) from error
