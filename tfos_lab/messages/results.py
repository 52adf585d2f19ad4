"""A large result on its way to the driver: offered, and sent as a file when it is its turn."""

from __future__ import annotations

from tfos_lab.messages.common import Message


class ResultOffered(Message, frozen=True):
    """The function has returned, and its result is a file of ``size_bytes``; repeated until there is an answer."""

    rank: int
    size_bytes: int


class ResultWanted(Message, frozen=True):
    """The result's file belongs at ``path`` of the driver's machine, or cannot be taken, because of ``problem``.

    An agent that sees the file ``probe`` sees that machine's disk, and moves it there if it can. Others send it as
    pieces of the folder ``"result"``.
    """

    path: str = ""
    probe: str = ""
    problem: str = ""


FromAgent = ResultOffered
ToAgent = ResultWanted
