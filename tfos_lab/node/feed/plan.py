"""What a feed task needs to know, and how it connects to a node: by unix socket on its host, by TLS from another."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tfos_lab.core.messages import TlsIdentity
from tfos_lab.errors import NodeUnreachable

# An action that every node answers; on its unix socket, with the folder of its spool.
PRESENT = "present"
# The name in the nodes' certificate, as hosts are known by address only.
TLS_NAME = "tfos-lab"
_UNIX = "grpc+unix://"
# gRPC would wait forever for a node that has gone, and repeat calls that the node has not answered.
_NO_RETRIES = [("grpc.enable_retries", 0)]
_PRESENT_TIMEOUT_S = 20.0
# gRPC itself waits for about a second before it connects again.
_AGAIN_S = 5.0


class FeedPlan(msgspec.Struct, frozen=True):
    """Where the rows go: ``locations`` maps ranks to Flight locations, the nearest first."""

    feed: int
    token: str
    locations: dict[int, list[str]]
    schema: str
    tls: TlsIdentity | None = None


@dataclass(frozen=True)
class Connection:
    """A Flight client of a node, and the folder of the node's spool if it is on this host."""

    client: Any
    spool: Path | None


def connect(locations: list[str], tls: TlsIdentity | None) -> Connection:
    """Connect to the first of a node's locations that this host can reach."""
    from pyarrow import flight

    for location in locations:
        if not location.startswith(_UNIX):
            # Rows go directly to the node, whatever proxy this host uses for the internet.
            os.environ["no_grpc_proxy"] = location.removeprefix("grpc+tls://").rpartition(":")[0].strip("[]")  # noqa: SIM112
            security = _security(tls)
        elif Path(location.removeprefix(_UNIX)).exists():
            security = {}
        else:
            continue
        client = flight.connect(location, generic_options=_NO_RETRIES, **security)
        try:
            folder = _spool_of(client, _AGAIN_S if security else 0.0)
        except flight.FlightError as error:
            client.close()
            raise NodeUnreachable(reason=f"the node at {location} does not answer") from error
        return Connection(client, Path(folder) if folder else None)
    raise NodeUnreachable(reason=f"no way to the node from this host; it listens at {', '.join(locations)}")


def _spool_of(client: Any, again_s: float) -> str:
    """Ask a node where its spool is; again for a while, as it closes some connections where strangers open too many."""
    from pyarrow import flight

    until_s = time.monotonic() + again_s
    while True:
        try:
            (folder,) = client.do_action(PRESENT, flight.FlightCallOptions(timeout=_PRESENT_TIMEOUT_S))
        except flight.FlightUnavailableError as error:
            has_gone = "Connection refused" in str(error)  # its port is open for as long as it lives
            if has_gone or time.monotonic() > until_s:
                raise
            time.sleep(random.uniform(0.1, 0.5))  # noqa: S311 - no secret
        else:
            return str(folder.body.to_pybytes().decode())


def _security(tls: TlsIdentity | None) -> dict[str, Any]:
    if tls is None:
        raise NodeUnreachable(reason="the node is on another host, and this task has no certificate to show it")
    return {
        "tls_root_certs": tls.authority,
        "cert_chain": tls.certificate,
        "private_key": tls.key,
        "override_hostname": TLS_NAME,
    }
