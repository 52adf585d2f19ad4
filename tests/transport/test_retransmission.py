"""Connections of agents repeat at even times what was lost."""

from __future__ import annotations

import os
import socket
import sys

import psutil
import pytest

from tfos_lab.transport.link import Link, Listener
from tfos_lab.transport.retransmission import EVEN_TIMES

PATIENCE_S = 30.0

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be asked to")


def connections_to(endpoint):
    """Yield handles of this process's connections to an endpoint."""
    port = int(endpoint.rpartition(":")[2])
    found = [c.fd for c in psutil.Process().net_connections("tcp") if c.raddr and c.raddr.port == port]
    for descriptor in found:
        with socket.socket(fileno=os.dup(descriptor)) as handle:
            yield handle


def test_a_link_asks_for_it_once_it_is_connected():
    listener = Listener()
    link = Link(listener.address, b"agent/1")
    try:
        link.send(b"hello")
        for _ in range(int(PATIENCE_S / 0.1)):
            for item in listener.poll(0.1):
                listener.send(item.identity, b"welcome")
            if link.socket.poll(0):
                break
        assert list(link.receive()) == [b"welcome"]
        asked = [
            handle.getsockopt(socket.IPPROTO_TCP, EVEN_TIMES) for handle in connections_to(listener.address.endpoint)
        ]
        assert asked == [1]
    finally:
        link.close()
        listener.close()
