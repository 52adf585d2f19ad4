"""The output of a cell: opens the display that fits, live in a notebook, plain lines elsewhere.

    display = open_display(cluster)
    try:
        while not cluster_has_ended(timeout_s=0.1):
            display.poll()
    finally:
        display.close()

``poll`` is called by the main thread while it waits: the plain display writes there, as threads must not print (their
output would go to whichever cell runs). The dashboard has a thread of its own and needs no poll.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from typing import Any

from tfos_lab.jupyter.display.base import Display, WatchedCluster, current_kernel

logger = logging.getLogger(__name__)

NONINTERACTIVE = "TFOS_LAB_NONINTERACTIVE"


def open_display(cluster: WatchedCluster, *, interactive: bool | None = None, blocking: bool = True) -> Display:
    """Show ``cluster`` in the output of the current cell.

    Parameters
    ----------
    cluster : Cluster
        The cluster to watch; it may be at its very beginning.
    interactive : bool, optional
        True for the live dashboard, False for plain lines; None finds out (see `has_front_end`).
    blocking : bool
        Whether the cell waits for the cluster. If not (``background``), nobody polls: the dashboard closes itself when
        the cluster has ended, and the plain display only says where to look.

    Returns
    -------
    Display
        To be polled while waiting, and closed at the end.
    """
    if has_front_end() if interactive is None else interactive:
        try:
            from tfos_lab.jupyter.display.dashboard import Dashboard

            return Dashboard(cluster, blocking=blocking)
        except ImportError as error:
            logger.warning("no live dashboard (%s); plain lines instead", error)
    from tfos_lab.jupyter.display.text import TextDisplay

    return TextDisplay(cluster, blocking=blocking)


def load_in_background() -> None:
    """Import in a kernel, silently, what its first cell needs: it would take longer than to launch the nodes."""
    if current_kernel() is not None:
        threading.Thread(target=_load, name="tfos-load", daemon=True).start()


def _load() -> None:
    for module in ("tfos_lab.engine.start", "tfos_lab.jupyter.display.dashboard"):
        try:
            importlib.import_module(module)
        except (ImportError, FileNotFoundError) as error:  # the cell that needs it will say it properly
            logger.info("could not load %s: %s", module, error)


def has_front_end() -> bool:
    """Return whether somebody looks at this cell through a front end that can show widgets.

    There is none when ``TFOS_LAB_NONINTERACTIVE`` is set (to anything but ``0``), outside a Jupyter kernel (a script, a
    terminal), and where the kernel's client does not take input: nbclient, and so papermill and ``nbconvert
    --execute``, say ``allow_stdin=False`` with every cell; front ends with a person say true.
    """
    if os.environ.get(NONINTERACTIVE, "0") not in ("", "0"):
        return False
    kernel = current_kernel()
    return kernel is not None and takes_input(kernel)


def takes_input(kernel: Any) -> bool:
    """Return whether somebody can type where the cell that runs now was started."""
    try:
        content = kernel.get_parent()["content"]
    except (AttributeError, KeyError, LookupError, TypeError):
        return True
    return bool(content.get("allow_stdin", True))
