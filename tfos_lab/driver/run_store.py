"""Keeps the folders of runs at an address, too, where the history finds them from any machine.

`KeptRun` copies one run's folder there: its record and logs while it goes on, so that a driver that is killed leaves a
trace, and all of it at the end. For the history, `fetch_records` and `fetch` copy back what is asked for, into a folder
that goes with this process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core.config import ClusterConfig
from tfos_lab.core.paths import hadoop_path, is_local, without_keys
from tfos_lab.data.frames import is_connect
from tfos_lab.data.session_stores import stores_of
from tfos_lab.driver.run_dir import RunDir
from tfos_lab.errors import ConfigError
from tfos_lab.launchers.spark.session import conf
from tfos_lab.node.files.listed import FoundFile
from tfos_lab.node.files.remote_log import FolderCopy

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tfos_lab.gfile import Store

logger = logging.getLogger(__name__)

RUN_STORE = "TFOS_LAB_RUN_STORE"
# While a run goes on, larger logs are not copied again and again.
_SMALL_BYTES = 16 << 20
# The end of a run waits for a store for as long as that takes something.
_PATIENCE_S = 60.0
_STEP_S = 0.1
# Below the user's home.
_DEFAULT_FOLDER = "tfos_lab/runs"
_RECORD = "run.json"
# Of the run's folder: our own marks and unfinished files, and backups, which are for restarts of this very run.
_NOT_KEPT = (".", "backup-")
_READERS = 16
_BLOCK = 4 << 20


def with_store(config: ClusterConfig, session: SparkSession | None) -> ClusterConfig:
    """Return the configuration with the address, in full, at which its run is to be kept, if any.

    That is ``run_store``, or else what `RUN_STORE` says. Without either, it is on the session's default file system
    where the driver is in a container of the cluster, whose disk goes with it. Raises ConfigError if no files can be
    written where the user wants them.
    """
    asked = config.run_store if config.run_store is not None else os.environ.get(RUN_STORE)
    in_container = _in_container(session)
    if asked == "" or (asked is None and not in_container):
        return config
    from tfos_lab.data.file_systems import require_folder

    if asked is not None:
        config = dataclasses.replace(config, run_store=asked)  # checks that of the environment
    store = hadoop_path(asked or _DEFAULT_FOLDER, stores_of(session).default_fs, "/").rstrip("/")
    problem = "Spark's default file system is this host's own" if is_local(store) else ""
    try:
        if not problem:
            require_folder(store)
    except ConfigError as error:
        if asked is not None:
            raise
        problem = str(error)
    if problem:
        logger.warning("the run's folder goes with this container's disk: %s; run_store= names an address", problem)
        return config
    if in_container:  # its log is all that there is to see
        logger.warning("the run's folder is kept in %s", without_keys(store))
    return dataclasses.replace(config, run_store=store)


def _in_container(session: SparkSession | None) -> bool:
    """Whether this process is a driver that was submitted with ``--deploy-mode cluster``."""
    if session is None or is_connect(session):
        return False
    # On Kubernetes, the container submits once more, as a client.
    is_on_kubernetes = conf(session, "spark.kubernetes.submitInDriver") == "true"
    return is_on_kubernetes or conf(session, "spark.submit.deployMode") == "cluster"


class KeptRun:
    """Copies a run's folder to a store, an address that holds the folders of runs, from `start` to `finish`.

    Its thread is ``tfos-store-<run>``; ``note`` takes a sentence that the cell shows.
    """

    def __init__(self, run_dir: RunDir, store: str, note: Callable[[str], None]) -> None:
        self._run_dir = run_dir
        self._address = f"{store}/{run_dir.path.name}"
        self._note = note
        self._copy: FolderCopy | None = None

    def start(self) -> None:
        """Start to copy, and show where to."""
        self._note(f"The run's folder is kept at {without_keys(self._address)}")
        self._copy = FolderCopy(
            self._run_dir.path,
            self._address,
            f"tfos-store-{self._run_dir.id}",
            choose=_kept,
            always=_RECORD,  # it is a sign of life, too
            on_problem=self._tell,
        )

    def finish(self) -> None:
        """Have all that has changed be copied a last time."""
        if self._copy is not None:
            self._copy.finish()

    def join(self) -> None:
        """After `finish`, wait until that is done, for as long as the store takes something."""
        why = None
        while self._copy is not None and why is None:
            why = self._copy.outcome(_PATIENCE_S, _STEP_S)
        if why:
            self._tell(why)

    def _tell(self, why: str) -> None:
        text = without_keys(f"not all of the run's folder {self._run_dir.path} is at {self._address}: {why}")
        logger.warning("%s", text)
        self._note(text)


def _kept(files: Iterable[FoundFile], is_last: bool) -> list[FoundFile]:  # noqa: FBT001
    """Return what to copy now; whoever reads in the record that the run has ended finds the rest."""
    kept = (file for file in files if _is_kept(file, whole=is_last))
    return sorted(kept, key=lambda file: file.name.endswith(_RECORD))


def _is_kept(file: FoundFile, *, whole: bool) -> bool:
    parts = file.name.split("/")
    own = parts[1:] if parts[0].startswith("run-") else parts  # of an independent run
    if own[:1] == [] or own[0].startswith(_NOT_KEPT):
        return False
    is_text = len(own) == 1 and (own[0] == _RECORD or own[0].endswith(".log"))
    return whole or (is_text and file.size <= _SMALL_BYTES)


# ---- for the history ------------------------------------------------------------------------------------------------

_copies: dict[str, tempfile.TemporaryDirectory[str]] = {}
_copying = threading.Lock()


def fetch_records(address: str) -> tuple[Path, dict[str, float]]:
    """Copy the records of all runs that are kept at an address; raises ConfigError if that cannot be read.

    Returns a folder of this machine that holds the runs' folders, with nothing but their records so far; and when each
    record was last written to the store, in seconds since the epoch, by the folder's name.
    """
    from tfos_lab.data.file_systems import readable_errors
    from tfos_lab.gfile import store_of

    with _copying, readable_errors(address, "read"):
        if address not in _copies:
            _copies[address] = tempfile.TemporaryDirectory(prefix="tfos-runs-")
        place = Path(_copies[address].name)
        store, root = store_of(address)
        if store.kind(root) != "directory":
            raise ConfigError([f"{address}: there is no such folder; name the one that holds the folders of runs"])

        def fetch_record(name: str) -> float | None:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                return _fetch_file(store, f"{root}/{name}/{_RECORD}", place / name / _RECORD)
            return None

        names = _children(store, root)
        with ThreadPoolExecutor(_READERS, "tfos-records") as pool:
            written = dict(zip(names, pool.map(fetch_record, names), strict=True))
    return place, {name: written_s for name, written_s in written.items() if written_s is not None}


def fetch(address: str, place: Path) -> None:
    """Copy a file or a folder of a kept run to this machine, as far as it is not there; nothing if there is none."""
    from tfos_lab.data.file_systems import readable_errors
    from tfos_lab.gfile import store_of

    with readable_errors(address, "read"), contextlib.suppress(FileNotFoundError):
        store, path = store_of(address)
        _fetch_below(store, path, place)


def _fetch_below(store: Store, path: str, place: Path) -> None:
    if not store.is_directory(path):
        _fetch_file(store, path, place)
        return
    place.mkdir(parents=True, exist_ok=True)
    for name in _children(store, path):
        _fetch_below(store, f"{path}/{name}", place / name)


def _children(store: Store, path: str) -> list[str]:
    # Object stores may hold names that lead out of a folder of this machine.
    return [name for name in store.children(path) if name not in {".", ".."}]


def _fetch_file(store: Store, path: str, place: Path) -> float:
    """Copy a file unless it has been copied as it is; return when it was written."""
    info = store.info(path)
    written_ns = info.mtime_ns or 0
    with contextlib.suppress(OSError):
        here = place.stat()
        if (here.st_size, here.st_mtime_ns) == (info.size, written_ns):
            return written_ns / 1e9
    place.parent.mkdir(parents=True, exist_ok=True)
    partial = place.with_name(f"{place.name}.part")
    reader, offset = store.reader(path), 0
    with contextlib.closing(reader), partial.open("wb") as file:
        while True:
            block, begin, count = reader.read(offset, _BLOCK)
            if count <= 0:
                break
            file.write(block[begin : begin + count])
            offset += count
    os.utime(partial, ns=(written_ns, written_ns))
    partial.replace(place)
    return written_ns / 1e9
