"""Cluster records: a small file per live cluster, by which the Jupyter server finds the clusters of all kernels.

They are in ``<Jupyter's runtime folder>/tfos``, which only the user can open. The process that owns a cluster writes
its record once; the server extension finds those whose process is alive, and reads in their folders how they are. It
asks for the end of a cluster by a file beside its record. No kernel has to answer, as it may be busy.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path
from typing import Self

import msgspec

from tfos_lab.core.processes import began

_PROC = Path("/proc")
# A Jupyter server that reads the records puts a file beside them: its pid, and in it when the process began.
_SERVER = ".server"
_STOP = ".stop"
# Letters of any language, but no characters with a meaning in paths.
_ID = re.compile(r"\w[\w.-]{0,119}")


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where a cluster is, or a folder that TensorBoard shows.

    ``pid`` and ``born`` identify its process; ``run_dir`` is the folder; ``tensorboard`` is the path of a unix socket,
    or empty.
    """

    id: str
    pid: int
    born: str
    run_dir: str
    tensorboard: str = ""

    @classmethod
    def here(cls, cluster_id: str, run_dir: str, tensorboard: str = "") -> Self:
        """Return the record of a cluster of this process."""
        pid = os.getpid()
        return cls(id=cluster_id, pid=pid, born=birth_of(pid), run_dir=run_dir, tensorboard=tensorboard)


def folder() -> Path:
    """Return the folder of the cluster records; it may not exist yet."""
    from jupyter_core.paths import jupyter_runtime_dir

    return Path(jupyter_runtime_dir()) / "tfos"


def publish(record: ClusterRecord) -> None:
    """Write or replace the cluster record; raises OSError if that is not possible."""
    records = _open_folder()
    partial = records / f".{record.id}.{os.getpid()}"
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(record))
    partial.replace(records / f"{record.id}.json")


def _open_folder() -> Path:
    """Return the folder of the cluster records, and make it if necessary; raises OSError if that is not possible."""
    records = folder()
    records.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(records):
        raise PermissionError(f"{records} can be opened by others")
    return records


def remove(cluster_id: str) -> None:
    """Remove a cluster record, if it exists."""
    for suffix in (".json", _STOP):
        with contextlib.suppress(OSError):
            (folder() / f"{cluster_id}{suffix}").unlink(missing_ok=True)


def ask_to_stop(record: ClusterRecord) -> None:
    """Ask the process of a cluster to stop it, without waiting; raises OSError if that is not possible."""
    (_open_folder() / f"{record.id}{_STOP}").touch(mode=0o600)


def stop_mark(cluster_id: str) -> Path | None:
    """Return the file that is there once somebody has asked for a cluster's end; None where there is no Jupyter."""
    try:
        return folder() / f"{cluster_id}{_STOP}"
    except ImportError:
        return None


def find(cluster_id: str) -> ClusterRecord | None:
    """Return the cluster record of that id, if its process is alive."""
    if not _ID.fullmatch(cluster_id) or not _is_ours(folder()):
        return None
    return _read(folder() / f"{cluster_id}.json")


def find_all() -> list[ClusterRecord]:
    """Return the cluster records of all processes that are alive; those of dead ones are removed."""
    records = folder()
    if not _is_ours(records):
        return []
    return [record for path in records.glob("*.json") if (record := _read(path)) is not None]


def _read(path: Path) -> ClusterRecord | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except (OSError, msgspec.DecodeError):
        return None
    if record.id != path.stem or not _ID.fullmatch(record.id):
        return None
    if birth_of(record.pid) != record.born:
        remove(record.id)
        return None
    return record


def _is_ours(path: Path) -> bool:
    try:
        stat = path.lstat()
    except OSError:
        return False
    return stat.st_uid == os.getuid() and not stat.st_mode & 0o077


def birth_of(pid: int) -> str:
    """Return a text that tells when a process began; empty if there is no such process.

    Together with the pid it identifies a process: pids alone are reused.
    """
    if _PROC.exists():
        return f"{_boot_id()}:{since}" if (since := began(pid)) else ""
    # All that can be found out here is whether the process is there.
    try:
        os.kill(pid, 0)
    except PermissionError:
        return "there"
    except OSError:
        return ""
    return "there"


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()[:8]
    return ""


def own_kernel_id() -> str:
    """Return the id by which the Jupyter server knows this process, or "" if it is not a kernel."""
    for argument in sys.argv[1:]:
        name = Path(argument).name
        if name.startswith("kernel-") and name.endswith(".json"):
            return name.removeprefix("kernel-").removesuffix(".json")
    return ""


def announce_server() -> None:
    """Let this Jupyter server's kernels know that it shows their clusters; does nothing if it cannot."""
    with contextlib.suppress(OSError):
        records = _open_folder()
        for other in records.glob(f"*{_SERVER}"):
            with contextlib.suppress(OSError):  # another server removes it, too
                if not other.stem.isdigit() or birth_of(int(other.stem)) != other.read_text():
                    other.unlink(missing_ok=True)
        (records / f"{os.getpid()}{_SERVER}").write_text(birth_of(os.getpid()))


def own_server_url() -> str:
    """Return the address of this kernel's Jupyter server, or "" if there is none that shows its clusters.

    Behind a hub the browser uses another address: then only the path is returned.
    """
    parent = os.environ.get("JPY_PARENT_PID", "")
    if not parent.isdigit() or not _is_announced(int(parent)):
        return ""
    server = _read_server_file(parent)
    if server is None:
        return os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "")
    return server.base_url if "JUPYTERHUB_SERVICE_PREFIX" in os.environ else server.url


def own_server_root() -> str:
    """Return the root folder of this kernel's Jupyter server, or "" if it is not known."""
    server = _read_server_file(os.environ.get("JPY_PARENT_PID", ""))
    return server.root_dir if server is not None else ""


def _read_server_file(pid: str) -> _ServerFile | None:
    try:
        return msgspec.json.decode((folder().parent / f"jpserver-{pid}.json").read_bytes(), type=_ServerFile)
    except (OSError, msgspec.DecodeError):
        return None


def _is_announced(pid: int) -> bool:
    try:
        return (folder() / f"{pid}{_SERVER}").read_text() == birth_of(pid) != ""
    except OSError:
        return False


class _ServerFile(msgspec.Struct):
    """The part of a Jupyter server's info file that is used here."""

    url: str
    base_url: str
    root_dir: str = ""
