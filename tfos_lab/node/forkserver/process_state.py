"""What a forked process inherits from whoever asked for it, and not from the fork server that it was forked from."""

from __future__ import annotations

import contextlib
import os
import resource
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import msgspec

from tfos_lab.core.processes import limits_to_inherit


class ProcessState(msgspec.Struct, frozen=True):
    """The state of a process that its children inherit.

    Attributes
    ----------
    environ : dict of str to str
        The whole environment.
    cwd : str
        The working directory; "" if it has been removed.
    umask : int
        -1 if the system does not tell.
    limits : dict of int to (int, int)
        Soft and hard limit of each resource, by the number of ``resource.RLIMIT_*``.
    cpus : list of int
        The CPUs that it may run on.
    """

    environ: dict[str, str]
    cwd: str
    umask: int
    limits: dict[int, tuple[int, int]]
    cpus: list[int]

    @classmethod
    def of_this_process(cls, environ: Mapping[str, str]) -> Self:
        """Return the state of this process, with another environment."""
        return cls(
            environ=dict(environ),
            cwd=_cwd(),
            umask=_umask(),
            limits=limits_to_inherit(),
            cpus=sorted(os.sched_getaffinity(0)),
        )

    def apply(self) -> None:
        """Give this process the state; what the system refuses stays as it is."""
        os.environ.clear()
        os.environ.update(self.environ)
        time.tzset()
        tempfile.tempdir = None  # it may have been looked up in another environment
        if self.umask >= 0:
            os.umask(self.umask)
        for number, limits in self.limits.items():
            if resource.getrlimit(number) != limits:
                _set_limit(number, *limits)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, self.cpus)
        with contextlib.suppress(OSError):
            os.chdir(self.cwd)


def _set_limit(number: int, soft: int, hard: int) -> None:
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(number, (soft, hard))
        return
    with contextlib.suppress(OSError, ValueError):  # the hard limit cannot be raised again: as much as it allows
        _, allowed = resource.getrlimit(number)
        too_much = soft == resource.RLIM_INFINITY or soft > allowed
        resource.setrlimit(number, (allowed if too_much else soft, allowed))


def _cwd() -> str:
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def _umask() -> int:
    """Return the umask without setting it, as ``os.umask`` would, for other threads may create files now."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    return -1
