"""Paths as Hadoop reads them, so that programs written for TensorFlowOnSpark find their files."""

from __future__ import annotations

import getpass
from pathlib import PurePosixPath

SCHEMES = (
    "file", "hdfs", "viewfs", "s3", "s3a", "s3n", "gs", "abfs", "abfss", "wasb", "wasbs", "adl", "maprfs", "har",
    "webhdfs", "ftp", "http", "https",
)  # fmt: skip


def hadoop_path(path: str, default_fs: str, working_dir: str) -> str:
    """Return ``path`` with its scheme and in full.

    A path with a scheme is returned as it is. An absolute one is put on ``default_fs``. A relative one lies in the
    user's home on a distributed file system, and in ``working_dir`` on a local one.

    Examples
    --------
    >>> hadoop_path("/data/mnist", "hdfs://nn:8020", "/tmp")
    'hdfs://nn:8020/data/mnist'
    >>> hadoop_path("mnist", "file://", "/work")
    'file:///work/mnist'
    """
    scheme, separator, _ = path.partition("://")
    if separator and scheme in SCHEMES:
        return path
    if path.startswith("file:"):
        return path
    root = default_fs.rstrip("/") if not default_fs.startswith("file:") else "file://"
    if path.startswith("/"):
        return root + path
    if default_fs.startswith("file:"):
        return f"{root}{PurePosixPath(working_dir) / path}"
    return f"{root}/user/{getpass.getuser()}/{path}"
