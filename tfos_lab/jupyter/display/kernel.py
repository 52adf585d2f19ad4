"""The kernel that this code runs in, if any, and whether somebody watches its cells."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

NONINTERACTIVE = "TFOS_LAB_NONINTERACTIVE"


def current_kernel() -> Any | None:
    """Return the ipykernel that runs this code, or None."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None)


def kernel_id() -> str:
    """Return the id by which the Jupyter server knows this kernel, from the name of its connection file."""
    if current_kernel() is None:
        return ""
    from ipykernel.connect import get_connection_file

    try:
        name = Path(get_connection_file()).stem
    except (RuntimeError, OSError):
        return ""
    return name.removeprefix("kernel-") if name.startswith("kernel-") else ""


def has_front_end() -> bool:
    """Return whether somebody looks at this cell through a front end that can show widgets.

    There is none when ``TFOS_LAB_NONINTERACTIVE`` is set (to anything but ``0``), outside a Jupyter kernel (a script, a
    terminal), and where the kernel's client does not take input: nbclient, and therefore papermill and ``nbconvert
    --execute``, send ``allow_stdin=False`` with every cell; front ends used by a person send true.
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
