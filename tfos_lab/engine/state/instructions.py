"""What the rules decide is to be done: the server carries it out.

The cluster state and the feed state change nothing outside themselves; they return these.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfos_lab import messages as m
from tfos_lab.engine.state.events import Event


@dataclass(frozen=True)
class SendTo:
    """Send ``message`` to the agent in ``rank``."""

    rank: int
    message: m.ToAgent


@dataclass(frozen=True)
class StartAll:
    """Everybody has reserved: release them with this cluster spec."""

    spec: dict[str, list[str]]


@dataclass(frozen=True)
class Publish:
    """Tell the bus."""

    event: Event


@dataclass(frozen=True)
class Failure:
    """Why a cluster failed, as far as the nodes said it.

    ``gone`` says that a node was taken away, rather than that its function failed: another generation may go well.
    """

    node: str
    kind: str
    message: str
    traceback: str = ""
    gone: bool = False


@dataclass(frozen=True)
class Finished:
    """Nothing more will come: the cluster has ended."""


Instruction = SendTo | StartAll | Publish | Finished
