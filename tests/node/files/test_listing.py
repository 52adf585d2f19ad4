"""Files are listed by addresses that TensorFlow and fsspec open, whatever a file system calls its paths."""

from __future__ import annotations

import pytest
from pyarrow import fs

from tfos_lab.data.tfrecords.paths import Found
from tfos_lab.node.files import listing


def test_local_files_have_plain_paths(tmp_path):
    (tmp_path / "b").write_text("")
    (tmp_path / "a").write_text("")
    for path in (str(tmp_path), f"file://{tmp_path}", f"file:{tmp_path}/*"):
        assert listing.list_files(path) == [f"{tmp_path}/a", f"{tmp_path}/b"]


@pytest.mark.parametrize(
    ("path", "inner", "found", "address"),
    [
        ("hdfs://nn:8020/data/x-*", "/data/x-*", "/data/x-1", "hdfs://nn:8020/data/x-1"),
        ("s3a://bucket/data/", "bucket/data", "bucket/data/y/1", "s3a://bucket/data/y/1"),
        ("gs://bucket/", "bucket", "bucket/1", "gs://bucket/1"),
        ("abfss://box@account.host/data", "box/data", "box/data/1", "abfss://box@account.host/data/1"),
    ],
)
def test_other_files_begin_as_the_path_does(monkeypatch, path, inner, found, address):
    system = fs.LocalFileSystem()
    monkeypatch.setattr(listing, "open_path", lambda _: (system, inner))
    monkeypatch.setattr(listing, "find_files", lambda _: (system, [Found(found, 1)]))
    assert listing.list_files(path) == [address]
