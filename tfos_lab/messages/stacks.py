"""Where a node's threads are now: asked for by the driver, answered by the child, or by its agent for it."""

from __future__ import annotations

from enum import StrEnum

from tfos_lab.messages.common import Message


class Condition(StrEnum):
    """What a node's process was found to be doing when it was asked for its stacks.

    ``LOCKED`` does not answer, as where a call into C holds the interpreter's lock. ``BUSY`` is in code of the user or
    of other packages, ``WAITS`` in what legitimately waits for other nodes; ``AWAY`` has no process to ask.
    """

    STOPPED = "stopped"
    LOCKED = "locked"
    BUSY = "busy"
    IN_TENSORFLOW = "in TensorFlow"
    WAITS_FOR_ROWS = "waits for rows"
    WAITS = "waits"
    AWAY = "away"

    @property
    def is_deaf(self) -> bool:
        """Whether the process does not even answer."""
        return self in (Condition.STOPPED, Condition.LOCKED)


class StacksWanted(Message, frozen=True):
    """Say where the threads of the node's process are.

    A child that has not answered after ``patience_s`` is asked with a signal, which needs nothing of its interpreter.
    """

    request: int
    patience_s: float = 1.0


class Stacks(Message, frozen=True):
    """The answer: the stacks as ``text``, and what the main thread is at.

    ``place`` is the user's line that it is in, ``call`` the function that this has called; "" where that is not known.
    """

    rank: int
    request: int
    condition: Condition
    text: str
    place: str = ""
    call: str = ""


FromAgent = Stacks
ToAgent = StacksWanted
