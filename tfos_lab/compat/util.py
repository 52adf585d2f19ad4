"""Small helpers for programs that run one TensorFlow process per executor."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tfos_lab.compat import gpu_info
from tfos_lab.core.link import address_towards

logger = logging.getLogger(__name__)

_ID_FILE = "executor_id"
# An address for documentation (RFC 5737): connecting a UDP socket sends nothing, and chooses the interface.
_ELSEWHERE = "tcp://192.0.2.1:9"
_NO_ID = """\
There is no file executor_id in the working directory of this executor. Please check that
1. the number of executors matches the number of TensorFlow nodes,
2. an executor runs one task at a time,
3. dynamic allocation is off,
4. no other node has failed before."""


def single_node_env(num_gpus: int = 1, worker_index: int = -1, nodes: Sequence[str] = []) -> None:
    """Set the environment of a process that runs TensorFlow by itself: Hadoop's classpath, and the GPUs to use.

    Parameters
    ----------
    num_gpus : int
        How many GPUs to take, if this host has any; 0 for none.
    worker_index : int
        Number of this node within ``nodes``; -1 if it does not matter.
    nodes : sequence of str
        ``host:port`` of all nodes, to divide the GPUs of a host among those on it.
    """
    _expand_classpath()
    if num_gpus > 0 and gpu_info.is_gpu_available():
        index = worker_index
        if worker_index >= 0 and nodes:
            host = nodes[worker_index].rpartition(":")[0]
            index = sum(node.rpartition(":")[0] == host for node in nodes[:worker_index])
        gpus = str(gpu_info.get_gpus(num_gpus, index))
        logger.info("Using gpu(s): %s", gpus)
    else:
        gpus = ""
        logger.info("Using CPU")
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus


def _expand_classpath() -> None:
    """Replace the wildcards in Hadoop's classpath, which JNI does not understand."""
    home = os.environ.get("HADOOP_PREFIX")
    if not home or "TFOS_CLASSPATH_UPDATED" in os.environ:
        return
    command = [str(Path(home) / "bin" / "hadoop"), "classpath", "--glob"]
    expanded = subprocess.check_output(command).decode().strip()
    known = os.environ.get("CLASSPATH", "")
    os.environ["CLASSPATH"] = os.pathsep.join(part for part in (known, expanded) if part)
    os.environ["TFOS_CLASSPATH_UPDATED"] = "1"


def get_ip_address() -> str:
    """Return an address of this host that others can reach, as far as it knows; sends nothing."""
    with contextlib.suppress(OSError):
        return address_towards(_ELSEWHERE)
    # There is no route to anywhere: the address that this host's name means, or else the loopback address.
    try:
        found = [info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)]
    except OSError:
        found = []
    outside = [str(address) for address in found if not ipaddress.ip_address(address).is_loopback]
    return next(iter(outside), "127.0.0.1")


def find_in_path(path: str, file: str) -> str | Literal[False]:
    """Return the first file of this name in the folders of a search path such as ``PATH``; False if there is none."""
    candidates = (os.path.join(folder, file) for folder in path.split(os.pathsep))  # noqa: PTH118 - as it was given
    return next((candidate for candidate in candidates if Path(candidate).is_file()), False)


def write_executor_id(num: int) -> None:
    """Write a number to the file ``executor_id`` in the working directory."""
    Path(_ID_FILE).write_text(str(num))


def read_executor_id() -> int:
    """Return the number that `write_executor_id` wrote.

    Raises
    ------
    Exception
        If there is no such file; with what to check.
    """
    if not Path(_ID_FILE).is_file():
        raise Exception(_NO_ID)  # noqa: TRY002 - as TFoS does
    return int(Path(_ID_FILE).read_text())
