"""Which GPUs of this host are free, according to ``nvidia-smi``."""

from __future__ import annotations

import logging
import os
import random
import subprocess
import time

from tfos_lab.node.gpus import GPU_LINE, VISIBLE, devices_in, free_gpus

logger = logging.getLogger(__name__)

MAX_RETRIES = 3  #: how often to look for free GPUs
AS_STRING = "string"  #: "0,1"
AS_LIST = "list"  #: ["0", "1"]

# Before the n-th retry, wait n times as long.
_RETRY_S = 5.0


def is_gpu_available() -> bool:
    """Whether this host has GPUs whose driver answers."""
    try:
        subprocess.check_output(["nvidia-smi", "--list-gpus"])
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def get_gpus(num_gpu: int = 1, worker_index: int = -1, format: str = AS_STRING) -> str | list[str]:  # noqa: A002 - TFoS's name
    """Return GPUs that no process computes on; look again, `MAX_RETRIES` times in all, while there are too few.

    Parameters
    ----------
    num_gpu : int
        How many are wanted.
    worker_index : int
        Number of this node among those of the host, so that nodes that ask at once get different ones; -1 chooses at
        random.
    format : {"string", "list"}
        `AS_STRING` for ``"0,1"``, `AS_LIST` for ``["0", "1"]``.

    Raises
    ------
    Exception
        If too few are free, with what computes on the others, or for another format.
    """
    if format not in (AS_STRING, AS_LIST):
        raise Exception(f"Unknown GPU format {format!r}: use AS_STRING or AS_LIST")  # noqa: TRY002 - as TFoS does
    free = _await_free(num_gpu)
    logger.info("Available GPUs: %s", free)
    if worker_index == -1:
        chosen = random.sample(free, num_gpu)
    else:
        first = worker_index * num_gpu
        if first + num_gpu > len(free):
            first = first % len(free)  # more nodes than GPUs: they share
        chosen = (free * 2)[first : first + num_gpu]
    logger.info("Proposed GPUs: %s", chosen)
    return ",".join(chosen) if format == AS_STRING else chosen


def _await_free(wanted: int) -> list[str]:
    gpus: list[tuple[str, str]] = GPU_LINE.findall(_ask("--list-gpus"))
    visible = os.environ.get(VISIBLE)
    if visible:  # by number or UUID: those that this node was dealt, so that no other node has them
        gpus = [gpu for gpu in gpus if set(gpu) & set(devices_in(visible))]
    for retry in range(1, MAX_RETRIES + 1):
        busy = set(_ask("--format=csv,noheader,nounits", "--query-compute-apps=gpu_uuid").split())
        free = [index for index, uuid in gpus if uuid not in busy]
        if not visible:
            free = free_gpus(free, or_shared=True)
        if len(free) >= wanted:
            return free
        logger.warning("%d free GPU(s) are wanted, and there are %d", wanted, len(free))
        if retry < MAX_RETRIES:
            time.sleep(_RETRY_S * retry)
    apps = _ask("--format=csv", "--query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory")
    raise Exception(f"Unable to find {wanted} free GPU(s) of {len(gpus)}; what computes on them:\n{apps}")  # noqa: TRY002


def _ask(*arguments: str) -> str:
    return subprocess.check_output(["nvidia-smi", *arguments]).decode()
