"""The agent's side of the control channel: messages to and from the driver, heartbeats, and the driver's silence."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from tfos_lab import messages as m
from tfos_lab.transport.link import Link, address_towards

HEARTBEAT_S = 1.0


class DriverLink:
    """One node's connection to the driver; used in the agent's poll loop only.

    Parameters
    ----------
    spec : LaunchSpec
        Says which node this is, and where the driver listens.

    Attributes
    ----------
    host : str
        This host's address on the route to the driver.
    """

    def __init__(self, spec: m.LaunchSpec) -> None:
        self._rank = spec.rank
        self._link = Link(spec.driver, f"{spec.node}/{os.getpid()}".encode())
        self.host = address_towards(spec.driver.endpoint)
        self.socket = self._link.socket
        self._last_heartbeat = 0.0
        self._last_received = time.monotonic()

    def send(self, message: m.FromAgent) -> None:
        """Send one message; waits at most a second for room in the send buffer."""
        self._link.send(m.encode(message))

    def receive(self) -> Iterator[m.ToAgent]:
        """Yield the messages that have arrived."""
        for data in self._link.receive():
            self._last_received = time.monotonic()
            yield m.decode_to_agent(data)

    def send_heartbeat_if_due(self, spooled_bytes: int) -> None:
        """Send a heartbeat, unless the last one is recent; called often."""
        now = time.monotonic()
        if now - self._last_heartbeat >= HEARTBEAT_S:
            self._last_heartbeat = now
            self.send(m.Heartbeat(rank=self._rank, spooled_bytes=spooled_bytes))

    @property
    def silent_s(self) -> float:
        """For how many seconds the driver has sent nothing; it answers every heartbeat."""
        return time.monotonic() - self._last_received

    def close(self) -> None:
        """Close the connection, after what was sent has had a second to leave."""
        self._link.close()
