"""Where other hosts reach a node: its address, and the ports that it holds there."""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import Callable
from typing import TypeVar

from tfos_lab.core import messages as m
from tfos_lab.core.link import address_towards, bracketed
from tfos_lab.core.node_addresses import NODE_NETWORK_VARIABLE, NODE_PORTS_VARIABLE, PORTS_PER_NODE

T = TypeVar("T")


class NodePlace:
    """Where other hosts reach one node, and the ports that no other node of its host has, until `close`.

    Its ``host`` is an address, or a name that the driver knows for it. ``problem`` says why it cannot be reached as was
    asked for; "" if it can.
    """

    def __init__(self, spec: m.LaunchSpec, towards_driver: str) -> None:
        found = address_in(spec.network) if spec.network else None
        self.host = found or spec.host or towards_driver
        # Rows come from hosts of the cluster, which know its own address.
        self.rows_host = found or towards_driver
        self.problem = ""
        ports = list(range(spec.ports[0], spec.ports[1] + 1)) if spec.ports else []
        random.SystemRandom().shuffle(ports)  # programs of others may hold some; seeds stay the function's
        self._holds: dict[int, socket.socket] = {}
        for port in ports:
            hold = _hold(port) if len(self._holds) < PORTS_PER_NODE else None
            if hold is not None:
                self._holds[port] = hold
        self._unused = list(self._holds)
        if spec.ports and len(self._holds) < PORTS_PER_NODE:
            self.problem = (
                f"none of {NODE_PORTS_VARIABLE}={spec.ports[0]}-{spec.ports[1]} is free on {socket.gethostname()}; "
                f"each node of a host takes {PORTS_PER_NODE} of them. Give a wider range, or stop a cluster"
            )
        if spec.network and found is None:
            self.problem = (
                f"{spec.node} has no address in {NODE_NETWORK_VARIABLE}={spec.network}: {socket.gethostname()} reaches "
                f"the driver from {towards_driver}. Name the network that joins all hosts of the cluster"
            )

    def at(self, port: socket.socket) -> str:
        """Return ``host:port`` of a bound socket, as other hosts reach it."""
        return f"{bracketed(self.host)}:{port.getsockname()[1]}"

    def take_port(self, bind: Callable[[int], T]) -> T:
        """Return what ``bind(port)`` returns for a port of this node; ``bind(0)`` if any will do."""
        return bind(self._unused.pop() if self._unused else 0)

    def close(self) -> None:
        """Leave the ports to other nodes; may be called twice."""
        for hold in self._holds.values():
            hold.close()


def address_in(network: str) -> str | None:
    """Return this host's address in a network such as ``"10.2.0.0/16"``; None if it has none."""
    where = ipaddress.ip_network(network)
    first = where.network_address + (1 if where.num_addresses > 1 else 0)
    try:
        # The route to a network of its own starts at this host's address there.
        own = address_towards(f"tcp://{bracketed(str(first))}:1")
    except OSError:
        return None
    return own if ipaddress.ip_address(own) in where else None


def _hold(port: int) -> socket.socket | None:
    """Return a socket that keeps a port from all other nodes of this host, or None if one has it, or someone listens.

    Nodes cannot see it by binding the port: TensorFlow shares ports with whoever permits that.
    """
    hold = socket.socket(socket.AF_UNIX)
    try:
        # Such names are per network namespace, as ports are, and go with the process.
        hold.bind(f"\0tfos_lab-port-{port}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError:
        hold.close()
        return None
    return hold
