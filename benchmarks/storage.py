"""Files of TensorFlow at remote addresses, compared with its own local disk, and with the stores' clients alone."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import fsspec
import tensorflow as tf

import tfos_lab.gfile
from benchmarks.measure import Row, median, not_measured, seconds_of
from tests.rigs.stores import packages, s3_server
from tests.rigs.yarn import RigMissing, yarn_cluster
from tfos_lab.data.file_systems import open_path

_ROUNDS = 5
_RECORD = os.urandom(3136)  # a MNIST image of floats
_RECORDS = 32_000
_MEGABYTES = len(_RECORD) * _RECORDS / 1e6
_PIECE = 1 << 20
_PIECES = len(_RECORD) * _RECORDS // _PIECE
_GOAL = 0.8

Work = Callable[[str], None]


def measure() -> Iterator[Row]:
    """Read and write 100 MB, taking turns: TFRecords on a disk, and plain bytes at servers."""
    tfos_lab.gfile.register()
    with tempfile.TemporaryDirectory() as folder:
        # The same disk, through Python.
        works = (write_records, write_records), (read_records, read_records)
        what = "TFRecords {}, local:// (beside: TensorFlow's own disk)"
        yield from rates(what, works, f"local://{folder}/gfile", f"{folder}/rows")
        yield from on_a_server("HDFS", yarn_cluster, lambda hadoop: hadoop.hdfs, Path(folder, "hdfs"))
        yield from on_a_server("S3", s3_server, _use_s3, Path(folder, "s3"), s3fs=True)


def rates(what: str, works: tuple[tuple[Work, Work], ...], ours: str, theirs: str) -> Iterator[Row]:
    """Yield the rates of writing and reading at ``ours`` through gfile, and at ``theirs`` by others."""
    for verb, (work, other) in zip(("written", "read"), works, strict=True):
        pairs = [(seconds_of(lambda w=work: w(ours)), seconds_of(lambda o=other: o(theirs))) for _ in range(_ROUNDS)]
        mine, its = (_MEGABYTES / median(list(times)) for times in zip(*pairs, strict=True))
        met = mine >= _GOAL * its
        yield Row(what.format(verb), "MB/s", mine, its, f"≥ {_GOAL} ×", met, _ROUNDS)


def on_a_server(
    name: str,
    start: Callable[[Path], contextlib.AbstractContextManager[object]],
    address_of: Callable[[object], str],
    folder: Path,
    *,
    s3fs: bool = False,
) -> Iterator[Row]:
    """Yield the rates at a server, beside those of the client by itself, and beside those of s3fs."""
    folder.mkdir()
    what = f"bytes {{}}, {name} (beside: its client alone)"
    try:
        with start(folder) as server:
            address = address_of(server)
            works = (write_bytes, write_by_client), (read_bytes, read_by_client)
            yield from rates(what, works, f"{address}/ours", f"{address}/theirs")
            if s3fs:
                what = f"bytes {{}}, {name} (beside: s3fs alone)"
                sys.path.append(str(packages(f"s3fs=={fsspec.__version__}")))
                works = (write_bytes, write_by_s3fs), (read_bytes, read_by_s3fs)
                yield from rates(what, works, f"{address}/ours", f"{address}/s3fs")
    except RigMissing as missing:
        yield not_measured(what.format("written and read"), missing)


def _use_s3(server: object) -> str:
    os.environ.update(server.environ)
    return "s3://bucket"


def write_records(address: str) -> None:
    """Write all records as TensorFlow does."""
    with tf.io.TFRecordWriter(address) as writer:
        for _ in range(_RECORDS):
            writer.write(_RECORD)


def read_records(address: str) -> None:
    """Read all records as tf.data does."""
    rows = tf.data.TFRecordDataset(address, buffer_size=_PIECE).batch(1000)
    assert sum(len(batch) for batch in rows.as_numpy_iterator()) == _RECORDS


def write_bytes(address: str) -> None:
    """Write as many bytes through gfile."""
    with tf.io.gfile.GFile(address, "wb") as sink:
        for _ in range(_PIECES):
            sink.write(bytes(_PIECE))


def read_bytes(address: str) -> None:
    """Read them through gfile."""
    with tf.io.gfile.GFile(address, "rb") as source:
        while source.read(_PIECE):
            pass


def write_by_client(address: str) -> None:
    """Write them with the client that gfile uses."""
    system, path = open_path(address)
    with system.open_output_stream(path) as sink:
        for _ in range(_PIECES):
            sink.write(bytes(_PIECE))


def read_by_client(address: str) -> None:
    """Read them with the client that gfile uses."""
    system, path = open_path(address)
    with system.open_input_file(path) as source:
        while source.read(_PIECE):
            pass


def write_by_s3fs(address: str) -> None:
    """Write them with fsspec's own client of S3."""
    with fsspec.open(address, "wb") as sink:
        for _ in range(_PIECES):
            sink.write(bytes(_PIECE))


def read_by_s3fs(address: str) -> None:
    """Read them with fsspec's own client of S3."""
    with fsspec.open(address, "rb") as source:
        while source.read(_PIECE):
            pass
