"""The file system that a path lies on, opened by pyarrow, or by fsspec where that one knows it.

Paths are written as Hadoop writes them: no escapes, and its names of schemes (``s3a``, ``wasb``). pyarrow comes first,
since every executor has it; fsspec knows what else there is, where it is installed. Google's and Azure's stores go by
gcsfs and adlfs where these are installed, for they find keys and emulators in more places than pyarrow does.
"""

from __future__ import annotations

import contextlib
import importlib.util
import socket
from collections.abc import Iterator
from urllib.parse import quote

from pyarrow import fs

from tfos_lab.core.paths import absolute, is_local, split_scheme
from tfos_lab.errors import ConfigError

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


# Who opens these before pyarrow does, and what is said where that one cannot.
_PREFERRED = {"gs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs"}
# By itself pyarrow tries for 15 minutes to reach Google, or to get a key there.
_QUERIES = {"gs": "?retry_limit_seconds=60"}


def open_path(path: str) -> tuple[fs.FileSystem, str]:
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
    ours, theirs = f"{known}://{host}{quote(rest)}{_QUERIES.get(known, '')}", f"fsspec+{known}://{host}{rest}"
    first, second = (theirs, ours) if _is_there(_PREFERRED.get(known)) else (ours, theirs)
    with readable_errors(path):
        opened = _known(first) or _known(second)
    if opened is None:
        needs = _NEEDS.get(known, f"fsspec, and the package that makes {scheme}:// known to it")
        problem = (
            f"path='{path}': neither pyarrow nor fsspec can open {scheme}:// on {socket.gethostname()}; it needs "
            f"{needs}, on the driver and on all executors"
        )
        raise ConfigError([problem])
    return opened


@contextlib.contextmanager
def readable_errors(path: str, what: str = "open") -> Iterator[None]:
    """Say in a sentence what a file system answers, whatever it raises for wrong keys, hosts and names."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        answer = " ".join(str(error).split()) or type(error).__name__
        problem = f"path='{path}': {socket.gethostname()} cannot {what} it: {answer}{_hint(path)}"
        raise ConfigError([problem]) from error


def _hint(path: str) -> str:
    """Name the package that might find a way where pyarrow found none."""
    scheme = split_scheme(path)[0]
    package = _PREFERRED.get(_ALIASES.get(scheme, scheme))
    if package is None or _is_there(package):
        return ""
    return f" (so says pyarrow; {package} finds keys in more places: install it on the driver and all executors)"


def _is_there(package: str | None) -> bool:
    return package is not None and importlib.util.find_spec(package) is not None


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
