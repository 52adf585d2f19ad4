"""The outcome of a function that has closed the descriptors of its process: it comes home as a file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from tfos_lab.messages import Outcome

_NAME = "outcome"
SENTENCE = (
    "the function has closed descriptors that were not its own, such as with os.closerange, and with them the "
    "connection to its agent"
)


def leave(scratch: Path, outcome: Outcome) -> None:
    """Write how the function has ended into the node's folder, and that descriptors were closed."""
    said = f"{outcome.message} ({SENTENCE})" if outcome.message else SENTENCE
    if outcome.kind != "returned":
        outcome = msgspec.structs.replace(outcome, message=said)
    with contextlib.suppress(OSError):
        (scratch / f"{_NAME}.part").write_bytes(msgspec.msgpack.encode(outcome))
        (scratch / f"{_NAME}.part").rename(scratch / _NAME)


def take(scratch: Path) -> Outcome | None:
    """Return the outcome that the last child has left, if it has, and remove it."""
    with contextlib.suppress(OSError, msgspec.DecodeError):
        outcome = msgspec.msgpack.decode((scratch / _NAME).read_bytes(), type=Outcome)
        (scratch / _NAME).unlink()
        return outcome
    return None
