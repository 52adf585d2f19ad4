"""What every user does, on two hosts with two networks. One resolves its own name to 127.0.1.1, as Debian has it."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from tests.hosts.host import HostPlan, firewall
from tfos_lab.core.node_addresses import NODE_NETWORK_VARIABLE, NODE_PORTS_VARIABLE
from tfos_lab.errors import NodeFailed

HOSTS = (HostPlan(own_name_is_loopback=True, second_interface=True), HostPlan(second_interface=True))


# ---- what nodes do --------------------------------------------------------------------------------------------------


def meet(args, ctx):
    """Have every node connect to every other at its address in the cluster spec, as TensorFlow's servers do."""
    own = ctx.cluster_spec[ctx.job_name][ctx.task_index]
    peers = [at for addresses in ctx.cluster_spec.values() for at in addresses if at != own]
    with ctx._take_port() as listener:
        listener.listen()
        met = threading.Thread(target=lambda: [listener.accept()[0].close() for _ in peers])
        met.start()
        for peer in peers:
            connect(peer)
        met.join(30)
    return {"host": socket.gethostname(), "at": own, "met": 0 if met.is_alive() else len(peers)}


def connect(address):
    """Connect as soon as somebody listens there."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 30
    while True:
        try:
            return socket.create_connection((host.strip("[]"), int(port)), timeout=20).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def take_all(args, ctx):
    rows = [x for batch in ctx.dataset(100) for x in batch["x"].tolist()]
    return {"host": socket.gethostname(), "rows": rows}


def test_nodes_have_addresses_that_peers_on_other_hosts_reach(run, rig):
    told = dict(run(meet, cluster_size=4).wait())
    assert sorted(said["host"] for said in told.values()) == ["h1", "h1", "h2", "h2"]
    assert {said["met"] for said in told.values()} == {3}
    addresses = {host.name: host.address for host in rig.hosts}
    assert {said["at"].rpartition(":")[0] == addresses[said["host"]] for said in told.values()} == {True}


def test_nodes_stay_within_the_ports_that_a_firewall_lets_through(run, rig, session, monkeypatch):
    monkeypatch.setenv(NODE_PORTS_VARIABLE, "20000-20019")
    with firewall(*rig.hosts, ports="20000-20019"):
        told = dict(run(meet, cluster_size=4).wait())
    assert {said["met"] for said in told.values()} == {3}
    assert {20000 <= int(said["at"].rpartition(":")[2]) < 20020 for said in told.values()} == {True}


def test_nodes_meet_on_the_network_that_they_are_told(run, rig, monkeypatch):
    first, second = rig.hosts
    monkeypatch.setenv(NODE_NETWORK_VARIABLE, rig.network.second_network)
    with first.wire.to_the_driver_only(), second.wire.to_the_driver_only():
        told = dict(run(meet, cluster_size=4).wait())
    assert {said["met"] for said in told.values()} == {3}


def test_a_host_that_is_not_on_the_nodes_network_is_named(run, monkeypatch):
    monkeypatch.setenv(NODE_NETWORK_VARIABLE, "10.99.0.0/16")
    with pytest.raises(NodeFailed, match=r"has no address in TFOS_NODE_NETWORK=10\.99\.0\.0/16: h[12] reaches"):
        run(meet, cluster_size=4).wait()


def test_a_range_without_enough_ports_is_told_with_its_host(run, monkeypatch):
    monkeypatch.setenv(NODE_PORTS_VARIABLE, "20000-20002")
    with pytest.raises(NodeFailed, match=r"TFOS_NODE_PORTS=20000-20002 is free on h[12]; each node of a host takes 2"):
        run(meet, cluster_size=4).wait()
