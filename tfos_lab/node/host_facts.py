"""What an executor reports to the doctor: its packages, clock, shared memory, and whether it reaches the driver."""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tfos_lab.core.package_versions import compared_versions
from tfos_lab.node.spark_task import inspect_and_warm

if TYPE_CHECKING:
    import pyarrow as pa

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - the kernel's own folder, looked at only
_CONNECT_TIMEOUT_S = 3.0


def host_facts_task(
    batches: Iterable[pa.RecordBatch], owner: str, questions: Mapping[str, str | int]
) -> Iterator[pa.RecordBatch]:
    """The body of the task that reports on an executor; yields one record, a JSON object.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        Spark's input, which says nothing.
    owner : str
        The owner of the executor's fork servers.
    questions : mapping
        ``probe``, a file to look for; ``host``, ``port`` and ``token``: where the driver listens, and what it answers.
    """
    import pyarrow as pa

    for _ in batches:
        pass
    yield pa.RecordBatch.from_pylist([{"facts": json.dumps(host_facts(owner, questions))}])


def host_facts(owner: str, questions: Mapping[str, str | int]) -> dict[str, object]:
    """Return the facts of `tfos_lab.driver.doctor.cluster.HostFacts`."""
    facts: dict[str, object] = {
        "clock_s": time.time(),
        "versions": compared_versions(),
        "shared_memory_bytes": _free_shared_memory(),
        "sees_probe": os.access(str(questions["probe"]), os.R_OK),
        "unreachable": "",
    }
    if questions["token"]:
        facts["unreachable"] = _why_unreachable(str(questions["host"]), int(questions["port"]), str(questions["token"]))
    return {**inspect_and_warm(owner, {}), **facts}


def _free_shared_memory() -> int | None:
    try:
        return shutil.disk_usage(_SHARED_MEMORY).free
    except OSError:
        return None


def _why_unreachable(host: str, port: int, token: str) -> str:
    """Return why this host cannot connect to the driver's, or "" if the driver has answered."""
    received = b""
    try:
        with socket.create_connection((host, port), _CONNECT_TIMEOUT_S) as connection:
            while len(received) < len(token) and (data := connection.recv(len(token) - len(received))):
                received += data
    except OSError as error:
        return error.strerror or str(error)
    return "" if received == token.encode() else "another program answers there"
