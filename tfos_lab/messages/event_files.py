"""Event files of a chief whose folder the driver does not see: what has grown is sent while the function runs."""

from __future__ import annotations

import msgspec

from tfos_lab.messages.common import Message


class EventFilesFound(Message, frozen=True):
    """The node has written event files, and beside them the empty file ``probe``, for the driver to look for."""

    rank: int
    probe: str


class EventFilesWanted(Message, frozen=True):
    """Send at most ``limit_bytes`` of them, after what is ``held`` of each; 0 if the driver sees them itself."""

    limit_bytes: int
    held: dict[str, int] = msgspec.field(default_factory=dict)


class EventFilePiece(msgspec.Struct, frozen=True):
    """What follows the first ``offset`` bytes of a file; ``name`` is its path below the folder."""

    name: str
    offset: int
    data: bytes


class EventFilesGrown(Message, frozen=True):
    """Files have grown; what comes next is sent when these pieces are kept."""

    rank: int
    pieces: list[EventFilePiece]


class EventFilesKept(Message, frozen=True):
    """The pieces that were sent last are written."""


class EventFilesSent(Message, frozen=True):
    """The function has ended, and all is sent but ``left_out_bytes`` of ``left_out`` files: that was too much."""

    rank: int
    left_out: int = 0
    left_out_bytes: int = 0


class EventFilesPut(Message, frozen=True):
    """The node has ended, and puts its event files at a remote ``log_dir``; or it cannot, because of a ``problem``."""

    rank: int
    problem: str = ""


FromAgent = EventFilesFound | EventFilesGrown | EventFilesSent | EventFilesPut
ToAgent = EventFilesWanted | EventFilesKept
