"""Whose the fork servers of this machine are, and what nodes on it inherit from the kernel.

They are the user's, and outlive the kernel that started them: a restarted kernel and a second notebook find them warm.
Their owner is a digest of all that a kernel must have in common with the one that started them, beside the environment
(see `ForkServerSpec`): the code, the installed packages, and what a process cannot change by itself.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import resource
import site
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tfos_lab.core.runtime_files import package_root
from tfos_lab.errors import ConfigError
from tfos_lab.node.forkserver.client import USER_OWNER

FORK_SERVER = "TFOS_LAB_FORK_SERVER"
# Variables that belong to the kernel alone.
_KERNEL_ONLY = ("JPY_", "JUPYTER", "PYSPARK_GATEWAY", "TF_CONFIG", "CLASSPATH")
_NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def outlives_kernels() -> bool:
    """Whether fork servers on this machine outlive the kernel, as ``TFOS_LAB_FORK_SERVER`` says."""
    chosen = os.environ.get(FORK_SERVER) or "user"
    if chosen not in ("user", "kernel"):
        raise ConfigError(
            [f"{FORK_SERVER}={chosen}: it is user (fork servers outlive kernels) or kernel (each kernel has its own)"]
        )
    return chosen == "user"


def kernel_owner() -> str:
    """Return the owner of the fork servers that this process uses."""
    return f"{USER_OWNER}{user_digest(os.environ)}" if outlives_kernels() else f"kernel-{os.getpid()}"


def kernel_environ() -> dict[str, str]:
    """Return the environment that a node on this machine inherits from the notebook, as it is now."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_KERNEL_ONLY)}


def user_digest(environ: Mapping[str, str]) -> str:
    """Return what kernels have in common that use the same fork servers."""
    parts = [_code(package_root()), _packages(), _keras_settings(environ), _process_facts()]
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:12]


@functools.cache  # this process has imported the code as it was
def _code(root: Path) -> list[tuple[str, int, int]]:
    """Return path, time and size of each module of tfos_lab."""
    found = []
    for path in (root / "tfos_lab").rglob("*.py"):
        with contextlib.suppress(OSError):
            facts = path.stat()
            found.append((str(path), facts.st_mtime_ns, facts.st_size))
    return sorted(found)


@functools.cache
def _packages() -> list[tuple[str, int]]:
    """Return the folders of installed packages, each with the time at which one was last added or removed."""
    found = []
    for folder in sorted({*site.getsitepackages(), site.getusersitepackages()}):
        with contextlib.suppress(OSError):
            found.append((folder, Path(folder).stat().st_mtime_ns))
    return found


def _keras_settings(environ: Mapping[str, str]) -> str:
    """Return the file that Keras reads while it is imported."""
    home = environ.get("KERAS_HOME")
    folder = Path(home) if home else Path(environ.get("HOME", "/")) / ".keras"
    with contextlib.suppress(OSError):
        return (folder / "keras.json").read_text(errors="replace")
    return ""


def _process_facts() -> list[object]:
    """Return what a forked process has from the fork server and cannot change: rights, limits, containers."""
    limits = [getattr(resource, name) for name in sorted(dir(resource)) if name.startswith("RLIMIT_")]
    hard = [resource.getrlimit(number)[1] for number in limits]
    containers = []
    for path in [Path("/proc/self/cgroup"), *(Path("/proc/self/ns") / name for name in _NAMESPACES)]:
        with contextlib.suppress(OSError):
            containers.append(str(path.readlink()) if path.is_symlink() else path.read_text())
    return [os.getresuid(), os.getresgid(), os.getgroups(), os.getpriority(os.PRIO_PROCESS, 0), hard, containers]
