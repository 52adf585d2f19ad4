"""Lists the files of a path by addresses that other libraries open: TensorFlow, fsspec, pyarrow."""

from __future__ import annotations

from tfos_lab.core.paths import is_local, split_scheme
from tfos_lab.data.file_systems import open_path
from tfos_lab.data.tfrecords.paths import find_files
from tfos_lab.errors import ConfigError


def list_files(path: str) -> list[str]:
    """Return the files of a folder or pattern, sorted by name.

    Parameters
    ----------
    path : str
        With its scheme, such as ``"s3a://bucket/data/*.parquet"``; one without is on this machine.

    Returns
    -------
    list of str
        Plain paths of local files; others begin as ``path`` does, with its scheme and host.

    Raises
    ------
    ConfigError
        If there is no such file, or if the file system cannot be opened.
    """
    found = [file.path for file in find_files(path)[1]]
    if not found:
        raise ConfigError([f"path='{path}': this folder has no files"])
    if is_local(path):
        return found
    return [_address(path, file) for file in found]


def _address(path: str, file: str) -> str:
    """Return the address of a file that was found below a path, whatever its file system calls the root."""
    scheme, host, rest = split_scheme(path)
    # To a file system, the host may be part of the path (s3: the bucket) or not (hdfs).
    inner = open_path(path)[1].rstrip("/")
    root = inner.removesuffix(rest.strip("/"))
    return f"{scheme}://{host}/{file.removeprefix(root).lstrip('/')}"
