"""What a feed task is told, and how it reaches a node: by unix socket on the same host, by TLS on another."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import msgspec

# An action that only shows that somebody is there.
PRESENT = "present"
# The name in the feed's certificate; hosts are known by address only.
TLS_NAME = "tfos-lab"
_UNIX = "grpc+unix://"
# gRPC would wait for ever for a node that has gone, and begin a call anew that the node has never answered.
_NO_RETRIES = [("grpc.enable_retries", 0)]
_PRESENT_TIMEOUT_S = 20.0


# What a node's endpoint says in words of ours, in the midst of what Flight and gRPC add to it.
_OURS = "tfos_lab: "
_END_OF_OURS = re.compile(r"\. Detail: |\n")


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
            security = {"tls_root_certs": certificate, "override_hostname": TLS_NAME}
        elif Path(location.removeprefix(_UNIX)).exists():
            security = {}
        else:
            continue
        client = flight.connect(location, generic_options=_NO_RETRIES, **security)
        try:
            list(client.do_action(PRESENT, flight.FlightCallOptions(timeout=_PRESENT_TIMEOUT_S)))
        except flight.FlightError as error:
            client.close()
            raise ConnectionError(f"tfos_lab: the node at {location} does not answer") from error
        return client
    raise ConnectionError(f"tfos_lab: no way to the node from this host; it listens at {', '.join(locations)}")


def words_of_node(error: BaseException) -> str | None:
    """Return what a node has said of an error, without what its way here has added; None if it has said nothing."""
    _, found, words = str(error).partition(_OURS)
    return _END_OF_OURS.split(words)[0] if found else None
