"""The rig itself: hosts share nothing but the installation, wires do what they are told, and nothing stays behind."""

from __future__ import annotations

import os
import socket
import time

import pytest

from tests.hosts.host import HostPlan, running_host
from tests.hosts.network import left, network

pytestmark = pytest.mark.usefixtures("_possible")


@pytest.fixture
def two_hosts(tmp_path):
    with (
        network(ipv6=False) as found,
        running_host(found, 1, HostPlan(own_name_is_loopback=True), tmp_path) as first,
        running_host(found, 2, HostPlan(), tmp_path) as second,
    ):
        yield first, second


def test_hosts_share_nothing_but_the_installation(two_hosts, tmp_path):
    first, second = two_hosts
    first.run("touch", "/tmp/here", "/dev/shm/here")
    assert "here" not in second.run("ls", "/tmp", "/dev/shm")
    assert not (tmp_path / "here").exists()
    assert first.run("hostname").strip() == "h1"
    assert first.run("getent", "hosts", "h1").split()[0] == "127.0.1.1"
    assert second.run("getent", "hosts", "h2").split()[0] == second.address
    with pytest.raises(RuntimeError, match="Read-only file system"):
        first.run("touch", __file__)


def seconds_to_be_refused(address):
    """Return how long a connection takes to a port where nobody listens."""
    started = time.monotonic()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((address, 9), timeout=20)
    return time.monotonic() - started


def test_a_wire_is_cut_and_restored_and_delays(two_hosts):
    first, _ = two_hosts
    seconds_to_be_refused(first.address)
    with first.wire.both_ways(delay_s=0.1):
        assert seconds_to_be_refused(first.address) >= 0.2
    with first.wire.one_way(from_host={"cut": True}), pytest.raises(TimeoutError):
        socket.create_connection((first.address, 9), timeout=0.5)
    seconds_to_be_refused(first.address)


def test_nothing_of_a_rig_stays_behind_after_a_failure(tmp_path):
    hosts = []

    def fail():
        with network(ipv6=True) as found, running_host(found, 1, HostPlan(second_interface=True), tmp_path) as host:
            hosts.append(host)
            assert len(left(os.getpid())) == 3
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert left(os.getpid()) == []
    with pytest.raises(RuntimeError):
        hosts[0].run("true")
