"""Paths as Hadoop reads them, so that programs written for TensorFlowOnSpark find their files.

``ctx.absolute_path`` completes what users give; `tfos_lab.data.file_systems` opens it.
"""

from __future__ import annotations

import getpass
import os
import re
from pathlib import Path, PurePosixPath

# Files whose names begin so are ours: in folders of the user they are for a moment, and are brought to nobody.
OWN_MARK = ".tfos-"

# Whatever stands before ":/" is a scheme to Hadoop: hdfs, viewfs, s3a, gs, abfs, wasb, adl, oss, maprfs, ...
_WITH_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)(?://([^/]*))?(.*)", re.DOTALL)
# Google's connector takes relative paths from the root of the bucket, all others from the user's home.
_WITHOUT_HOME = ("gs",)


def split_scheme(path: str) -> tuple[str, str, str]:
    """Divide a path into its scheme (lower case), what stands between ``//`` and ``/``, and the rest.

    Examples
    --------
    >>> split_scheme("hdfs://nn:8020/data")
    ('hdfs', 'nn:8020', '/data')
    >>> split_scheme("file:/tmp/x")
    ('file', '', '/tmp/x')
    >>> split_scheme("data:1/x")
    ('', '', 'data:1/x')
    """
    match = _WITH_SCHEME.fullmatch(path)
    return (match[1].lower(), match[2] or "", match[3]) if match else ("", "", path)


def is_local(path: str) -> bool:
    """Whether a path lies on the file systems of this machine: without a scheme, or with ``file:``."""
    return split_scheme(path)[0] in ("", "file")


def absolute(path: str) -> str:
    """Return a local path in full; those with a scheme as they are."""
    return path if split_scheme(path)[0] else str(Path(path).expanduser().absolute())


def hadoop_user() -> str:
    """Return whose home relative paths begin in: on executors whoever runs the Spark application, not the process."""
    return os.environ.get("SPARK_USER") or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def hadoop_path(path: str, default_fs: str, working_dir: str, user: str | None = None) -> str:
    """Return ``path`` in full, with its scheme.

    A path with a scheme stays as it is; where it names no host, it gets that of ``default_fs`` if the scheme is the
    same. An absolute path is put on ``default_fs``. A relative one lies in the user's home on a distributed file
    system, and in ``working_dir`` on a local one.

    Examples
    --------
    >>> hadoop_path("/data/mnist", "hdfs://nn:8020", "/tmp")
    'hdfs://nn:8020/data/mnist'
    >>> hadoop_path("hdfs:///data/mnist", "hdfs://nn:8020", "/tmp")
    'hdfs://nn:8020/data/mnist'
    >>> hadoop_path("mnist", "hdfs://nn:8020", "/tmp", user="ada")
    'hdfs://nn:8020/user/ada/mnist'
    >>> hadoop_path("mnist", "file://", "/work")
    'file:///work/mnist'
    """
    scheme, host, rest = split_scheme(path)
    default_scheme, default_host, _ = split_scheme(f"{default_fs.rstrip('/')}/" if default_fs else "file:/")
    if scheme:
        if scheme == default_scheme:
            host = host or default_host
        return f"{scheme}://{host}{rest}"
    if not rest.startswith("/"):
        if default_scheme == "file":
            rest = str(PurePosixPath(working_dir) / rest)
        else:
            home = "" if default_scheme in _WITHOUT_HOME else f"/user/{user or hadoop_user()}"
            rest = f"{home}/{rest}"
    return f"{default_scheme}://{default_host}{rest}"
