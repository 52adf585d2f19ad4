"""The doctor's checks of proxies, ports, and ways between machines."""

from __future__ import annotations

import re
import socket

import pytest

from tfos_lab.engine.doctor import network
from tfos_lab.node.host_facts import _why_unreachable


@pytest.fixture
def taken_port():
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_no_proxies_are_fine():
    assert network.check_proxies({}).found == "none"


@pytest.mark.parametrize("name", ["http_proxy", "HTTPS_PROXY", "all_proxy", "grpc_proxy"])
def test_a_proxy_that_also_holds_for_loopback_is_a_problem(name):
    finding = network.check_proxies({name: "http://proxy:3128", "no_proxy": "example.com,127.0.0.1"})
    assert (finding.ok, finding.found) == (
        False,
        f"{name} also holds for localhost: what this machine sends to itself goes to the proxy",
    )
    assert "export no_proxy=example.com,127.0.0.1,localhost NO_PROXY=example.com" in finding.advice


@pytest.mark.parametrize("exceptions", ["localhost,127.0.0.1", "*", " localhost , 127.0.0.0/8 "])
def test_a_proxy_for_others_only_is_fine(exceptions):
    assert network.check_proxies({"http_proxy": "http://proxy:3128", "NO_PROXY": exceptions}).ok


def test_any_port_will_do_unless_one_is_named(monkeypatch):
    monkeypatch.delenv("TFOS_SERVER_PORT", raising=False)
    assert network.check_ports().found == "any free one"


def test_a_port_that_somebody_has_is_a_problem(monkeypatch, taken_port):
    monkeypatch.setenv("TFOS_SERVER_PORT", str(taken_port))
    finding = network.check_ports()
    assert (finding.ok, finding.found) == (False, f"TFOS_SERVER_PORT={taken_port}: none is free")
    assert "a wider range" in finding.advice


def test_a_range_that_is_none_is_a_problem(monkeypatch):
    monkeypatch.setenv("TFOS_SERVER_PORT", "9999-9990")
    assert not network.check_ports().ok


def test_free_ports_are_counted(monkeypatch, taken_port):
    # Others may have some of them.
    ports = f"{taken_port}-{taken_port + 20}"
    monkeypatch.setenv("TFOS_SERVER_PORT", ports)
    found = re.fullmatch(rf"TFOS_SERVER_PORT={ports}, (\d+) of 21 free", network.check_ports().found)
    assert 1 <= int(found[1]) <= 20


@pytest.mark.leaves_nothing
def test_everybody_who_connects_reads_the_token(monkeypatch):
    monkeypatch.delenv("TFOS_SERVER_PORT", raising=False)
    with network.answering("127.0.0.1", "127.0.0.1") as callback:
        assert _why_unreachable(callback.host, callback.port, callback.token) == ""
        assert _why_unreachable(callback.host, callback.port, "x" * 32) == "another program answers there"
    assert _why_unreachable(callback.host, callback.port, callback.token) == "Connection refused"


def test_nothing_is_asked_of_executors_where_nobody_can_listen(monkeypatch, taken_port):
    monkeypatch.setenv("TFOS_SERVER_PORT", str(taken_port))
    with network.answering("127.0.0.1", "127.0.0.1") as callback:
        assert callback == network.Callback()


def test_a_master_that_cannot_be_reached_is_told_at_once(taken_port):
    assert network.check_master(f"spark://127.0.0.1:{taken_port}") is None
    assert network.check_master(f"spark://127.0.0.1:1,127.0.0.1:{taken_port}") is None, "one of two answers"
    assert network.check_master("yarn") is None
    finding = network.check_master("spark://127.0.0.1:1")
    assert finding.found == "spark://127.0.0.1:1: port 1 of 127.0.0.1 cannot be reached (Connection refused)"
    assert "no firewall blocks the port" in finding.advice


def test_addresses_of_api_servers_are_understood(taken_port):
    assert network.check_master(f"k8s://https://127.0.0.1:{taken_port}") is None
    assert network.check_master("k8s://https://127.0.0.1:1") is not None
