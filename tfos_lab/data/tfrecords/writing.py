"""The work of Spark's writer: tasks write into a hidden folder; the driver moves the files into place, or removes them.

So a job that fails leaves nothing, and the files of a job under way are never read. Each attempt of a task writes its
own file, and only that of the successful attempt is moved. Files that are overwritten are removed last.

While the job runs, the hidden folder holds a marker file. Object stores (S3, Azure's, Google's) need no folders to be
created first: there only the marker tells a task that its job has ended, or that it writes to another place.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import socket
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from pyarrow import compute, fs

from tfos_lab.core.paths import absolute
from tfos_lab.data.file_systems import make_folder, move_file, open_path, readable_errors
from tfos_lab.data.schema import select_columns
from tfos_lab.data.spark_versions import arrow_schema
from tfos_lab.data.tfrecords.codecs import check_columns, check_folders, encode
from tfos_lab.data.tfrecords.framing import frame
from tfos_lab.data.tfrecords.options import WriteOptions
from tfos_lab.data.tfrecords.paths import partition_folder
from tfos_lab.errors import ConfigError, RecordError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_BATCH_ROWS = 10_000
_SLICE_BYTES = 4 << 20
_SUFFIXES = {"none": ".tfrecord", "gzip": ".tfrecord.gz"}
_STAGING = "_temporary-"
_MARKER = "_is_on"

# A file that a task has written: its path, and its final path below the job's folder.
Written = tuple[str, str]


@dataclass(frozen=True, kw_only=True)
class WriteJob:
    """One write: what its tasks and its commit need to know."""

    path: str
    job_id: str
    compression: str
    partition_by: tuple[str, ...]
    overwrite: bool
    existed: bool

    @property
    def staging(self) -> str:
        """The hidden folder, below the job's own."""
        return f"{_STAGING}{self.job_id}"


def start_write(options: dict[str, str], schema: StructType, *, overwrite: bool) -> WriteJob:
    """Check on the driver, before a row is computed, that the rows can be written."""
    write = WriteOptions.of(options, overwrite=overwrite)
    tree = schema.jsonValue()
    names = [field["name"] for field in tree["fields"]]
    if not names:
        raise ConfigError(["the DataFrame has no columns: there is nothing to write"])
    if write.partition_by:
        select_columns(names, write.partition_by)
        check_folders({"fields": [field for field in tree["fields"] if field["name"] in write.partition_by]})
    kept = [field for field in tree["fields"] if field["name"] not in write.partition_by]
    if not kept:
        raise ConfigError([f"partition_by={', '.join(write.partition_by)}: leaves no column to write"])
    check_columns({"fields": kept})
    with readable_errors(write.path):
        system, base = _open(write.path)
        info = system.get_file_info(base)
    if info.type == fs.FileType.File:
        raise ConfigError([f"path='{write.path}' is a file: name a folder"])
    if write.mode == "error" and info.type != fs.FileType.NotFound:
        raise ConfigError([f"path='{write.path}' is there already: use mode='overwrite' or mode='append'"])
    job = WriteJob(
        path=absolute(write.path),
        job_id=uuid.uuid4().hex[:12],
        compression=write.compression,
        partition_by=write.partition_by,
        overwrite=overwrite,
        existed=info.type != fs.FileType.NotFound,
    )
    # Created here and not by tasks, so that a task that Spark has yet to stop cannot write after `abort`.
    with readable_errors(write.path, "write to"):
        make_folder(system, f"{base}/{job.staging}")
        _touch(system, f"{base}/{job.staging}/{_MARKER}")
    return job


def batches_of(rows: Iterable[Sequence[Any]], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield Spark's rows as record batches."""
    target, rows = arrow_schema(schema), iter(rows)
    while some := list(itertools.islice(rows, _BATCH_ROWS)):
        columns = zip(*some, strict=True)
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, target, strict=True)], schema=target
        )


def write_task(job: WriteJob, batches: Iterable[pa.RecordBatch], task: int, attempt: int) -> list[Written]:
    """Write one task's rows into the hidden folder; a task without rows writes no file."""
    system, base = _open(job.path)
    staging = f"{base}/{job.staging}"
    outputs: dict[str, tuple[str, IO[bytes]]] = {}
    with contextlib.ExitStack() as stack:
        for batch in batches:
            for folder, rows in _by_folder(batch, job.partition_by):
                if folder not in outputs:
                    staged = f"{staging}/{task}-{attempt}-{len(outputs)}"
                    outputs[folder] = staged, stack.enter_context(_create(system, staged, job))
                for part in _slices(rows):
                    outputs[folder][1].write(frame(encode(part)))
    if outputs and not _is_file(system, f"{staging}/{_MARKER}"):
        _sweep(system, base, job)
        raise _unseen(job)
    name = f"part-{task:05d}-{job.job_id}{_SUFFIXES[job.compression]}"
    return [(staged, f"{folder}/{name}" if folder else name) for folder, (staged, _) in outputs.items()]


def commit(job: WriteJob, written: Sequence[Written]) -> None:
    """Move all files into place; the file ``_SUCCESS`` marks that all are there."""
    with readable_errors(job.path, "write to"):
        system, base = _open(job.path)
        old = _entries(system, base) if job.overwrite else []
        for folder in sorted({final.rpartition("/")[0] for _, final in written}):
            make_folder(system, f"{base}/{folder}".rstrip("/"))
        for staged, final in written:
            move_file(system, staged, f"{base}/{final}")
        # From here on `abort` keeps the new files, as some of the old ones may be gone.
        _remove(system, f"{base}/{job.staging}")
        _clear(system, base, old, [final for _, final in written])
        _touch(system, f"{base}/_SUCCESS")


