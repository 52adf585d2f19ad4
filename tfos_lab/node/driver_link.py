"""The agent's side of the control connection: messages to and from the driver, and signs of life.

A thread sends signs of life where nothing else is sent: a disk or another process that the agent's loop waits for costs
none. A loop that has not gone on for a minute never will: the agent ends, and its node with it. An agent that is
stopped stops its threads, too, and falls silent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

from tfos_lab.core import messages as m
from tfos_lab.core.link import Link, address_towards

# After so long without another message, an agent sends a heartbeat; the figures of a child come a little more often.
HEARTBEAT_S = 1.25
# An agent whose loop has not gone on for so long ends.
HUNG_AFTER_S = 60.0
# Exit codes of an agent that has waited for the driver in vain, one whose loop hangs, and one that cannot connect.
GAVE_UP = 75
HUNG = 76
NO_WAY = 77


class DriverLink(Link):
    """One node's connection to the driver; used in the agent's poll loop only.

    ``host`` is this host's address on the route to the driver. ``spooled_bytes``, how much feeds have stored here, is
    sent soon after it has changed. This process ends when `go_on` was not called for ``hung_after_s``. Raises OSError
    if the driver cannot be reached.
    """

    def __init__(self, address: m.DriverAddress, *, hung_after_s: float = HUNG_AFTER_S) -> None:
        self.host = address_towards(address.endpoint)
        self.spooled_bytes = 0
        self._hung_after_s = hung_after_s
        self._closing = threading.Event()
        super().__init__(address)
        self._heard_at = self._went_on_at = self._sent_at = time.monotonic()

    def reserve(self, message: m.Reserve) -> None:
        """Reserve the node's rank, and send signs of life from now on."""
        self.tell(message)
        threading.Thread(target=self._beat, name="tfos-heartbeat", daemon=True).start()

    def tell(self, message: m.FromAgent) -> None:
        """Send one message; never waits."""
        self._sent_at = time.monotonic()
        self.send(m.encode(message))

    def messages(self) -> Iterator[m.ToAgent]:
        """Yield the messages that have arrived, after sending what has waited for the network."""
        self.flush()
        for data in self.receive():
            self._heard_at = time.monotonic()
            yield m.decode_to_agent(data)

    def go_on(self) -> None:
        """Note that the agent's loop goes on; called often."""
        self._went_on_at = time.monotonic()

    def _beat(self) -> None:
        told_bytes, quiet_s = 0, 0.0
        while not self._closing.wait(HEARTBEAT_S - quiet_s):
            if time.monotonic() - self._went_on_at > self._hung_after_s:
                os._exit(HUNG)
            quiet_s = time.monotonic() - self._sent_at
            if quiet_s >= HEARTBEAT_S or self.spooled_bytes != told_bytes:
                told_bytes, quiet_s = self.spooled_bytes, 0.0
                self.tell(m.Heartbeat(spooled_bytes=told_bytes))

    @property
    def silent_s(self) -> float:
        """For how many seconds the driver has sent nothing; it sends signs of life, too."""
        return time.monotonic() - self._heard_at

    def close(self) -> None:
        """Close, as any link, and send no signs of life any more."""
        self._closing.set()
        super().close()


def how_ended(code: int) -> str:
    """Return how an agent has ended, by its exit code."""
    if code == GAVE_UP:
        return "its agent has given up, as it had not heard of the driver for too long"
    if code == NO_WAY:
        return (
            "its agent could not connect to the notebook: see TFOS_SERVER_PORT and TFOS_SERVER_HOST, and whether a "
            "firewall is in the way (tfos-lab doctor)"
        )
    if code == HUNG:
        return f"its agent did not go on for {HUNG_AFTER_S:.0f} s, as on a disk that hangs"
    return f"its agent ended with code {code}"
