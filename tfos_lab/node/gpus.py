"""The GPUs of a host: which there are, and which nodes hold them.

A GPU is held by a lock on a file. An agent locks those of its node, so that no other node, cluster or session of this
host gets them; the lock ends with the agent, however it ends. GPUs that were assigned by others (Spark, or the user's
CUDA_VISIBLE_DEVICES) are locked as shared ones: they are not dealt out meanwhile, and may be assigned several times.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core.gpu_shares import EQUAL

if TYPE_CHECKING:
    from tfos_lab.core.messages import LaunchSpec

VISIBLE = "CUDA_VISIBLE_DEVICES"
# The folder of the locks; containers that share the GPUs of a host have to share this folder, too.
LOCKS_VARIABLE = "TFOS_LAB_GPU_LOCKS"
GPU_LINE = re.compile(r"GPU (\d+):.*\(UUID: ([^)]+)\)")

_CARDS = Path("/proc/driver/nvidia/gpus")
# Nodes of a cluster that has just ended take a moment to leave.
_LEAVING_S = 3.0
_POLL_S = 0.05
_DRIVER_TIMEOUT_S = 20.0
# The UUIDs of GPUs by their numbers, as each nvidia-smi has listed them.
_listings: dict[str, dict[str, str]] = {}


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the NVIDIA GPUs that a process with this environment may use, without loading a driver library.

    What CUDA_VISIBLE_DEVICES says, where it is set, else the numbers of all GPUs of this host.
    """
    visible = environ.get(VISIBLE)
    if visible is not None:
        return devices_in(visible)
    listed = _ids(environ)
    if listed is not None:
        return list(listed)
    return [str(number) for number in range(len(list(_CARDS.iterdir())))] if _CARDS.is_dir() else []


def devices_in(visible: str) -> list[str]:
    """Return the devices in a value of CUDA_VISIBLE_DEVICES; CUDA ignores what follows an invalid one.

    Examples
    --------
    >>> devices_in(" 1 , 3"), devices_in("0,-1,2"), devices_in("GPU-8932f937")
    (['1', '3'], ['0'], ['GPU-8932f937'])
    """
    devices: list[str] = []
    for device in (part.strip() for part in visible.split(",")):
        if not device or device.startswith("-") or device in devices:
            break
        devices.append(device)
    return devices


def _ids(environ: Mapping[str, str]) -> dict[str, str] | None:
    """Return the UUID of each GPU by its number, as nvidia-smi lists them; None where there is none that answers."""
    program = shutil.which("nvidia-smi", path=environ.get("PATH"))
    if program is None:
        return None
    if program not in _listings:  # it may take a second, and GPUs stay where they are
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            listing = subprocess.check_output([program, "--list-gpus"], timeout=_DRIVER_TIMEOUT_S)
            _listings[program] = dict(GPU_LINE.findall(listing.decode()))
    return _listings.get(program)


class GpuLocks:
    """The GPUs that this process holds; the environment is that of its node."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._folder = Path(environ.get(LOCKS_VARIABLE) or "/tmp/tfos_lab-gpus")  # noqa: S108 - of all users of a host
        self._ids = _ids(environ) or {}
        self._held: dict[str, int] = {}

    def claim(self, wanted: int, gpus: Sequence[str]) -> list[str]:
        """Take GPUs that nobody holds, as many as are wanted if there are so many; waits a moment for those that leave.

        Returns those that were taken, in order; fewer than are wanted if others hold the rest.
        """
        deadline = time.monotonic() + _LEAVING_S
        while True:
            for gpu in gpus:
                if len(self._held) < wanted and gpu not in self._held:
                    self.take(gpu)
            if len(self._held) >= min(wanted, len(gpus)) or time.monotonic() > deadline:
                return [gpu for gpu in gpus if gpu in self._held]
            time.sleep(_POLL_S)

    def take(self, gpu: str) -> bool:
        """Take a GPU, if nobody holds it; return whether that was so."""
        return self._lock(gpu, fcntl.LOCK_EX)

    def share(self, gpus: Sequence[str]) -> list[str]:
        """Hold GPUs that were assigned by others, so that they are not dealt out; return those that are free for it."""
        return [gpu for gpu in gpus if self._lock(gpu, fcntl.LOCK_SH)]

    def close(self) -> None:
        """Give all GPUs back; may be called twice."""
        while self._held:
            os.close(self._held.popitem()[1])

    def _lock(self, gpu: str, kind: int) -> bool:
        """Lock a GPU's file; one that cannot be opened keeps nobody out."""
        descriptor = self._open(gpu)
        try:
            if descriptor is not None:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            assert descriptor is not None
            os.close(descriptor)
            return False
        self._held[gpu] = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC) if descriptor is None else descriptor
        return True

    def _open(self, gpu: str) -> int | None:
        """Open a GPU's file; all users of the host may lock it, and so they may all read it."""
        name = re.sub(r"[^\w.-]", "_", self._ids.get(gpu, gpu))
        with contextlib.suppress(OSError):
            if not self._folder.is_dir():
                self._folder.mkdir(parents=True, exist_ok=True)
                self._folder.chmod(0o1777)
            path = self._folder / f"{name}.lock"
            with contextlib.suppress(FileExistsError):
                made = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDONLY, 0o644)
                os.fchmod(made, 0o644)  # whatever the user's umask: others could not lock it
                os.close(made)
            # Anybody may have put something else there: no link is followed, and no pipe is waited for.
            return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        return None


def free_gpus(gpus: Sequence[str], *, or_shared: bool = False) -> list[str]:
    """Return those of some GPUs of this host that no node holds, or that nodes only share."""
    locks = GpuLocks(os.environ)
    try:
        return locks.share(gpus) if or_shared else [gpu for gpu in gpus if locks.take(gpu)]
    finally:
        locks.close()


class NodeGpus:
    """The GPUs of a node, which its agent holds.

    ``own`` are those that no other node gets; None where the environment decides. ``count`` is how many there are on
    its host for all nodes.
    """

    def __init__(self, spec: LaunchSpec, environ: Mapping[str, str]) -> None:
        assigned, wanted = spec.gpus, spec.gpus_wanted
        if assigned is not None:
            assigned = assigned if wanted in (None, EQUAL) else assigned[:wanted]
        visible = visible_gpus(environ) if assigned is None else assigned
        if wanted == EQUAL:
            share = len(visible) // spec.gpus_among if spec.gpus_among else 1
            wanted = share if visible else None
        self.own = assigned
        self.count = len(visible)
        self._locks = GpuLocks(environ)
        if assigned is not None or wanted is None:
            self._locks.share(visible)
        else:
            self.own = self._locks.claim(wanted, visible)

    def close(self) -> None:
        """Give the GPUs back; may be called twice."""
        self._locks.close()
