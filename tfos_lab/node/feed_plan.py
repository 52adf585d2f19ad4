"""What a feed task is told, and how it reaches a node: by unix socket on the same host, by TLS on another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

# The name in the feed's certificate; hosts are known by address only.
TLS_NAME = "tfos-lab"
_UNIX = "grpc+unix://"


class FeedPlan(msgspec.Struct, frozen=True):
    """Where the rows go: ``locations`` maps seats to Flight locations, the nearest first."""

    feed: int
    token: str
    locations: dict[int, list[str]]
    schema: str
    certificate: bytes


def connect(locations: list[str], certificate: bytes) -> Any:
    """Return a Flight client for the first of a node's locations that this host can reach."""
    from pyarrow import flight

    for location in locations:
        if not location.startswith(_UNIX):
            # Rows go straight to the node, whatever proxy this host uses for the world outside.
            os.environ["no_grpc_proxy"] = location.removeprefix("grpc+tls://").rpartition(":")[0].strip("[]")  # noqa: SIM112
            return flight.connect(location, tls_root_certs=certificate, override_hostname=TLS_NAME)
        if Path(location.removeprefix(_UNIX)).exists():
            return flight.connect(location)
    raise ConnectionError(f"tfos_lab: no way to the node from this host; it listens at {', '.join(locations)}")
