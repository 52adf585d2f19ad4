"""The file system that a path lies on, opened by pyarrow, or by fsspec where that one knows it.

Paths are written as Hadoop writes them: no escapes, and its names of schemes (``s3a``, ``wasb``). pyarrow comes first,
since every executor has it; fsspec knows what else there is, where it is installed.
"""

from __future__ import annotations

import socket
from urllib.parse import quote

from pyarrow import fs

from tfos_lab.errors import ConfigError
from tfos_lab.paths import absolute, is_local, split_scheme

Opened = tuple[fs.FileSystem, str]

# Hadoop's names of what pyarrow and fsspec know by others.
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "wasb": "abfs", "wasbs": "abfss"}
# What pyarrow and fsspec say of schemes that they do not know, and pyarrow of Hadoop's libraries that it does not find.
_UNKNOWN = ("Unrecognized filesystem", "Protocol not known", "load libjvm", "load libhdfs")
_HADOOP = "Hadoop's client, with JAVA_HOME, HADOOP_HOME, and CLASSPATH as `hadoop classpath --glob` prints it"
_NEEDS = {
    "hdfs": _HADOOP,
    "viewfs": _HADOOP,
    "maprfs": "a mount of the cluster (then give /mapr/... instead)",
    "s3": "fsspec and s3fs",
    "gs": "fsspec and gcsfs",
    "abfs": "fsspec and adlfs",
    "abfss": "fsspec and adlfs",
    "adl": "fsspec and adlfs",
    "oss": "fsspec and ossfs",
    "webhdfs": "fsspec and requests",
    "http": "fsspec and aiohttp",
    "https": "fsspec and aiohttp",
}


def open_place(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system that a path is on, and the path as that one knows it.

    Raises
    ------
    ConfigError
        If this host cannot open it; says what to install there, or what the file system answered.
    """
    if is_local(path):
        return fs.LocalFileSystem(), absolute(split_scheme(path)[2])
    scheme, host, rest = split_scheme(path)
    known = _ALIASES.get(scheme, scheme)
    if scheme.startswith("wasb"):
        host = host.replace(".blob.", ".dfs.")  # Azure's two names of one account; this one goes with the container's
    try:
        opened = _known(f"{known}://{host}{quote(rest)}") or _known(f"fsspec+{known}://{host}{rest}")
    except Exception as error:  # whatever a library of the user's raises for wrong keys, hosts and names
        problem = f"path='{path}': {socket.gethostname()} cannot open it: {str(error) or type(error).__name__}"
        raise ConfigError([problem]) from error
    if opened is None:
        needs = _NEEDS.get(known, f"fsspec, and the package that makes {scheme}:// known to it")
        problem = (
            f"path='{path}': neither pyarrow nor fsspec can open {scheme}:// on {socket.gethostname()}; it needs "
            f"{needs}, on the driver and on all executors"
        )
        raise ConfigError([problem])
    return opened


def _known(address: str) -> Opened | None:
    """Open an address, or return None where the scheme is not known, or what it needs is not there."""
    try:
        opened: Opened = fs.FileSystem.from_uri(address)
    except (NotImplementedError, ImportError):
        return None
    except (ValueError, OSError) as error:
        if any(words in str(error) for words in _UNKNOWN):
            return None
        raise
    return opened
