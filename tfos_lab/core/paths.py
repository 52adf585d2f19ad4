"""Paths as Hadoop resolves them, so that programs written for TensorFlowOnSpark find their files.

``ctx.absolute_path`` completes users' paths; `tfos_lab.data.file_systems` opens them.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
from pathlib import Path, PurePosixPath

# Our own temporary files in users' folders begin so; they are never copied to the notebook.
OWN_MARK = ".tfos-"

# To Hadoop, anything before ":/" is a scheme: hdfs, viewfs, s3a, gs, abfs, wasb, adl, oss, maprfs, ...
_WITH_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)(?://([^/]*))?(.*)", re.DOTALL)
_KEYS = re.compile(r"(?<=//)[^/@\s]*:[^/@\s]*@")
# Google's connector resolves relative paths from the root of the bucket, all others from the user's home.
_WITHOUT_HOME = ("gs",)
_DEFAULT_FS = "TFOS_LAB_DEFAULT_FS"


def split_scheme(path: str) -> tuple[str, str, str]:
    """Split a path into its scheme (lower case), the part between ``//`` and ``/``, and the rest.

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


def without_keys(text: str) -> str:
    """Return a text with the user and password left out that an address in it may have before its host.

    Examples
    --------
    >>> without_keys("s3://key:secret@bucket/data cannot be opened")
    's3://***@bucket/data cannot be opened'
    """
    return _KEYS.sub("***@", text)


def is_local(path: str) -> bool:
    """Whether a path is on this machine's file systems: without a scheme, or with ``file:``."""
    return split_scheme(path)[0] in ("", "file")


def remember_default_fs(address: str) -> None:
    """Have addresses without a host, such as ``hdfs:///data``, be on a session's default file system.

    Until a session has said which that is, Hadoop's settings on this host say it.
    """
    if not is_local(f"{address}/"):
        os.environ[_DEFAULT_FS] = address


def default_host(scheme: str) -> str:
    """Return the host of that file system, if it is of this scheme; else ``""``."""
    default_scheme, host, _ = split_scheme(f"{os.environ.get(_DEFAULT_FS, '').rstrip('/')}/")
    return host if default_scheme == scheme else ""


def absolute(path: str) -> str:
    """Return a local path as an absolute one; paths with a scheme are returned unchanged."""
    return path if split_scheme(path)[0] else str(Path(path).expanduser().absolute())


def short_path(path: str | Path) -> str:
    """Return a path as one types it: from the working directory or the user's home on; addresses as they are.

    Examples
    --------
    >>> short_path(Path.cwd() / "runs/mnist")
    'runs/mnist'
    >>> short_path("hdfs://nn:8020/runs/mnist")
    'hdfs://nn:8020/runs/mnist'
    """
    with contextlib.suppress(OSError, RuntimeError):  # either folder may be gone
        for folder, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
            if Path(path).is_relative_to(folder):
                return f"{prefix}{Path(path).relative_to(folder)}"
    return str(path)


def hadoop_user() -> str:
    """Return the user in whose home relative paths begin: on executors, the one who runs the Spark application."""
    return os.environ.get("SPARK_USER") or os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def hadoop_path(path: str, default_fs: str, working_dir: str, user: str | None = None) -> str:
    """Return ``path`` in full, with its scheme.

    A path with a scheme is kept; if it names no host and the scheme is that of ``default_fs``, it gets its host. An
    absolute path is on ``default_fs``. A relative one is in the user's home on a distributed file system, and in
    ``working_dir`` on a local one.

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
