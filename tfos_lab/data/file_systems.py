"""Opens the file system of a path, with pyarrow or fsspec: for rows, files and models, and for `tfos_lab.gfile`.

Paths are written as Hadoop writes them: no escapes, and its names of schemes (``s3a``, ``wasb``). pyarrow is tried
first, since every executor has it; fsspec, where it is installed, knows many more. gcsfs and adlfs are preferred for
Google's and Azure's stores where they are installed, as they find keys and emulators in more places than pyarrow.

HDFS is opened by hdfs-native, a wheel without Java, where it is installed; pyarrow wants Hadoop's own C library.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from pyarrow import fs

from tfos_lab.core.paths import OWN_MARK, absolute, default_host, is_local, split_scheme, without_keys
from tfos_lab.errors import ConfigError

Opened = tuple[fs.FileSystem, str]

# Hadoop's names of schemes, and those of pyarrow and fsspec.
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "wasb": "abfs", "wasbs": "abfss"}
# In errors of pyarrow and fsspec about unknown schemes, and of pyarrow about Hadoop's libraries.
_UNKNOWN = ("Unrecognized filesystem", "Protocol not known", "load libjvm", "load libhdfs")
_HADOOP = "hdfs-native (pip install 'tfos_lab[hdfs]')"
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

# The packages that are tried before pyarrow, and recommended where it fails.
_PREFERRED = {"gs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs"}
# How often a namenode is asked: a single one for 3 s, and those of a service, which take over from one another, for 30.
_TRIES = {"dfs.client.failover.max.attempts": "2"}
_TRIES_OF_SERVICES = {"dfs.client.failover.max.attempts": "14", "dfs.client.failover.sleep.max.millis": "5000"}
_NAMENODE_PORT = 8020
_TOKENS = "HADOOP_TOKEN_FILE_LOCATION"
# What hdfs-native raises of NameNodes, with their stack trace, and of Kerberos.
_OF_NAMENODE = re.compile(r'(?:Fatal)?RPCError\("(?:[\w.]+[.$])?(\w+)", "(.*?)(?:\\n.*)?"\)', re.DOTALL)
_OF_KERBEROS = re.compile(r'GSSAPIError\(.*, "(?:[^":]*: )?([^"]*)"\)|.*(Failed to load libgssapi).*', re.DOTALL)
_NO_TICKET = re.compile("credential|expired", re.IGNORECASE)
# By default pyarrow tries to reach Google for 15 minutes.
_GOOGLE_TRIES = "retry_limit_seconds=60"
# Stores where pyarrow would make a bucket whose name is misspelt.
_WITH_BUCKETS = ("abfs", "gcs")


def known_schemes() -> set[str]:
    """Return the schemes that `open_path` knows, in Hadoop's words and in those of pyarrow and fsspec."""
    known = {*_ALIASES, *_NEEDS, "s3"}
    if _is_installed("fsspec"):
        from fsspec.registry import known_implementations, registry

        known |= {*known_implementations, *registry}
    return {name for name in known if "::" not in name} - {"file"}


def fsspec_of(system: fs.FileSystem) -> Any:
    """Return the file system of fsspec that one of pyarrow only wraps, or None."""
    handler = system.handler if isinstance(system, fs.PyFileSystem) else None
    return handler.fs if isinstance(handler, fs.FSSpecHandler) else None


