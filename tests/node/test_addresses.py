"""Where other hosts reach a node: ports of a range that no other node has, and an address in a network."""

from __future__ import annotations

import contextlib
import os
import socket

import pytest

from tfos_lab.node.addresses import NodePorts, address_in


@pytest.fixture
def limits():
    """A range of four ports that are free, below those that connections take."""
    for port in range(21_000 + os.getpid() % 1000 * 8, 32_000, 4):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for number in range(port, port + 4):
                stack.enter_context(socket.create_server(("", number)))
            return port, port + 3
    raise AssertionError("no four ports are free")


def test_nodes_of_a_host_share_a_range_without_a_port_in_common(limits):
    nodes = [NodePorts(limits) for _ in range(3)]
    try:
        assert [bool(node.problem) for node in nodes] == [False, False, True]
        taken = [node.take(lambda port: port) for node in nodes[:2] for _ in range(2)]
        assert sorted(taken) == list(range(limits[0], limits[1] + 1))
    finally:
        for node in nodes:
            node.close()
    again = NodePorts(limits)
    assert again.problem == ""
    again.close()


def test_a_port_on_which_somebody_listens_is_left_out(limits):
    with socket.create_server(("", limits[0])):
        ports = NodePorts((limits[0], limits[0] + 2))
        assert {ports.take(lambda port: port), ports.take(lambda port: port)} == {limits[0] + 1, limits[0] + 2}
        ports.close()


def test_without_a_range_the_system_chooses():
    assert NodePorts(None).take(lambda port: port) == 0


def test_the_address_in_a_network_is_this_host_s_own():
    assert address_in("127.0.0.0/8") == "127.0.0.1"
    assert address_in("198.51.100.0/24") is None
