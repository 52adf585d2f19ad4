"""Instructions: the state machines return them, and the server carries them out."""

from __future__ import annotations

from dataclasses import dataclass

from tfos_lab.core import messages as m
from tfos_lab.driver.state.events import Event


@dataclass(frozen=True)
class SendTo:
    """Send ``message`` to the agent of a rank, or of all these ``ranks``; it is encoded once."""

    ranks: int | tuple[int, ...]
    message: m.ToAgent

    @property
    def each(self) -> tuple[int, ...]:
        """The ranks, one or more."""
        return (self.ranks,) if isinstance(self.ranks, int) else self.ranks


@dataclass(frozen=True)
class StartAll:
    """All nodes have reserved: start them with this cluster spec."""

    spec: dict[str, list[str]]


@dataclass(frozen=True)
class Publish:
    """Publish an event on the bus."""

    event: Event


@dataclass(frozen=True)
class Failure:
    """Why a cluster failed.

    ``gone`` means that a node was lost, and not that its function failed: the nodes of another start may succeed.
    """

    node: str
    kind: str
    message: str
    traceback: str = ""
    gone: bool = False


@dataclass(frozen=True)
class Fail:
    """End the nodes: the cluster has failed."""

    failure: Failure


@dataclass(frozen=True)
class Overdue:
    """The nodes do not run, though they have had ``waited_s`` seconds: they are to fail for that."""

    waited_s: float


@dataclass(frozen=True)
class Finished:
    """The cluster has ended, and its nodes will send no more messages."""


Instruction = SendTo | StartAll | Publish | Fail | Overdue | Finished
