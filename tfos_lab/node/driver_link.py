"""The agent's side of the control channel: messages to and from the driver, heartbeats, and the driver's silence."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from typing import get_args

from tfos_lab import messages as m
from tfos_lab.messages import Figure
from tfos_lab.node.last_heartbeat import LastHeartbeat
from tfos_lab.node.stand_in import StandIn
from tfos_lab.transport.link import Link, address_towards

HEARTBEAT_S = 1.0
# A driver that has been silent for this long is looked for: it is waited for as long as its process is there.
UNREACHABLE_S = 60.0
_LOOK_S = 15.0
_CONNECT_S = 2.0
# Exit code of an agent that has waited in vain.
GAVE_UP = 75


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
    long_work, long_wait : callable
        See `StandIn`.
    """

    def __init__(self, spec: m.LaunchSpec) -> None:
        identity = f"{spec.node}/{os.getpid()}".encode()
        self._link = Link(spec.driver, identity)
        self._shown = LastHeartbeat.of_this_process()
        self._stand_in = StandIn(spec.rank, spec.driver, identity, self._shown)
        self.long_work, self.long_wait = self._stand_in.long_work, self._stand_in.long_wait
        self._figures = FiguresHolder(spec.rank)
        self.host = address_towards(spec.driver.endpoint)
        self.socket = self._link.socket
        self._last_heartbeat = 0.0
        self._last_received = time.monotonic()
        host, _, port = spec.driver.endpoint.removeprefix("tcp://").rpartition(":")
        self._driver_address = host.strip("[]"), int(port)
        self._looked_at = 0.0

    def reserve(self, message: m.Reserve) -> None:
        """Reserve the node's rank, again and again until the driver answers.

        A connection may be closed while thousands come at once, and what was just sent on it is lost.
        """
        self._stand_in.reservation = message
        self.send(message)

    def share_with(self, nodes: int) -> None:
        """Send figures as often as one of so many nodes may."""
        self._figures.share_with(nodes)

    def send(self, message: m.FromAgent) -> None:
        """Send one message, or hold it for a moment; waits at most a second for room in the send buffer."""
        if self._figures.hold(message):
            return
        self._send_held()
        self._put(message)

    def _send_held(self) -> None:
        if (held := self._figures.take()) is not None:
            self._put(held)

    def _put(self, message: m.FromAgent) -> None:
        self._link.send(m.encode(message))
        self._stand_in.loop_spoke()

    def receive(self) -> Iterator[m.ToAgent]:
        """Yield the messages that have arrived."""
        for data in self._link.receive():
            self._last_received = time.monotonic()
            self._stand_in.reservation = None
            yield m.decode_to_agent(data)

    @property
    def heartbeat_is_due(self) -> bool:
        """Whether the last heartbeat is not recent."""
        return time.monotonic() - self._last_heartbeat >= HEARTBEAT_S

    def send_heartbeat_if_due(self, spooled_bytes: int) -> None:
        """Send a heartbeat if it is due, and what was held for long enough; called often."""
        if self.heartbeat_is_due:
            self._last_heartbeat = time.monotonic()
            self._stand_in.loop_spoke(spooled_bytes)
            for sign in self._stand_in.signs:
                self.send(sign)
            self._shown.was_sent()
        if self._figures.is_due:
            self._send_held()

    @property
    def silent_s(self) -> float:
        """For how many seconds the driver has sent nothing; it answers every heartbeat."""
        return time.monotonic() - self._last_received

    def is_given_up(self, limit_s: float) -> bool:
        """Whether to wait for the driver no longer: it cannot be reached, or has been silent for ``limit_s`` seconds.

        A process that is stopped still has its port; one that has ended, or whose host sleeps, has none.
        """
        silent_s = self.silent_s
        if silent_s <= min(limit_s, UNREACHABLE_S):
            return False
        return silent_s > limit_s or not self._driver_is_there()

    def _driver_is_there(self) -> bool:
        now = time.monotonic()
        if now - self._looked_at > _LOOK_S:
            self._looked_at = now
            try:
                socket.create_connection(self._driver_address, _CONNECT_S).close()
            except OSError:
                return False
        return True

    def close(self) -> None:
        """Close the connection, after what was sent or held has had a second to leave."""
        self._send_held()
        self._stand_in.close()
        self._link.close()
        self._shown.close()


def how_ended(code: int) -> str:
    """Return how an agent has ended, by its exit code."""
    if code == GAVE_UP:
        return "its agent has given up, as it had not heard of the driver for too long"
    return f"its agent ended with code {code}"


# The driver gets no more messages with figures a second than this from all nodes together.
_MESSAGES_PER_S = 2_000
# Where each message may go at once, none is held.
_LEAST_S = 0.1
_MOST_HELD = 256
_MOST_LOG_BYTES = 1 << 16
_KINDS = get_args(Figure)


def interval_s(nodes: int) -> float:
    """Return for how many seconds one of so many nodes holds its figures; 0 if it sends each at once."""
    share_s = nodes / _MESSAGES_PER_S
    return share_s if share_s > _LEAST_S else 0.0


class FiguresHolder:
    """What one node has not sent yet; used in the agent's poll loop only.

    Parameters
    ----------
    rank : int
        The node's rank.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._held: list[Figure] = []
        self._interval_s = 0.0
        self._taken_s = 0.0
        self._has_sign = False

    def share_with(self, nodes: int) -> None:
        """Hold figures for as long as one of so many nodes should."""
        self._interval_s = interval_s(nodes)

    def hold(self, message: m.FromAgent) -> bool:
        """Keep a message if it can wait; return whether it does."""
        if not self._interval_s or not isinstance(message, _KINDS):
            return False
        if isinstance(message, m.Logs) and sum(len(record.data) for record in message.records) > _MOST_LOG_BYTES:
            return False
        self._held.append(message)
        self._has_sign |= isinstance(message, m.Heartbeat)
        return True

    @property
    def is_due(self) -> bool:
        """Whether to send what is held: for long enough, or with a heartbeat, or a great many."""
        waited = self._has_sign or time.monotonic() - self._taken_s >= self._interval_s
        return bool(self._held) and (waited or len(self._held) >= _MOST_HELD)

    def take(self) -> m.Figures | None:
        """Return what is held as one message, or None if there is nothing; it is held no longer."""
        held, self._held = self._held, []
        self._taken_s, self._has_sign = time.monotonic(), False
        return m.Figures(self._rank, held) if held else None
