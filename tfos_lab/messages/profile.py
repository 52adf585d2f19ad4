"""What a node spends its time on: a trace of TensorFlow's profiler, and samples of its Python stacks."""

from __future__ import annotations

import msgspec

from tfos_lab.messages.common import Message


class ProfileWanted(Message, frozen=True):
    """Profile the node's process for so many seconds; ``no_trace`` says why without a trace, or is empty."""

    request: int
    seconds: float
    no_trace: str = ""


class Profiled(Message, frozen=True):
    """The profile is finished, or there is none because of a ``problem``.

    ``samples`` are stacks, outermost frame first, each with how often it was found every ``period_s`` seconds; a frame
    is ``package<TAB>function (file:line)``. The trace is in ``files``, by name and size in bytes, which the driver
    fetches piece by piece; or there is none, as ``note`` says.
    """

    rank: int
    request: int
    period_s: float = 0.0
    samples: list[tuple[list[str], int]] = msgspec.field(default_factory=list)
    files: dict[str, int] = msgspec.field(default_factory=dict)
    note: str = ""
    problem: str = ""


class ProfilePieceWanted(Message, frozen=True):
    """Send the piece of a trace's file that begins at ``offset``; a file that is read to its end is removed."""

    request: int
    name: str
    offset: int


class ProfilePiece(Message, frozen=True):
    """The piece; empty behind the end of the file, or where it cannot be read."""

    rank: int
    request: int
    name: str
    offset: int
    data: bytes


FromAgent = Profiled | ProfilePiece
ToAgent = ProfileWanted | ProfilePieceWanted
