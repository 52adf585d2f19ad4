"""What the rules decide is to be done: the server carries it out.

The roster and the feed ledger change nothing outside themselves; they return these.
"""

from __future__ import annotations

from dataclasses import dataclass

from tfos_lab import messages as m
from tfos_lab.engine.state.events import Event


@dataclass(frozen=True)
class SendTo:
    """Send ``message`` to the agent in ``seat``."""

    seat: int
    message: m.ToAgent


@dataclass(frozen=True)
class ReleaseAll:
    """Everybody has reserved: release them with this cluster spec."""

    spec: dict[str, list[str]]


@dataclass(frozen=True)
class Publish:
    """Tell the bus."""

    event: Event


@dataclass(frozen=True)
class Failure:
    """Why a cluster failed, as far as the nodes said it.

    ``gone`` says that a node was taken away, rather than that its function failed: another attempt may go well.
    """

    node: str
    kind: str
    message: str
    traceback: str = ""
    gone: bool = False


@dataclass(frozen=True)
class Over:
    """Nothing more will come: the cluster has ended."""


Instruction = SendTo | ReleaseAll | Publish | Over
