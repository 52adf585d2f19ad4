"""``breakpoint()`` in a cell that runs in the kernel itself (``local=inline``).

A kernel leaves it to JupyterLab's debugger; where that is switched off, the call silently does nothing. In such a cell
IPython's own debugger is started instead, if somebody can type.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from tfos_lab.jupyter.display.kernel import current_kernel, takes_input


@contextlib.contextmanager
def stopping() -> Iterator[None]:
    """Make ``breakpoint()`` stop within this context."""
    before = sys.breakpointhook
    if not before.__module__.startswith("debugpy"):
        yield  # somebody chose another debugger
        return

    def stop(*args: Any, **named: Any) -> Any:
        kernel = current_kernel()
        if _debugger_is_on() or kernel is None or not takes_input(kernel):
            return before(*args, **named)
        from IPython.core.debugger import set_trace

        return set_trace(sys._getframe(1))  # type: ignore[no-untyped-call]  # noqa: SLF001 - as pdb does

    sys.breakpointhook = stop
    try:
        yield
    finally:
        sys.breakpointhook = before


def _debugger_is_on() -> bool:
    debugpy = sys.modules.get("debugpy")
    return debugpy is not None and bool(debugpy.is_client_connected())
