"""Where a node receives rows: on a unix socket from its own host, by TLS from others. Opened when first needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tfos_lab.core import messages as m

if TYPE_CHECKING:
    from tfos_lab.node.feed.flight_endpoint import FlightEndpoint

# Makes an endpoint for a location.
MakeEndpoint = Callable[[str, m.TlsIdentity | None], "FlightEndpoint"]
# Calls a function with a port that the node may listen on, and returns what it returns.
TakePort = Callable[[Callable[[int], "FlightEndpoint"]], "FlightEndpoint"]

# How long calls that go on are waited for at the end.
_CLOSE_S = 5.0


def any_port(bind: Callable[[int], FlightEndpoint]) -> FlightEndpoint:
    """Let the system choose the port."""
    return bind(0)


class Endpoints:
    """One node's Flight servers, each on a thread of its own (``tfos-flight``)."""

    def __init__(self, host: str, socket: Path, make: MakeEndpoint, take_port: TakePort) -> None:
        self._host = f"[{host}]" if ":" in host else host
        self._socket = socket
        self._make = make
        self._take_port = take_port
        self._endpoints: list[FlightEndpoint] = []
        self._serving: list[threading.Thread] = []
        self._locations: list[str] = []
        self._lasting: set[str] = set()

    def open(self, token: str, tls: m.TlsIdentity | None, *, lasting: bool = False) -> list[str]:
        """Admit clients that hold ``token``: until the next token is given, or for good if it is ``lasting``.

        Returns
        -------
        list of str
            Flight locations, the nearest first.
        """
        if not self._endpoints:
            self._locations.append(f"grpc+unix://{self._socket}")
            self._serve(self._locations[0], None)
            if tls is not None:
                endpoint = self._take_port(lambda port: self._serve(f"grpc+tls://{self._host}:{port}", tls))
                self._locations.append(f"grpc+tls://{self._host}:{endpoint.port}")
        if lasting:
            self._lasting.add(token)
        for endpoint in self._endpoints:
            endpoint.tokens = {*self._lasting, *(endpoint.tokens if lasting else {token})}
        return list(self._locations)

    def _serve(self, location: str, tls: m.TlsIdentity | None) -> FlightEndpoint:
        endpoint = self._make(location, tls)
        # It serves already. `serve` would take the process' signals, and give them back to another endpoint.
        thread = threading.Thread(target=endpoint.wait, name="tfos-flight", daemon=True)
        thread.start()
        self._endpoints.append(endpoint)
        self._serving.append(thread)
        return endpoint

    def close(self) -> None:
        """End the servers; wait for their calls and threads, but not for long."""
        # It waits for calls to end, and one of a task that is stopped or cut off does not.
        closing = [
            threading.Thread(target=endpoint.shutdown, name="tfos-flight-end", daemon=True)
            for endpoint in self._endpoints
        ]
        for thread in closing:
            thread.start()
        until = time.monotonic() + _CLOSE_S
        for thread in (*closing, *self._serving):
            thread.join(max(0.0, until - time.monotonic()))
