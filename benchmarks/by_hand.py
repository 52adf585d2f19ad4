"""The same work without tfos_lab: plain Python processes, started and connected by hand."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence

from tests.support.daemon import die_with_parent


def run_python(code: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a Python that runs ``code``; read its output from ``stdout``."""
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=die_with_parent if sys.platform == "linux" else None,  # noqa: PLW1509 - one libc call
    )


def import_tensorflow_once() -> None:
    """One ``python -c "import tensorflow"``."""
    run_python("import tensorflow").communicate()


def import_in_processes(count: int) -> None:
    """Start ``count`` processes that import TensorFlow, as every cluster by hand does, and wait for all of them."""
    for process in [run_python("import tensorflow") for _ in range(count)]:
        process.communicate()


def run_cluster(code: str, workers: int) -> list[str]:
    """Run ``code`` in processes that are connected by TF_CONFIG; return the output of each."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(workers)]
    processes = []
    for index in range(workers):
        config = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        processes.append(run_python(code, {"TF_CONFIG": json.dumps(config)}))
    return [process.communicate()[0] for process in processes]


def free_ports(count: int) -> Sequence[int]:
    """Return ports that are free now, as is usually done by hand."""
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports
