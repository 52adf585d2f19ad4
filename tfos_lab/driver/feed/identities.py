"""What nodes and Spark tasks show each other when rows go from host to host."""

from __future__ import annotations

from typing import NamedTuple

from tfos_lab.core.messages import TlsIdentity


class Identities(NamedTuple):
    """Those of one cluster: each is good for one end of a connection only."""

    nodes: TlsIdentity
    tasks: TlsIdentity
