"""Python processes that use tfos_lab as kernels do, with a temporary folder of their own for fork servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.processes import gone
from tests.support.quick import QUICK_ENV

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120

_PRELUDE = f"""
import json, os, sys, time
from pathlib import Path
import tfos_lab
from tfos_lab.driver.warm_servers import warm_servers

def run(function, args=None, **options):
    return tfos_lab.run(function, args, cluster_size=1, local="processes", env={QUICK_ENV!r}, **options)

def servers():
    return {{server.kind: server.pid for server in warm_servers()}}

def tell(value):
    print("told:" + json.dumps(value), flush=True)
"""


class Kernels:
    """Starts kernels; their fork servers, which may outlive them, end with this object."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "cwd").mkdir()

    def start(self, code: str, *, cwd: Path | None = None, umask: int = -1, **environ: str) -> subprocess.Popen[str]:
        """Start a kernel that runs ``code``, with ``run``, ``servers`` and ``tell``; `told` reads what it tells."""
        return subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + code],
            env=self.environ | environ,
            cwd=cwd or self._folder / "cwd",
            umask=umask,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def environ(self) -> dict[str, str]:
        """The environment of the kernels."""
        ours = {"TMPDIR": str(self._folder), "TFOS_LAB_RUNS": str(self._folder / "runs"), "PYTHONPATH": str(ROOT)}
        return dict(os.environ) | ours | {"TFOS_LAB_FORK_SERVER": "user"}

    def outcome(self, code: str, **options: object) -> object:
        """Run a kernel to its end; return what it tells."""
        with self.start(code, **options) as kernel:
            return told(kernel)

    def fork_servers(self) -> list[psutil.Process]:
        """Return the fork servers that run; what is forked from them has their command line, too."""
        found = {process.pid: process for process in psutil.process_iter() if self._is_ours(process)}
        return [process for process in found.values() if process.ppid() not in found]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            command, environ = process.cmdline(), process.environ()
        except psutil.Error:
            return False  # it has just ended
        is_one = any("tfos_lab.node.forkserver.main" in word for word in command)
        return is_one and environ.get("TMPDIR") == str(self._folder)

    def close(self) -> None:
        """End all fork servers."""
        servers = self.fork_servers()
        for process in servers:
            process.kill()
        assert gone(servers)


def told(kernel: subprocess.Popen[str]) -> object:
    """Return what a kernel tells next."""
    assert kernel.stdout is not None
    for line in kernel.stdout:
        if line.startswith("told:"):
            return json.loads(line.removeprefix("told:"))
    raise AssertionError(f"the kernel ended with code {kernel.wait(PATIENCE_S)} before it told anything")
