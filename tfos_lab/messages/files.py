"""Files of a node that come to the driver: in pieces, each answered, so that neither side holds more than a window."""

from __future__ import annotations

from tfos_lab.messages.common import Message


class FilePiece(Message, frozen=True):
    """Bytes of one file of ``folder`` (``"events"`` or ``"output"``), in order.

    ``name`` is the file's path below the folder; ``transfer`` counts the files that a node sends, and those that it
    sends again. The last piece bears the SHA-256 of the whole.
    """

    rank: int
    folder: str
    transfer: int
    name: str
    offset: int
    data: bytes
    checksum: bytes = b""


class FileCredit(Message, frozen=True):
    """So many bytes have been dealt with: as many more may be sent."""

    folder: str
    size: int


class FileKept(Message, frozen=True):
    """The whole file has been kept; or it has not been, for ``problem``, and may be sent ``again``."""

    folder: str
    transfer: int
    problem: str = ""
    again: bool = False


class OutputOpened(Message, frozen=True):
    """The node's function has asked for its output folder.

    Where the driver does not see that folder, the agent adds the ``place`` at which the node's host keeps what cannot
    be brought.
    """

    rank: int
    place: str = ""


class OutputComes(Message, frozen=True):
    """So many files of so many bytes come next."""

    rank: int
    files: int
    size_bytes: int


class OutputGone(Message, frozen=True):
    """Files that have been brought are no longer wanted: the function has removed them, or others need the room."""

    rank: int
    names: list[str]


class OutputSent(Message, frozen=True):
    """The function has ended, and nothing more of its output comes.

    ``left_out`` files of ``left_out_bytes`` did not come, and lie in ``place`` on the node's host: they were too much,
    or there was a ``problem``. ``links`` symbolic links were passed over.
    """

    rank: int
    left_out: int = 0
    left_out_bytes: int = 0
    place: str = ""
    problem: str = ""
    links: int = 0


FromAgent = FilePiece | OutputOpened | OutputComes | OutputGone | OutputSent
ToAgent = FileCredit | FileKept
