"""Files that a node sends to the driver: in acknowledged pieces, so that neither side holds more than a window."""

from __future__ import annotations

from tfos_lab.messages.common import Message


class FilePiece(Message, frozen=True):
    """Bytes of one file of ``folder`` (``"output"`` or ``"result"``), in order.

    ``name`` is the file's path below the folder; ``transfer`` counts the files that a node sends, including those that
    it sends again. The last piece has the SHA-256 of the whole file.
    """

    rank: int
    folder: str
    transfer: int
    name: str
    offset: int
    data: bytes
    checksum: bytes = b""


class FileCredit(Message, frozen=True):
    """``size`` bytes have been written: as many more may be sent."""

    folder: str
    size: int


class FileKept(Message, frozen=True):
    """The whole file was written; or it was not, because of ``problem``, and may be sent ``again``."""

    folder: str
    transfer: int
    problem: str = ""
    again: bool = False


class OutputOpened(Message, frozen=True):
    """The node's function has asked for its output folder.

    If the driver cannot see that folder, the agent adds the ``place`` on the node's host that keeps what is not sent.
    """

    rank: int
    place: str = ""


class OutputComes(Message, frozen=True):
    """``files`` files of ``size_bytes`` in all come next."""

    rank: int
    files: int
    size_bytes: int


class OutputGone(Message, frozen=True):
    """Files that were sent are no longer wanted: the function has removed them, or others need the space."""

    rank: int
    names: list[str]


class OutputSent(Message, frozen=True):
    """The function has ended, and its output has been sent.

    ``left_out`` files of ``left_out_bytes`` were not sent, and remain in ``place`` on the node's host: they were too
    large, or there was a ``problem``. ``links`` symbolic links were skipped. Those of a node whose output is not wanted
    are what it has written to its working folder, and are removed with it.
    """

    rank: int
    left_out: int = 0
    left_out_bytes: int = 0
    place: str = ""
    problem: str = ""
    links: int = 0


FromAgent = FilePiece | OutputOpened | OutputComes | OutputGone | OutputSent
ToAgent = FileCredit | FileKept
