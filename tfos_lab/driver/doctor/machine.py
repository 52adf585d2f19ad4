"""Checks of this machine: its GPUs, fork servers, and the folders in which nodes keep rows, shared memory and logs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from tfos_lab.core.frames import ConnectionClosed
from tfos_lab.core.runtime_files import files_in, scratch_root, spool_root
from tfos_lab.driver.doctor.finding import Finding
from tfos_lab.node.forkserver.client import ForkServerConnection
from tfos_lab.node.forkserver.health import SILENT, STOPPED, ServerRecord, is_stopped
from tfos_lab.node.forkserver.requests import FailedReply
from tfos_lab.node.gpus import free_gpus, visible_gpus

FREE_BYTES_NEEDED = 2 * 1024**3
SHARED_MEMORY_NEEDED = 32 * 1024**2
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - the kernel's own folder, looked at only
SHARED_MEMORY_ADVICE = (
    "NCCL, tf.data workers and Python's multiprocessing keep buffers there: remove what ended processes have left in "
    "/dev/shm, or make it larger (docker run --shm-size=2g; Kubernetes: an emptyDir of medium Memory)"
)
_GIB = 1024**3
_MIB = 1024**2


def free_bytes(path: Path) -> int:
    """Return the free bytes of a folder's file system."""
    return shutil.disk_usage(path).free


def check_gpus() -> Finding:
    """Count the GPUs; having none is fine."""
    gpus = visible_gpus()
    if not gpus:
        return Finding("GPUs", ok=True, found="none: nodes on this machine compute on the CPU")
    free = free_gpus(gpus)
    return Finding("GPUs", ok=True, found=f"{', '.join(gpus)}; {len(free) or 'none'} of {len(gpus)} free")


def check_scratch(free: Callable[[Path], int] = free_bytes) -> Finding:
    """Check the folder for sockets and spools of nodes: it must be private and have space for rows."""
    try:
        root = spool_root()
    except OSError as error:
        return Finding("scratch folder", ok=False, found=str(error), advice="set TMPDIR to a folder of your own")
    there = free(root)
    advice = "rows that are fed lie here: make room, or set TMPDIR to a larger disk"
    return Finding("scratch folder", there >= FREE_BYTES_NEEDED, f"{root}, {there / _GIB:.1f} GiB free", advice)


def check_shared_memory(free: Callable[[Path], int] = free_bytes) -> Finding:
    """Check that shared memory is not full."""
    if not SHARED_MEMORY.is_dir():
        return Finding("shared memory", ok=True, found=f"this system has no {SHARED_MEMORY}")
    there = free(SHARED_MEMORY)
    ok = there >= SHARED_MEMORY_NEEDED
    found = f"{SHARED_MEMORY}, {there / _MIB:,.0f} MiB free" if ok else shared_memory_shortage(there)
    return Finding("shared memory", ok, found, SHARED_MEMORY_ADVICE)


def shared_memory_shortage(there: int) -> str:
    """Say that shared memory is full, with what is left of it."""
    return f"{SHARED_MEMORY} is full: {there / _MIB:,.0f} MiB are left"


def run_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder in which runs are to be kept."""
    return Path(environ.get("TFOS_LAB_RUNS", "runs")).absolute()


def existing_part(folder: Path) -> Path:
    """Return the folder itself, or the nearest one above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())


def check_runs(environ: Mapping[str, str]) -> Finding:
    """Check that the folder for the logs of runs can be written to, by making a file there for a moment."""
    folder = run_folder(environ)
    existing = existing_part(folder)
    try:
        # Permissions say nothing to root, and nothing of file systems that are mounted read-only.
        tempfile.TemporaryFile(prefix=".tfos-doctor-", dir=existing).close()
    except OSError as error:
        reason = f"{existing} cannot be written to ({error.strerror or error})"
        fallback = Path.home() / ".cache" / "tfos_lab" / "runs"
        advice = f"name a folder of your own with TFOS_LAB_RUNS; until then, logs go to {fallback}"
        return Finding("run folder", ok=False, found=reason, advice=advice)
    return Finding("run folder", ok=True, found=str(folder))


# ---- fork servers ----------------------------------------------------------------------------------------------------


_TIMEOUT_S = 0.3
# One that has imported everything answers, if late on a busy machine.
_LATE_S = 20.0
_STUCK = (STOPPED, SILENT)


def check_fork_servers() -> Finding:
    """Ask this user's fork servers on this machine for their state; if there are none, the first cell starts them."""
    try:
        sockets = sorted(files_in(scratch_root().glob("*"), "*.sock"))
    except OSError as error:
        return Finding("fork servers", ok=False, found=str(error), advice="set TMPDIR to a folder of your own")
    answers = [(path.stem.partition("-")[0], ask_fork_server(path)) for path in sockets]
    living = [(kind, answer) for kind, answer in answers if answer != "gone"]
    if stuck := [f"the {kind} one {answer}" for kind, answer in living if answer in _STUCK]:
        return Finding(
            "fork servers", ok=False, found=", ".join(stuck), advice="run a cell: it replaces one that does not work"
        )
    broken = [answer for _, answer in living if answer not in ("warm", "importing")]
    if broken:
        return Finding(
            "fork servers", ok=False, found=f"cannot import: {broken[0]}", advice="fix that, then restart the kernel"
        )
    if not living:
        return Finding("fork servers", ok=True, found="none yet: the first cell starts them")
    counts = {f"{kind} {answer}": living.count((kind, answer)) for kind, answer in living}
    return Finding("fork servers", ok=True, found=", ".join(f"{count} {which}" for which, count in counts.items()))


def ask_fork_server(path: Path) -> str:
    """Return ``"warm"``, ``"importing"``, ``"gone"``, what it suffers from, or why it failed to import."""
    record = ServerRecord.read(path)
    if record is not None and is_stopped(record.pid):
        return STOPPED
    connection = ForkServerConnection.open(path)  # `connect` would start one where none runs
    if connection is None:
        return "gone"
    with connection:
        try:
            connection.ask_if_warm()
            replies = connection.replies(_LATE_S if record is not None and record.warm_s else _TIMEOUT_S)
        except (ConnectionClosed, OSError, msgspec.DecodeError):
            return "gone"
    if not replies:  # one that imports answers when it has imported everything
        return SILENT if record is not None and record.warm_s else "importing"
    return replies[0].reason if isinstance(replies[0], FailedReply) else "warm"
