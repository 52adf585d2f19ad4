"""Any address inside TensorFlow: ``hdfs://``, ``s3://``, ``abfs://``, and whatever else pyarrow or fsspec opens.

    import tensorflow as tf
    import tfos_lab.gfile

    tfos_lab.gfile.register()
    tf.io.gfile.listdir("hdfs://namenode:8020/data")

After that, all of TensorFlow and Keras reads and writes there: ``TFRecordDataset``, ``model.save``, summaries,
``ModelCheckpoint``, ``tf.saved_model``. Nodes of a cluster and notebooks have done it already; elsewhere it works by
itself, on Linux and macOS, without a compiler.

TensorFlow takes file systems from plugins: tables of C functions (``filesystem_interface.h``, ABI 0), which are filled
from Python here. `Store` is what a file system does, in the words of Python; below it is what TensorFlow's C interface
wants of it. `tfos_lab.data.file_systems` opens the addresses, on their first use: a process that is forked after
`register` opens its own.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes as c
import errno
import fnmatch
import functools
import os
import re
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path
from typing import Any

from pyarrow import fs as arrow

from tfos_lab.core.paths import OWN_MARK, default_host, split_scheme, without_keys
from tfos_lab.core.threads import on_a_thread
from tfos_lab.data.file_systems import answer_of, fsspec_of, known_schemes, make_folder, move_file, open_path
from tfos_lab.errors import ConfigError

__all__ = ["register"]

# A store that has not answered a call after so long is gone; what copies files on the store's side has longer.
_ANSWER_S = 60.0
_WORK_S = 900.0
# An unfinished file that is older was left by a process that was killed.
_LEFT_S = 24 * 3600.0
# Read at once where a file is read from its beginning to its end: the first and the largest block.
_FIRST_BLOCK = 256 << 10
_LARGEST_BLOCK = 4 << 20
_WRITE_BLOCK = 4 << 20
# Stores that are opened with what this process' variables say.
_WITH_KEYS, _KEYS = ("s3", "abfs", "wasb", "gs", "gcs"), ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_")


def register(*schemes: str) -> list[str]:
    """Have TensorFlow read and write addresses that it does not know by itself.

    A scheme that TensorFlow knows stays TensorFlow's own. A second call does nothing.

    Parameters
    ----------
    *schemes : str
        Such as ``"hdfs"``. By default all that pyarrow, fsspec and Hadoop know; one that was made known to fsspec
        later (``fsspec.register_implementation``) has to be given.

    Returns
    -------
    list of str
        The schemes that TensorFlow has learnt by this call. Whether this host can open them shows at the first use.

    Raises
    ------
    ConfigError
        If this TensorFlow does not export what it takes.

    Examples
    --------
    >>> import tfos_lab.gfile
    >>> "hdfs" in tfos_lab.gfile.register()
    True
    """
    import tensorflow as tf

    with _REGISTERING:
        there = set(tf.io.gfile.get_registered_schemes())
        new = sorted(set(schemes or known_schemes()) - there)
        if new:
            _register(new, Path(tf.__file__).parent, tf.__version__)
    return new


_REGISTERING = threading.Lock()


# ---- what a file system does ----------------------------------------------------------------------------------------


class Store:
    """The files below one ``scheme://host``, as TensorFlow's own file system on a local disk would have them.

    Paths are what follows the host, with a slash at their beginning. Stores without directories have those that this
    process has made, until it removes them.
    """

    def __init__(self, root: str) -> None:
        self.system, inner = open_path(f"{root}/")
        self._inner = inner.rstrip("/")
        self._fsspec = fsspec_of(self.system)
        # To other readers a file is not there before it is whole; a store without renames shows it when it is closed.
        is_hdfs = getattr(self._fsspec, "protocol", None) in ("hdfs", "viewfs")
        self._renames = is_hdfs or self.system.type_name == "local"  # local://
        self._made: set[str] = set()

    def inner(self, path: str) -> str:
        """Return a path as the file system wants it."""
        return self._inner + re.sub("//+", "/", path).rstrip("/") or self._inner or "/"

    def info(self, path: str) -> arrow.FileInfo:
        """Return what is there; raises FileNotFoundError."""
        self._forget_cached()
        inner = self.inner(path)
        (info,) = self.system.get_file_info([inner])
        if info.type is arrow.FileType.NotFound:
            if inner not in self._made:
                raise FileNotFoundError("no such file or directory")
            return arrow.FileInfo(inner, arrow.FileType.Directory)
        return info

    def is_directory(self, path: str) -> bool:
        return self.info(path).type is arrow.FileType.Directory

    def kind(self, path: str) -> str:
        """Return ``"file"``, ``"directory"``, or ``""`` where there is nothing."""
        try:
            return "directory" if self.is_directory(path) else "file"
        except FileNotFoundError:
            return ""

    def reader(self, path: str) -> _Reader:
        if self.is_directory(path):
            raise IsADirectoryError("a directory, not a file")
        return _Reader(self.system.open_input_file(self.inner(path)))

    def writer(self, path: str) -> _Writer:
        if self.kind(path) == "directory":
            raise IsADirectoryError("a directory, not a file")
        inner = self.inner(path)
        if not self._renames:
            return _Writer(self._open(inner, "wb"))
        folder, _, name = inner.rpartition("/")
        partial = f"{folder}/{OWN_MARK}{name}-{secrets.token_hex(4)}"

        def show() -> None:
            self.system.move(partial, inner)
            self._remove_left(folder, name)

        return _Writer(self._open(partial, "wb"), on_shown=show)

    def _remove_left(self, folder: str, name: str) -> None:
        """Remove what processes have left that were killed while they wrote a file of this name, a day ago or more."""
        with contextlib.suppress(Exception):  # the file is there; what is left disturbs nobody
            self._forget_cached()
            for info in self.system.get_file_info(arrow.FileSelector(folder)):
                is_left = info.base_name.startswith(f"{OWN_MARK}{name}-")
                if is_left and info.mtime_ns and time.time() - info.mtime_ns / 1e9 > _LEFT_S:
                    self.system.delete_file(info.path)

    def _forget_cached(self) -> None:
        if self._fsspec is not None:
            self._fsspec.invalidate_cache()  # what others have changed

    def put(self, source: Path, path: str, on_block: Callable[[], None]) -> None:
        """Copy a file of this machine, and make the directories above it; calls ``on_block`` after each block."""
        self.make_directories(path.rpartition("/")[0])
        writer = self.writer(path)
        with source.open("rb") as file:
            while data := file.read(_WRITE_BLOCK):
                if writer.append(data):
                    writer.write()
                on_block()
        writer.close()

    def appender(self, path: str) -> _Writer:
        if self.kind(path) != "file":
            return self.writer(path)
        return _Writer(self._open(self.inner(path), "ab"), length=self.info(path).size or 0)

    def _open(self, inner: str, mode: str) -> Any:
        """Open a file to write; pyarrow does not pass a flush on to the files of fsspec."""
        if self._fsspec is not None:
            return self._fsspec.open(inner, mode)
        if mode == "ab":
            return self.system.open_append_stream(inner)
        return self.system.open_output_stream(inner, compression=None)

    def children(self, path: str) -> list[str]:
        """Return the names in a directory."""
        if not self.is_directory(path):
            raise NotADirectoryError("not a directory")
        inner = self.inner(path)
        listed = self.system.get_file_info(arrow.FileSelector(inner, allow_not_found=True))
        names = {info.base_name for info in listed}
        made = {one.rpartition("/")[2] for one in self._made if one.rpartition("/")[0] == inner.rstrip("/")}
        # Some stores list a directory as the first of its own entries.
        return sorted(name for name in names | made if name and not name.startswith(OWN_MARK))

    def matching(self, path: str) -> list[str]:
        """Return the paths that match a pattern, in which ``*`` stands for no slash."""
        found = [""]
        parts = path.strip("/").split("/")
        for place, part in enumerate(parts):
            if set("*?[") & set(part):
                matches = re.compile(fnmatch.translate(part)).match
                found = [
                    f"{folder}/{name}"
                    for folder in found
                    if self.kind(folder or "/") == "directory"
                    for name in self.children(folder or "/")
                    if matches(name)
                ]
            else:
                found = [f"{folder}/{part}" for folder in found]
                # What follows a pattern need not be there; at the end, neither need what was given in full.
                if place == len(parts) - 1:
                    found = [one for one in found if self.kind(one)]
        return found

    def make_directory(self, path: str) -> None:
        if self.kind(path):
            raise FileExistsError("it is there already")
        parent = self.inner(path).rpartition("/")[0][len(self._inner) :]
        if parent and not self.kind(parent):
            raise FileNotFoundError("its parent directory is not there")
        self._make(path)

    def make_directories(self, path: str) -> None:
        kind = self.kind(path)
        if kind == "file":
            raise NotADirectoryError("a file, not a directory")
        if not kind:
            self._make(path)

    def _make(self, path: str) -> None:
        make_folder(self.system, self.inner(path))
        while path.strip("/") and not self.kind(path):
            self._made.add(self.inner(path))
            path = path.rstrip("/").rpartition("/")[0]

    def delete_file(self, path: str) -> None:
        if self.is_directory(path):
            raise IsADirectoryError("a directory, not a file")
        self.system.delete_file(self.inner(path))

    def delete_directory(self, path: str) -> None:
        if self.children(path):
            raise OSError(errno.ENOTEMPTY, "the directory is not empty")
        self._remove(path)

    def delete_recursively(self, path: str) -> None:
        if self.is_directory(path):
            self._remove(path)
        else:
            self.delete_file(path)

    def _remove(self, path: str) -> None:
        inner = self.inner(path)
        with contextlib.suppress(FileNotFoundError):  # a store without directories
            self.system.delete_dir(inner)
        self._made = {made for made in self._made if made != inner and not made.startswith(f"{inner}/")}

    def rename(self, old: str, new: str) -> None:
        source, target = self.is_directory(old), self.kind(new)
        if self.inner(old) == self.inner(new):
            return
        if not source and target == "directory":
            raise IsADirectoryError("the new name is that of a directory")
        if source and target == "file":
            raise NotADirectoryError("the new name is that of a file")
        if target == "directory":
            self.delete_directory(new)
        if source and self.system.type_name in ("s3", "gcs", "abfs"):
            self._move_each(self.inner(old), self.inner(new))
        else:
            move_file(self.system, self.inner(old), self.inner(new))
        if source and self.kind(old):
            self._remove(old)

    def _move_each(self, old: str, new: str) -> None:
        """Move a directory where the store moves single files only."""
        make_folder(self.system, new)
        for info in self.system.get_file_info(arrow.FileSelector(old, recursive=True)):
            if info.type is arrow.FileType.Directory:
                make_folder(self.system, new + info.path[len(old) :])
            else:
                move_file(self.system, info.path, new + info.path[len(old) :])


class _Reader:
    """An open file. It keeps one block, larger and larger while the file is read in order."""

    def __init__(self, file: Any) -> None:
        self.pid = os.getpid()
        self._file = file
        self._lock = threading.Lock()
        self._start = 0
        self._block = b""
        self._size = 0

    def read(self, offset: int, count: int) -> tuple[bytes, int, int]:
        """Return a block, where in it the file's bytes from an offset on begin, and how many there are of so many."""
        with self._lock:
            begin = offset - self._start
            if not self._has(offset, count):
                is_next = self._start <= offset <= self._start + len(self._block)
                self._size = min(max(2 * self._size, _FIRST_BLOCK), _LARGEST_BLOCK) if is_next else 0
                self._start, self._block = offset, b""
                self._block = self._file.read_at(max(count, self._size), offset)
                begin = 0
            return self._block, begin, min(count, len(self._block) - begin)

    def held(self, offset: int, count: int) -> tuple[bytes, int, int] | None:
        """Return what `read` does if that needs neither the store nor any waiting, else None."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return (self._block, offset - self._start, count) if self._has(offset, count) else None
        finally:
            self._lock.release()

    def _has(self, offset: int, count: int) -> bool:
        return self._start <= offset and offset + count <= self._start + len(self._block)

    def close(self) -> None:
        with self._lock:
            self._file.close()


class _Writer:
    """A file that is written, in larger blocks than TensorFlow's.

    ``on_shown`` gives it its name when it is closed or first flushed: a process that is killed while it writes, or that
    cannot write a part, leaves no part of a file under the name of the whole.
    """

    def __init__(self, stream: Any, *, length: int = 0, on_shown: Callable[[], None] | None = None) -> None:
        self.pid = os.getpid()
        self._stream, self._on_shown = stream, on_shown
        self._block: list[bytes] = []
        self._room = _WRITE_BLOCK
        self.length = length

    def append(self, data: bytes) -> bool:
        """Keep bytes for the next block; returns whether that is to be written now."""
        self._block.append(data)
        size = len(data)
        self.length += size
        self._room -= size
        return self._room <= 0

    def write(self) -> bool:
        """Write what is kept; returns True."""
        block = b"".join(self._block)
        self._block, self._room = [], _WRITE_BLOCK
        try:
            if block:
                self._stream.write(block)
        except BaseException:
            self._on_shown = None
            raise
        return True

    def flush(self) -> None:
        if not self._stream.closed:  # TensorFlow flushes after a close, too
            self.write()
            self._stream.flush()
            self._show()

    def close(self) -> None:
        if not self._stream.closed:
            try:
                self.write()
            finally:
                self._stream.close()
        self._show()

    def _show(self) -> None:
        if self._on_shown is not None:
            self._on_shown()
            self._on_shown = None


@functools.lru_cache(maxsize=64)
def _opened(root: str, _pid: int, _settings: object) -> Store:
    """Return the store of an address, once for each process: connections and threads do not cross a fork."""
    return Store(root)


def store_of(address: str) -> tuple[Store, str]:
    """Return the store of an address, opened at its first use, and the path in it."""
    scheme, host, path = split_scheme(address)
    # The next session may have other keys, or another Hadoop.
    settings: tuple[object, ...] = (os.environ.get("HADOOP_CONF_DIR"), host or default_host(scheme))
    if scheme.startswith(_WITH_KEYS):
        settings = tuple(item for item in os.environ.items() if item[0].startswith(_KEYS))
    return _opened(f"{scheme}://{host}", os.getpid(), settings), path or "/"


# ---- calls that end -------------------------------------------------------------------------------------------------


# No thread runs any more when Python ends; TensorFlow closes what is open after that.
_ENDING = threading.Event()
atexit.register(_ENDING.set)


def _within(limit_s: float, function: Callable[..., Any], *args: Any) -> Any:
    """Return what a function returns, or raise what it raises; a TimeoutError if it does neither in time.

    A thread of its own calls it: not every client has time-outs.
    """
    if _ENDING.is_set():
        return function(*args)
    call = on_a_thread(functools.partial(function, *args), name="tfos-storage")
    if not wait([call], limit_s).done:
        raise TimeoutError(f"no answer for {limit_s:g} s")
    return call.result()


# ---- what TensorFlow's C interface wants of it ----------------------------------------------------------------------

_P, _S, _F = c.c_void_p, c.c_char_p, c.CFUNCTYPE

# Of TF_Code, which has the numbers of gRPC's codes.
_CANCELLED, _UNKNOWN, _INVALID_ARGUMENT, _DEADLINE_EXCEEDED, _NOT_FOUND, _ALREADY_EXISTS = 1, 2, 3, 4, 5, 6
_PERMISSION_DENIED, _FAILED_PRECONDITION, _OUT_OF_RANGE, _UNIMPLEMENTED, _UNAVAILABLE = 7, 9, 11, 12, 14
_UNAUTHENTICATED = 16
_CODES: tuple[tuple[type[BaseException], int], ...] = (
    (FileNotFoundError, _NOT_FOUND),
    (FileExistsError, _ALREADY_EXISTS),
    (PermissionError, _PERMISSION_DENIED),
    (IsADirectoryError, _FAILED_PRECONDITION),
    (NotADirectoryError, _FAILED_PRECONDITION),
    (ConfigError, _FAILED_PRECONDITION),
    (TimeoutError, _DEADLINE_EXCEEDED),
    (NotImplementedError, _UNIMPLEMENTED),
    (ValueError, _INVALID_ARGUMENT),
    (OSError, _UNAVAILABLE),
)
# What clients say in words only.
_WORDS = (
    (
        re.compile(
            r"ACCESS_DENIED|HTTP status 403|Azure Error: \[\w+\] 403|AccessControlException|Permission.denied",
            re.IGNORECASE,
        ),
        _PERMISSION_DENIED,
    ),
    (re.compile(r"NO_SUCH_BUCKET|NO_SUCH_KEY|ContainerNotFound"), _NOT_FOUND),
    (re.compile(r"InvalidPath|Invalid path name"), _INVALID_ARGUMENT),
    (re.compile(r"HDFS asks for Kerberos"), _UNAUTHENTICATED),
    (re.compile(r"StandbyException"), _UNAVAILABLE),
)


class _Stat(c.Structure):
    _fields_ = (("length", c.c_int64), ("mtime_ns", c.c_int64), ("is_directory", c.c_bool))


class _ReaderTable(c.Structure):
    _fields_ = (("cleanup", _F(None, _P)), ("read", _F(c.c_int64, _P, c.c_uint64, c.c_size_t, _P, _P)))


class _WriterTable(c.Structure):
    _fields_ = (
        ("cleanup", _F(None, _P)),
        ("append", _F(None, _P, _P, c.c_size_t, _P)),
        ("tell", _F(c.c_int64, _P, _P)),
        ("flush", _F(None, _P, _P)),
        ("sync", _F(None, _P, _P)),
        ("close", _F(None, _P, _P)),
    )


_OPEN, _ON_PATH = _F(None, _P, _S, _P, _P), _F(None, _P, _S, _P)
_LIST = _F(c.c_int, _P, _S, c.POINTER(_P), _P)
_Count = c.c_uint64
_COUNTS = c.POINTER(_Count)


class _SystemTable(c.Structure):
    """What is not filled in, TensorFlow does with the rest, or not at all (transactions, options)."""

    _fields_ = (
        ("init", _F(None, _P, _P)),
        ("cleanup", _F(None, _P)),
        ("new_random_access_file", _OPEN),
        ("new_writable_file", _OPEN),
        ("new_appendable_file", _OPEN),
        ("new_read_only_memory_region_from_file", _P),
        ("create_dir", _ON_PATH),
        ("recursively_create_dir", _ON_PATH),
        ("delete_file", _ON_PATH),
        ("delete_dir", _ON_PATH),
        ("delete_recursively", _F(None, _P, _S, _COUNTS, _COUNTS, _P)),
        ("rename_file", _F(None, _P, _S, _S, _P)),
        ("copy_file", _P),
        ("path_exists", _ON_PATH),
        ("paths_exist", _P),
        ("stat", _F(None, _P, _S, c.POINTER(_Stat), _P)),
        ("is_directory", _F(c.c_bool, _P, _S, _P)),
        ("get_file_size", _F(c.c_int64, _P, _S, _P)),
        ("translate_name", _F(_P, _P, _S)),
        ("get_children", _LIST),
        ("get_matching_paths", _LIST),
        ("flush_caches", _F(None, _P)),
        *((f"of_transactions_and_options_{number}", _P) for number in range(11)),
    )


class _MemoryTable(c.Structure):
    _fields_ = (("cleanup", _P), ("data", _P), ("length", _P))


class _PluginTables(c.Structure):
    """Of each table the versions of its interface and its size; the last one, files mapped to memory, is left out."""

    _fields_ = (
        ("scheme", _P),
        *(
            field
            for name in ("system", "reader", "writer", "memory")
            for field in (
                (f"{name}_abi", c.c_int),
                (f"{name}_api", c.c_int),
                (f"{name}_size", c.c_size_t),
                (name, _P),
            )
        ),
    )


class _Plugin(c.Structure):
    _fields_ = (
        ("count", c.c_size_t),
        ("tables", _P),
        ("allocate", _F(_P, c.c_size_t)),
        ("free", _F(None, _P)),
    )


class _Status(c.Structure):
    """absl::Status comes back through a hidden pointer, which libffi passes for what is larger than 16 bytes."""

    _fields_ = (("words", c.c_uint64 * 4),)


_REGISTER = "_ZN10tensorflow23filesystem_registration28RegisterFilesystemPluginImplEPK23TF_FilesystemPluginInfo"
_LIBC = c.CDLL(None)
_LIBC.malloc.restype, _LIBC.malloc.argtypes = _P, [c.c_size_t]
_LIBC.free.restype, _LIBC.free.argtypes = None, [_P]


def _register(schemes: list[str], tensorflow: Path, version: str) -> None:
    # TensorFlow's library, which is loaded already.
    names = ("libtensorflow_cc.so.2", "libtensorflow_cc.2.dylib")
    found = next((tensorflow / name for name in names if (tensorflow / name).exists()), None)
    library = c.CDLL(None if found is None else str(found))
    enter = getattr(library, _REGISTER, None)
    if enter is None:
        examples = ", ".join(f"{scheme}://" for scheme in schemes[:3])
        problem = (
            f"TensorFlow {version} takes no file systems from Python, so that it cannot open {examples} and others"
        )
        raise ConfigError([f"{problem}; use a version that tfos_lab names"])
    enter.argtypes, enter.restype = [_P], _Status
    library.TF_SetStatus.argtypes, library.TF_SetStatus.restype = [_P, c.c_int, _S], None

    system, reader, writer = _Callbacks(library.TF_SetStatus).tables()
    each = (_PluginTables * len(schemes))()
    for tables, scheme in zip(each, schemes, strict=True):
        tables.scheme = _text(scheme)
        for name, table in (("system", system), ("reader", reader), ("writer", writer)):
            setattr(tables, name, _in_c(table))
            setattr(tables, f"{name}_size", c.sizeof(table))
        tables.memory_size = c.sizeof(_MemoryTable)
    allocate, free = _Plugin._fields_[2][1](_LIBC.malloc), _Plugin._fields_[3][1](_LIBC.free)
    plugin = _Plugin(len(schemes), _in_c(each), allocate, free)
    kept = (system, reader, writer, plugin, allocate, free)
    c.pythonapi.Py_IncRef(c.py_object(kept))  # TensorFlow calls them still when Python takes its modules down
    status = enter(c.byref(plugin)).words[0]
    if status not in (0, 1):  # those of absl::OkStatus, before and after its representation changed
        raise ConfigError([f"TensorFlow {version} has refused file systems added from Python (status {status:#x})"])


def _in_c(value: Any) -> int:
    """Return a copy that C code may free."""
    size = c.sizeof(value)
    place: int = _LIBC.malloc(size)
    c.memmove(place, c.byref(value), size)
    return place


def _text(text: str) -> int:
    return _in_c(c.create_string_buffer(text.encode("utf-8", "surrogateescape")))


class _Callbacks:
    """The functions in the tables. Each sets a status, and lets no exception out: C code could not take it."""

    def __init__(self, set_status: Callable[[Any, int, bytes], None]) -> None:
        self._set_status = set_status
        self._lock = threading.Lock()
        self._files: dict[int, tuple[str, Any]] = {}
        self._last = 0

    def tables(self) -> tuple[_SystemTable, _ReaderTable, _WriterTable]:
        system = self._filled(
            _SystemTable,
            init=lambda _system, _status: None,
            cleanup=lambda _system: None,
            flush_caches=lambda _system: None,
            translate_name=lambda _system, name: _in_c(c.create_string_buffer(name)),
            new_random_access_file=self._opening(Store.reader),
            new_writable_file=self._opening(Store.writer),
            new_appendable_file=self._opening(Store.appender),
            create_dir=self._on_path(Store.make_directory),
            recursively_create_dir=self._on_path(Store.make_directories),
            delete_file=self._on_path(Store.delete_file),
            delete_dir=self._on_path(Store.delete_directory),
            delete_recursively=self._delete_recursively,
            rename_file=self._rename,
            path_exists=self._on_path(Store.info),
            stat=self._stat,
            is_directory=self._is_directory,
            get_children=self._listing(Store.children),
            get_matching_paths=self._listing(Store.matching, in_full=True),
        )
        reader = self._filled(_ReaderTable, cleanup=self._forget, read=self._read)
        writer = self._filled(
            _WriterTable,
            cleanup=self._forget,
            append=self._append,
            tell=lambda file, _status: self._file(file)[1].length,
            flush=self._on_file(_Writer.flush),
            sync=self._on_file(_Writer.flush),
            close=self._on_file(_Writer.close),
        )
        return system, reader, writer

    @staticmethod
    def _filled(table: type[Any], **functions: Callable[..., Any]) -> Any:
        types = dict(table._fields_)
        return table(**{name: types[name](function) for name, function in functions.items()})

    def _call(self, status: Any, address: str, function: Callable[..., Any], *args: Any, limit_s: float = 0.0) -> Any:
        """Return what a function returns; None and a status if it raises."""
        try:
            return _within(limit_s or _ANSWER_S, function, *args)
        except KeyboardInterrupt:  # it cannot pass through C code
            self._set_status(status, _CANCELLED, b"interrupted")
        except BaseException as error:  # noqa: BLE001 - every one becomes a status
            code, text = _status_of(error)
            self._set_status(status, code, without_keys(f"{address}: {text}").encode(errors="replace")[:4000])
        return None

    def _on_store(
        self, status: Any, name: bytes, function: Callable[..., Any], *more: Any, limit_s: float = 0.0
    ) -> Any:
        address = name.decode("utf-8", "surrogateescape")

        def run() -> Any:
            store, path = store_of(address)
            return function(store, path, *more)

        return self._call(status, address, run, limit_s=limit_s)

    # -- of the file system

    def _on_path(self, function: Callable[[Store, str], Any]) -> Callable[..., None]:
        def callback(_system: Any, name: bytes, status: Any) -> None:
            self._on_store(status, name, function)

        return callback

    def _opening(self, function: Callable[[Store, str], Any]) -> Callable[..., None]:
        def callback(_system: Any, name: bytes, place: int, status: Any) -> None:
            file = self._on_store(status, name, function)
            if file is not None:
                with self._lock:
                    self._last += 1
                    self._files[self._last] = name.decode("utf-8", "surrogateescape"), file
                    c.cast(place, _COUNTS)[0] = self._last

        return callback

    def _listing(self, function: Callable[[Store, str], list[str]], *, in_full: bool = False) -> Callable[..., int]:
        def callback(_system: Any, name: bytes, place: Any, status: Any) -> int:
            found = self._on_store(status, name, function)
            if found is None:
                return -1
            scheme, host, _ = split_scheme(name.decode("utf-8", "surrogateescape"))
            before = f"{scheme}://{host}" if in_full else ""
            place[0] = _in_c((_P * max(1, len(found)))(*(_text(before + one) for one in found)))
            return len(found)

        return callback

    def _rename(self, _system: Any, old: bytes, new: bytes, status: Any) -> None:
        from_scheme, from_host, _ = split_scheme(old.decode("utf-8", "surrogateescape"))
        to_scheme, to_host, to_path = split_scheme(new.decode("utf-8", "surrogateescape"))

        def rename(store: Store, path: str) -> None:
            if (from_scheme, from_host) != (to_scheme, to_host):
                raise NotImplementedError(f"it cannot be renamed to another store, {to_scheme}://{to_host}")
            store.rename(path, to_path)

        self._on_store(status, old, rename, limit_s=_WORK_S)

    def _delete_recursively(self, _system: Any, name: bytes, files: Any, directories: Any, status: Any) -> None:
        files[0], directories[0] = 0, 1

        def delete(store: Store, path: str) -> bool:
            store.delete_recursively(path)
            return True

        if self._on_store(status, name, delete, limit_s=_WORK_S):
            directories[0] = 0

    def _stat(self, _system: Any, name: bytes, place: Any, status: Any) -> None:
        info = self._on_store(status, name, Store.info)
        if info is not None:
            place[0] = _Stat(info.size or 0, info.mtime_ns or 0, info.type is arrow.FileType.Directory)

    def _is_directory(self, _system: Any, name: bytes, status: Any) -> bool:
        def require(store: Store, path: str) -> bool:
            if not store.is_directory(path):
                raise NotADirectoryError("not a directory")
            return True

        return bool(self._on_store(status, name, require))

    # -- of open files

    def _file(self, place: int) -> tuple[str, Any]:
        return self._files[_Count.from_address(place).value]

    def _forget(self, place: int) -> None:
        with self._lock:
            _, file = self._files.pop(c.cast(place, _COUNTS)[0], ("", None))
        # As on a disk, a file that nobody has closed is closed with its handle; but not by a fork of the process.
        if file is not None and file.pid == os.getpid():
            with contextlib.suppress(BaseException):  # there is nobody to report it to
                _within(_ANSWER_S, file.close)

    def _on_file(self, function: Callable[[Any], None]) -> Callable[..., None]:
        def callback(place: int, status: Any) -> None:
            address, file = self._file(place)
            self._call(status, address, function, file, limit_s=_WORK_S)

        return callback

    def _read(self, place: int, offset: int, count: int, buffer: int, status: Any) -> int:
        address, reader = self._file(place)
        found = reader.held(offset, count) or self._call(status, address, reader.read, offset, count)
        if found is None:
            return -1
        block, begin, length = found
        if length:
            c.memmove(buffer, (c.cast(block, _P).value or 0) + begin, length)
        if length < count:
            self._set_status(status, _OUT_OF_RANGE, b"the file has ended")
        return int(length)

    def _append(self, place: int, buffer: int, count: int, status: Any) -> None:
        # Called three times for each TFRecord that is written, so it does as little as it can.
        address, writer = self._files[_Count.from_address(place).value]
        while True:
            some = min(count, _WRITE_BLOCK)
            is_full = writer.append(c.string_at(buffer, some))
            if is_full and self._call(status, address, writer.write) is None:
                return
            buffer, count = buffer + some, count - some
            if not count:
                return


def _status_of(error: BaseException) -> tuple[int, str]:
    """Return the code and the sentence for what a file system has raised."""
    text = answer_of(error)
    if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR):
        return _FAILED_PRECONDITION, text
    if isinstance(error, Exception):
        for words, code in _WORDS:
            if words.search(text):
                return code, text
    code = next((code for kind, code in _CODES if isinstance(error, kind)), _UNKNOWN)
    return code, text if code != _UNKNOWN else f"{type(error).__name__}: {text}"
