"""Event files of a node whose folder the driver does not see: brought to it when the node has ended.

They come as `tfos_lab.messages.files` says.
"""

from __future__ import annotations

from tfos_lab.messages.common import Message


class EventFilesFound(Message, frozen=True):
    """The node has written event files, and an empty file ``probe`` beside them, for the driver to look for."""

    rank: int
    probe: str


class EventFilesWanted(Message, frozen=True):
    """Send so many bytes of them at most; 0 if the driver sees them itself."""

    limit_bytes: int


class EventFilesSent(Message, frozen=True):
    """Nothing more comes; ``left_out`` files of ``left_out_bytes`` would have been too much, or took too long."""

    rank: int
    left_out: int = 0
    left_out_bytes: int = 0


FromAgent = EventFilesFound | EventFilesSent
ToAgent = EventFilesWanted
