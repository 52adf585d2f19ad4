"""Cluster records: one small file per live cluster, by which the Jupyter server finds the clusters of all kernels.

They lie in ``<Jupyter's runtime folder>/tfos``, which only the user can open. The process that owns a cluster writes
its cluster record; the server extension reads those whose process is alive. Nobody has to ask a kernel, which may be
busy.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

import msgspec

from tfos_lab.core.states import known_run_state

_PROC = Path("/proc")
# A Jupyter server that reads the cluster records leaves a file of its own beside them: its pid, and in it when it
# began.
_SERVER = ".server"
# Names may be of any language; nothing that has a meaning in a path.
_ID = re.compile(r"\w[\w.-]{0,119}")


class NodeRecord(msgspec.Struct, frozen=True):
    """One node of a cluster."""

    node: str
    state: str
    host: str = ""


class ClusterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What the Jupyter server knows of a cluster, or of a folder that TensorBoard shows.

    ``pid`` and ``born`` name its process beyond doubt; ``tensorboard`` and ``control`` are unix sockets, or empty.
    """

    id: str
    name: str
    state: str
    pid: int
    born: str
    started_s: float
    kernel_id: str = ""
    launcher: str = ""
    nodes: tuple[NodeRecord, ...] = ()
    run_dir: str = ""
    tensorboard: str = ""
    control: str = ""

    @property
    def lives(self) -> bool:
        """Whether it is a cluster that has not ended."""
        state = known_run_state(self.state)
        return state is None or not state.ended


def folder() -> Path:
    """Return the folder of the cluster records, which may not be there yet."""
    from jupyter_core.paths import jupyter_runtime_dir

    return Path(jupyter_runtime_dir()) / "tfos"


def publish(record: ClusterRecord) -> None:
    """Write the cluster record, or write it anew; raises OSError where that cannot be."""
    place = _open_folder()
    partial = place / f".{record.id}.{os.getpid()}"
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(msgspec.json.encode(record))
    partial.replace(place / f"{record.id}.json")


def _open_folder() -> Path:
    """Return the folder of the cluster records, made if need be; raises OSError where that cannot be."""
    place = folder()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_ours(place):
        raise PermissionError(f"{place} can be opened by others")
    return place


def remove(cluster_id: str) -> None:
    """Remove a cluster record, if it is there."""
    with contextlib.suppress(OSError):
        (folder() / f"{cluster_id}.json").unlink(missing_ok=True)


def find(cluster_id: str) -> ClusterRecord | None:
    """Return the cluster record of that id, if its process is alive."""
    if not _ID.fullmatch(cluster_id) or not _is_ours(folder()):
        return None
    return _read(folder() / f"{cluster_id}.json")


def find_all() -> list[ClusterRecord]:
    """Return the cluster records of all processes that are alive, oldest first; those of dead ones are removed."""
    place = folder()
    if not _is_ours(place):
        return []
    found = [_read(path) for path in place.glob("*.json")]
    return sorted((record for record in found if record is not None), key=lambda record: record.started_s)


def _read(path: Path) -> ClusterRecord | None:
    try:
        record = msgspec.json.decode(path.read_bytes(), type=ClusterRecord)
    except (OSError, msgspec.DecodeError):
        return None
    if record.id != path.stem or not _ID.fullmatch(record.id):
        return None
    if birth_of(record.pid) != record.born:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        return None
    return record


def _is_ours(place: Path) -> bool:
    try:
        stat = place.lstat()
    except OSError:
        return False
    return stat.st_uid == os.getuid() and not stat.st_mode & 0o077


def birth_of(pid: int) -> str:
    """Return when a process began, in words of its system; empty if it is not there.

    With its pid this names a process beyond doubt: a pid alone is given out again.
    """
    if not _PROC.exists():
        return _sign_of_life(pid)
    with contextlib.suppress(OSError, IndexError, ValueError):
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return "" if fields[0] in "ZX" else f"{_boot_id()}:{fields[19]}"
    return ""


def _sign_of_life(pid: int) -> str:
    """Return as much as systems without ``/proc`` tell."""
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
    """Return the id by which the Jupyter server knows this process, or nothing if it is no kernel."""
    for word in sys.argv[1:]:
        name = Path(word).name
        if name.startswith("kernel-") and name.endswith(".json"):
            return name.removeprefix("kernel-").removesuffix(".json")
    return ""


def announce_server() -> None:
    """Tell the kernels of this process, a Jupyter server, that it shows their clusters; silence where it cannot."""
    with contextlib.suppress(OSError):
        place = _open_folder()
        for other in place.glob(f"*{_SERVER}"):
            if not other.stem.isdigit() or birth_of(int(other.stem)) != other.read_text():
                other.unlink(missing_ok=True)
        (place / f"{os.getpid()}{_SERVER}").write_text(birth_of(os.getpid()))


def own_server_url() -> str:
    """Return the address of the Jupyter server that this kernel belongs to; nothing if none shows its clusters.

    Behind a hub the browser's address is another one: then it is the path alone.
    """
    parent = os.environ.get("JPY_PARENT_PID", "")
    if not parent.isdigit() or not _is_announced(int(parent)):
        return ""
    server = _read_server_file(parent)
    if server is None:
        return os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "")
    return server.base_url if "JUPYTERHUB_SERVICE_PREFIX" in os.environ else server.url


def own_server_root() -> str:
    """Return the folder whose files the Jupyter server of this kernel shows; nothing if there is none that says so."""
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
    """What a Jupyter server says of itself."""

    url: str
    base_url: str
    root_dir: str = ""
