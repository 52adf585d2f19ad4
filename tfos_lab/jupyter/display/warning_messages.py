"""Warnings of ours in a notebook: shown in the cell that runs, if its own thread gives them.

What other threads write would appear below whichever cell runs; they tell what a user needs to know in their cluster's
own output. Whoever configures `logging` gets everything, as ever.
"""

from __future__ import annotations

import logging
import sys
import threading


class CellHandler(logging.Handler):
    """Writes the main thread's records to the cell, and no others."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, if it is the main thread's and nobody else writes it."""
        if threading.current_thread() is threading.main_thread() and not logging.getLogger().handlers:
            sys.stderr.write(f"{self.format(record)}\n")


def install() -> None:
    """Let our warnings go through the handler; may be called twice."""
    remove()
    logging.getLogger("tfos_lab").addHandler(CellHandler())


def remove() -> None:
    """Take the handler away."""
    logger = logging.getLogger("tfos_lab")
    for handler in list(logger.handlers):
        if isinstance(handler, CellHandler):
            logger.removeHandler(handler)
