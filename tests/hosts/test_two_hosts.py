"""What every user does, on two hosts: one resolves its own name to 127.0.1.1, the other is on a second network, too."""

from __future__ import annotations

import socket

from tests.hosts.host import HostPlan

HOSTS = (HostPlan(own_name_is_loopback=True), HostPlan(second_interface=True))


def tell(args, ctx):
    return {"host": socket.gethostname(), "cluster_spec": {job: list(at) for job, at in ctx.cluster_spec.items()}}


def test_nodes_have_addresses_that_peers_on_other_hosts_reach(run, rig):
    cluster = run(tell, cluster_size=4)
    told = dict(cluster.wait())
    assert sorted(said["host"] for said in told.values()) == ["h1", "h1", "h2", "h2"]
    for node, said in told.items():
        for addresses in said["cluster_spec"].values():
            hosts = {address.rpartition(":")[0] for address in addresses}
            assert hosts <= {host.address for host in rig.hosts}, node