def open_path(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path, and the path within it.

    Raises ConfigError if this host cannot open it, with what to install, or the file system's answer.
    """
    if is_local(path):
        return fs.LocalFileSystem(), absolute(split_scheme(path)[2])
    scheme, host, rest = split_scheme(path)
    known = _ALIASES.get(scheme, scheme)
    if known in ("hdfs", "viewfs") and _is_installed("hdfs_native"):
        with readable_errors(path):
            system = _open_hdfs(known, host or default_host(known), os.environ.get("HADOOP_CONF_DIR", ""), os.getpid())
        return system, rest or "/"
    if scheme.startswith("wasb"):
        host = host.replace(".blob.", ".dfs.")  # Azure has two host names for one account; abfss needs this one
    ours = _google_uri(host, rest) if known == "gs" else f"{known}://{host}{quote(rest)}"
    theirs = f"fsspec+{known}://{host}{rest}"
    first, second = (theirs, ours) if _is_installed(_PREFERRED.get(known)) else (ours, theirs)
    with readable_errors(path):
        opened = _open_azure(known, host, rest) or _try_open(first) or _try_open(second)
    if opened is None:
        needs = _NEEDS.get(known, f"fsspec, and the package that makes {scheme}:// known to it")
        problem = (
            f"path='{path}': neither pyarrow nor fsspec can open {scheme}:// on {socket.gethostname()}; it needs "
            f"{needs}, on the driver and on all executors"
        )
        raise ConfigError([without_keys(problem)])
    return opened


def exists(path: str) -> bool:
    """Whether there is a file or folder."""
    with readable_errors(path):
        system, plain = open_path(path)
        return bool(system.get_file_info(plain).type != fs.FileType.NotFound)


def make_folder(system: fs.FileSystem, place: str) -> None:
    """Make a folder, and those above it, that are not there; a store's bucket has to be there."""
    if system.type_name not in _WITH_BUCKETS:
        system.create_dir(place, recursive=True)
        return
    bucket, *names = place.strip("/").split("/")
    for end in range(len(names)):
        system.create_dir("/".join((bucket, *names[: end + 1])), recursive=False)


def move_file(system: fs.FileSystem, old: str, new: str) -> None:
    """Give a file, or a folder of a store that renames folders, another path."""
    try:
        system.move(old, new)
    except NotImplementedError:  # Azure's accounts without a hierarchical namespace
        system.copy_file(old, new)
        system.delete_file(old)


def require_folder(path: str) -> None:
    """Make a folder, with those above it, if it is not there, and check that files can be written to it.

    Raises ConfigError if they cannot: there is no such host or bucket, the key is wrong, or does not allow it.
    """
    system, place = open_path(path)
    probe = f"{place.rstrip('/')}/{OWN_MARK}{secrets.token_hex(4)}"
    with readable_errors(path, "write to"):
        make_folder(system, place)
        system.open_output_stream(probe).close()
        system.delete_file(probe)


@contextlib.contextmanager
def readable_errors(path: str, what: str = "open") -> Iterator[None]:
    """Raise a ConfigError for whatever a file system raises for wrong keys, hosts and names."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        scheme = split_scheme(path)[0]
        package = _PREFERRED.get(_ALIASES.get(scheme, scheme))
        hint = ""
        if package is not None and not _is_installed(package):
            hint = (
                f" (so says pyarrow; {package} finds keys in more places: install it on the driver and all executors)"
            )
        problem = f"path='{path}': {socket.gethostname()} cannot {what} it: {answer_of(error)}{hint}"
        raise ConfigError([without_keys(problem)]) from error


def answer_of(error: BaseException) -> str:
    """Return what a file system has raised, in one sentence, with what helps where a ticket is missing."""
    text = " ".join(str(error).split()) or type(error).__name__
    if match := _OF_NAMENODE.fullmatch(text):
        name, said = match.groups()
        standby = "; no NameNode of this address is active" if name == "StandbyException" else ""
        return f"{name}: {said}{standby}"
    if match := _OF_KERBEROS.fullmatch(text):
        said = match[1] or "libgssapi_krb5 is missing: apt-get install libgssapi-krb5-2, or dnf install krb5-libs"
        if not _NO_TICKET.search(said):
            return f"HDFS asks for Kerberos: {said}"
        if _TOKENS in os.environ:
            return (
                f"HDFS asks for Kerberos, and this application has no valid token for the address ({said}): name it in "
                "spark.kerberos.access.hadoopFileSystems, and make a new session"
            )
        return (
            f"HDFS asks for Kerberos, and there is no valid ticket ({said}): run kinit; KRB5CCNAME names a ticket's "
            "file that is not in the usual place"
        )
    return text


def _is_installed(package: str | None) -> bool:
    return package is not None and importlib.util.find_spec(package) is not None


def _try_open(address: str) -> Opened | None:
    """Open an address; None if the scheme is not known, or what it needs is not installed."""
    try:
        opened: Opened = fs.FileSystem.from_uri(address)
    except (NotImplementedError, ImportError):
        return None
    except (ValueError, OSError) as error:
        if any(text in str(error) for text in _UNKNOWN):
            return None
        raise
    return opened


def _google_uri(bucket: str, rest: str) -> str:
    """Return a Google Storage address for pyarrow, which may be that of an emulator, as for Google's own clients."""
    emulator = os.environ.get("STORAGE_EMULATOR_HOST", "")
    if not emulator:
        return f"gs://{bucket}{quote(rest)}?{_GOOGLE_TRIES}"
    server = urlsplit(emulator if "://" in emulator else f"http://{emulator}")
    where = f"scheme={server.scheme}&endpoint_override={quote(server.netloc)}"
    return f"gs://anonymous@{bucket}{quote(rest)}?{_GOOGLE_TRIES}&{where}"


def azure_variable(account: str) -> str:
    """Return the variable for the key of one of several Azure accounts; no client reads it."""
    return f"AZURE_STORAGE_ACCOUNT_KEY_{account.upper()}"


def _open_azure(scheme: str, host: str, rest: str) -> Opened | None:
    """Open a store of Azure whose account's key is in this process' variables; None for all others."""
    container, _, authority = host.partition("@")
    account, _, domain = authority.partition(".")
    pairs = os.environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    known = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    if known.get("AccountName") != account:
        known = {}
    key = os.environ.get(azure_variable(account), known.get("AccountKey"))
    if key is None and os.environ.get("AZURE_STORAGE_ACCOUNT_NAME") == account:
        key = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
    if not (scheme.startswith("abfs") and domain and key and hasattr(fs, "AzureFileSystem")):
        return None
    # Without a dot at its beginning, it is an emulator's, which has the account in its paths.
    server = urlsplit(known.get("BlobEndpoint") or f"https://{account}.{domain.replace('dfs.', 'blob.', 1)}")
    blob = server.netloc.removeprefix(account)
    options = {
        **{f"{kind}_storage_scheme": server.scheme for kind in ("blob", "dfs")},
        "blob_storage_authority": blob,
        "dfs_storage_authority": blob.replace(".blob.", ".dfs.", 1),
    }
    return fs.AzureFileSystem(account, account_key=key, **options), f"{container}{rest}"


# ---- HDFS -----------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)
def _open_hdfs(scheme: str, host: str, settings: str, pid: int) -> fs.FileSystem:
    """Open an HDFS, with Hadoop's settings of a folder; its connections are this process' own."""
    from hdfs_native.fsspec import HdfsFileSystem, ViewfsFileSystem

    # A Spark application on YARN acts for its user, not for the one whose process a container is.
    if user := os.environ.get("SPARK_USER"):
        os.environ.setdefault("HADOOP_USER_NAME", user)
    # Spark brings the settings of its client into the folders of its containers.
    brought = Path(os.environ.get("PWD", ""), "__spark_conf__", "__hadoop_conf__")
    if not {"HADOOP_CONF_DIR", "HADOOP_HOME"} & set(os.environ) and brought.is_dir():
        os.environ["HADOOP_CONF_DIR"] = str(brought)
    base = _with_plain_paths(HdfsFileSystem if scheme == "hdfs" else ViewfsFileSystem)
    name, _, port = host.partition(":")
    # By default a wrong address would be tried for minutes.
    if port:
        system = base(host=_name_of_tokens(name, port), port=int(port), **_TRIES)
    else:
        try:
            system = base(host=name or None, port=None, **_TRIES_OF_SERVICES)
        except (ValueError, RuntimeError) as error:
            if "No NameNode hosts" not in str(error):
                raise
            _require_host(name)  # which is no service
            return _open_hdfs(scheme, f"{name}:{_NAMENODE_PORT}", settings, pid)
    return fs.PyFileSystem(fs.FSSpecHandler(system))


def _require_host(name: str) -> None:
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        where = os.environ.get("HADOOP_CONF_DIR") or "HADOOP_CONF_DIR is not set"
        raise ValueError(f"{name} is neither a host, nor a service in Hadoop's settings ({where})") from error


def _name_of_tokens(host: str, port: str) -> str:
    """Return a host as this application's tokens name it: by default Hadoop writes its IP address into them."""
    with contextlib.suppress(KeyError, OSError):
        tokens = Path(os.environ[_TOKENS]).read_bytes()
        number = socket.gethostbyname(host)
        if f"{number}:{port}".encode() in tokens:
            return number
    return host


def _with_plain_paths(base: type[Any]) -> type[Any]:
    """Return a class whose paths are no addresses, renames replace files, and flushes reach other readers."""

    class Hdfs(base):  # type: ignore[misc]
        cachable = False  # it is kept by address, settings and process, by `_open_hdfs`

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return split_scheme(path)[2] or "/"

        def _convert_file_status(self, file_status: Any) -> dict[str, Any]:
            found = super()._convert_file_status(file_status)
            return {**found, "mtime": found["modification_time"] / 1000}

        def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
            file = super()._open(path, mode, **options)
            if mode != "rb":
                write = file.write
                # Other buffers than bytes, such as pyarrow's, it copies byte by byte.
                file.write, file.flush = lambda data: write(bytes(data)), file.hsync
            return file

        def mv(self, path1: str, path2: str, **_options: Any) -> None:
            self.client.rename(path1, path2, overwrite=True)

    return Hdfs