def abort(job: WriteJob, written: Sequence[Written]) -> None:
    """Remove everything that the job has written, unless all its files are in place."""
    system, base = _open(job.path)
    if not _is_file(system, f"{base}/{job.staging}/{_MARKER}"):
        return
    if written:
        _take_back(system, base, {final for _, final in written})
    # First the marker, so that no task can leave a file afterwards.
    system.delete_file(f"{base}/{job.staging}/{_MARKER}")
    _sweep(system, base, job)


def _open(path: str) -> tuple[fs.FileSystem, str]:
    system, base = open_path(path)
    return system, base.rstrip("/") or "/"


def _take_back(system: fs.FileSystem, base: str, finals: set[str]) -> None:
    """Remove the files that are in place already, and the folders that were created for them."""
    folders = {str(folder) for name in finals for folder in PurePosixPath(name).parents}
    there = _entries(system, base)
    mine = [(name, is_file) for name, is_file in there if name in finals | folders]
    _clear(system, base, mine, [name for name, is_file in there if is_file and name not in finals])


def _sweep(system: fs.FileSystem, base: str, job: WriteJob) -> None:
    """Remove the hidden folder, and the job's folder if the job created it and it is empty."""
    _remove(system, f"{base}/{job.staging}")
    if job.existed:
        return
    if isinstance(system, fs.LocalFileSystem):
        with contextlib.suppress(OSError):  # another job is writing there by now
            Path(base).rmdir()
        return
    is_there = system.get_file_info(base).type == fs.FileType.Directory
    if is_there and not system.get_file_info(fs.FileSelector(base)):
        system.delete_dir(base)


def _remove(system: fs.FileSystem, folder: str) -> None:
    if system.get_file_info(folder).type == fs.FileType.Directory:
        with contextlib.suppress(FileNotFoundError):  # another task has just removed it
            system.delete_dir(folder)


def _entries(system: fs.FileSystem, base: str) -> list[tuple[str, bool]]:
    """Return what is below a folder, and whether each is a file; without what jobs are writing right now."""
    entries = []
    for info in system.get_file_info(fs.FileSelector(base, recursive=True)):
        below = info.path[len(base) :].strip("/")
        if not below.startswith(_STAGING):
            entries.append((below, info.type == fs.FileType.File))
    return entries


def _clear(system: fs.FileSystem, base: str, old: Sequence[tuple[str, bool]], new: Sequence[str]) -> None:
    """Remove what was there before; whole folders if no new file is in them."""
    kept = {str(folder) for name in new for folder in PurePosixPath(name).parents}
    gone: dict[str, bool] = {}
    for name, is_file in old:
        chain = [*(str(folder) for folder in reversed(PurePosixPath(name).parents)), name]
        outermost = next((path for path in chain if path not in kept | {"."}), None)
        if outermost is not None:
            gone[outermost] = is_file and outermost == name
    for name, is_file in gone.items():
        (system.delete_file if is_file else system.delete_dir)(f"{base}/{name}")


def _is_file(system: fs.FileSystem, path: str) -> bool:
    return bool(system.get_file_info(path).type == fs.FileType.File)


def _touch(system: fs.FileSystem, path: str) -> None:
    with system.open_output_stream(path, compression=None):
        pass


@contextlib.contextmanager
def _create(system: fs.FileSystem, path: str, job: WriteJob) -> Iterator[IO[bytes]]:
    try:
        sink = system.open_output_stream(path, compression=None)
    except FileNotFoundError as error:
        raise _unseen(job) from error
    with sink:
        if job.compression == "none":
            yield sink
            return
        # Neither name nor time, so that the same rows give the same bytes.
        with gzip.GzipFile(filename="", fileobj=sink, mode="wb", compresslevel=6, mtime=0) as packed:
            yield cast("IO[bytes]", packed)


def _unseen(job: WriteJob) -> RecordError:
    reason = (
        f"{job.path}: the folder that the driver made for this job cannot be seen on {socket.gethostname()}: "
        "write to one that the driver and all executors share, or name the file system (hdfs://...)"
    )
    return RecordError(reason=reason)


def _by_folder(batch: pa.RecordBatch, partition_by: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    if not partition_by or not batch.num_rows:
        yield from [("", batch)] if batch.num_rows else []
        return
    # One number for each distinct combination of values.
    which: Any = np.zeros(batch.num_rows, np.int64)
    texts = []
    for name in partition_by:
        coded = compute.dictionary_encode(batch.column(name).cast(pa.string()), null_encoding="encode")
        texts.append(coded.dictionary.take(coded.indices))
        which = np.unique(which * len(coded.dictionary) + coded.indices.to_numpy(), return_inverse=True)[1]
    rest = batch.drop_columns(list(partition_by))
    order = np.argsort(which, kind="stable")
    borders = np.flatnonzero(np.diff(which[order], prepend=-1))
    for rows in np.split(order, borders[1:]):
        values = {name: text[int(rows[0])].as_py() for name, text in zip(partition_by, texts, strict=True)}
        yield partition_folder(values), rest.take(pa.array(rows))


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Cut a batch into slices that take little memory to encode, and stay far below Arrow's limits."""
    rows = max(1, int(_SLICE_BYTES * batch.num_rows / max(batch.nbytes, 1)))
    for first in range(0, batch.num_rows, rows):
        yield batch.slice(first, rows)
