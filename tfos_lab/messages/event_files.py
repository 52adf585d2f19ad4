"""Event files of a node whose folder the driver cannot see: sent to it when the node has ended.

The files themselves travel as `FilePiece`s (`tfos_lab.messages.files`).
"""

from __future__ import annotations

from tfos_lab.messages.common import Message


class EventFilesFound(Message, frozen=True):
    """The node has written event files, and beside them the empty file ``probe``, for the driver to look for."""

    rank: int
    probe: str


class EventFilesWanted(Message, frozen=True):
    """Send at most ``limit_bytes`` of them; 0 if the driver sees them itself."""

    limit_bytes: int


class EventFilesSent(Message, frozen=True):
    """All have been sent but ``left_out`` files of ``left_out_bytes``: they were too large, or took too long."""

    rank: int
    left_out: int = 0
    left_out_bytes: int = 0


class EventFilesPut(Message, frozen=True):
    """The node has ended, and puts its event files at a remote ``log_dir``; or it cannot, because of a ``problem``."""

    rank: int
    problem: str = ""


FromAgent = EventFilesFound | EventFilesSent | EventFilesPut
ToAgent = EventFilesWanted
