"""Our warnings in a notebook: shown below the cell that runs, if they come from its own thread.

Warnings of other threads would appear below whichever cell runs; what a user needs to know of them is in the output of
their cluster. Programs that configure `logging` get all of them.
"""

from __future__ import annotations

import logging
import sys
import threading


class CellHandler(logging.Handler):
    """Writes the records of the main thread to the cell, and no others."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, if it comes from the main thread and no other handler writes it."""
        if threading.current_thread() is threading.main_thread() and not logging.getLogger().handlers:
            sys.stderr.write(f"{self.format(record)}\n")


def install() -> None:
    """Add the handler to our loggers; may be called twice."""
    remove()
    logging.getLogger("tfos_lab").addHandler(CellHandler())


def remove() -> None:
    """Remove the handler."""
    logger = logging.getLogger("tfos_lab")
    for handler in list(logger.handlers):
        if isinstance(handler, CellHandler):
            logger.removeHandler(handler)
