"""Starts fork servers before they are needed: when the extension is loaded, and when a session is first seen."""

from __future__ import annotations

import logging
import threading

from tfos_lab.core.listener import driver_identity
from tfos_lab.launchers.local import local_fork_servers, warm_local
from tfos_lab.launchers.spark import session as spark_session
from tfos_lab.launchers.spark.executors import check_executors
from tfos_lab.launchers.spark.slots import slots_of
from tfos_lab.launchers.this_machine import kernel_environ

logger = logging.getLogger(__name__)

_lock = threading.Lock()
_warmed: set[str] = set()


def warm() -> str:
    """Start the fork servers where a cell would run now; returns a name for that place.

    Returns at once for this machine. On a Spark cluster it waits for one small job that checks the executors.

    Raises
    ------
    ExecutorMismatch
        If executors lack a package or run another Python.
    """
    session = spark_session.active_session()
    if session is None or spark_session.is_local(session):
        warm_local(kernel_environ(), {})
        return "this machine"
    slots = slots_of(session)
    check_executors(session, slots.total if slots else 1, {})
    return spark_session.master_of(session)


def wait_until_warm() -> None:
    """Start this machine's fork servers, and wait until they have imported everything.

    Raises
    ------
    ForkServerUnavailable
        If one cannot start, cannot import TensorFlow, or ends meanwhile.
    """
    warm_local(kernel_environ(), {})  # both import at the same time
    for fork_server in local_fork_servers(kernel_environ(), {}):
        fork_server.wait_until_warm()


def warm_in_background() -> None:
    """Start them on a thread, once for each place where cells run; silent, whatever happens."""
    session = spark_session.active_session()
    on_cluster = session is not None and not spark_session.is_local(session)
    place = spark_session.owner_of(session) if session is not None and on_cluster else ""
    with _lock:
        if place in _warmed:
            return
        _warmed.add(place)
    threading.Thread(target=_warm_quietly, name="tfos-warm", daemon=True).start()


def _warm_quietly() -> None:
    try:
        warm()
        driver_identity()  # the first cluster would import what makes certificates
    except Exception as error:  # noqa: BLE001 - the cell that needs the nodes raises it
        logger.info("fork servers could not be started ahead: %s", error)
