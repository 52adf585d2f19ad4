"""The variables that say where nodes listen and on which network they meet."""

from __future__ import annotations

import pytest

from tfos_lab.core.node_addresses import NODE_NETWORK_VARIABLE, NODE_PORTS_VARIABLE, node_addresses
from tfos_lab.errors import ConfigError


def test_without_them_any_port_and_address_will_do(monkeypatch):
    monkeypatch.delenv(NODE_PORTS_VARIABLE, raising=False)
    monkeypatch.delenv(NODE_NETWORK_VARIABLE, raising=False)
    assert node_addresses() == (None, "")


def test_they_name_a_range_and_a_network(monkeypatch):
    monkeypatch.setenv(NODE_PORTS_VARIABLE, " 20000 - 20099 ")
    monkeypatch.setenv(NODE_NETWORK_VARIABLE, "fd77::/64")
    assert node_addresses() == ((20000, 20099), "fd77::/64")


@pytest.mark.parametrize(
    ("ports", "network", "problems"),
    [
        ("many", "", ["TFOS_NODE_PORTS=many: is neither a port such as 8888 nor a range such as 20000-20099"]),
        ("9-1", "", ["TFOS_NODE_PORTS=9-1: ports go from 1 to 65535, the smaller one first"]),
        (
            "20000",
            "10.2.0.1/16",
            [
                "TFOS_NODE_PORTS=20000: each node of a host takes 2 ports; give a range",
                "TFOS_NODE_NETWORK=10.2.0.1/16: is no network such as 10.2.0.0/16",
            ],
        ),
    ],
)
def test_what_is_wrong_with_them_is_told_before_anything_starts(monkeypatch, ports, network, problems):
    monkeypatch.setenv(NODE_PORTS_VARIABLE, ports)
    monkeypatch.setenv(NODE_NETWORK_VARIABLE, network)
    with pytest.raises(ConfigError) as caught:
        node_addresses()
    assert caught.value.problems == problems
