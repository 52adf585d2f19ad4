"""`tfos_lab.node.server`: this node's TensorFlow server, and what its ``join`` means."""

from __future__ import annotations

import socket

import pytest

from tfos_lab.errors import ConfigError
from tfos_lab.node.invoke import NodeServed, is_consequence, outcome_of
from tfos_lab.node.server import start_server


@pytest.fixture
def cluster_spec():
    """One ps and one worker, at ports that are bound as an agent binds them."""
    sockets = [socket.socket() for _ in range(2)]
    for one in sockets:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(("127.0.0.1", 0))
    ps, worker = (f"127.0.0.1:{one.getsockname()[1]}" for one in sockets)
    yield {"ps": [ps], "evaluator": ["elsewhere:1"], "worker": [worker]}
    for one in sockets:
        one.close()


@pytest.mark.tensorflow
def test_a_node_has_one_server_at_its_own_address_and_its_join_serves_to_the_end(cluster_spec):
    served = []
    server = start_server(cluster_spec, "ps", 0, lambda: served.append(True))
    assert server.target == f"grpc://{cluster_spec['ps'][0]}"
    assert [job.name for job in server.server_def.cluster.job] == ["ps", "worker"]
    with pytest.raises(NodeServed):
        server.join()
    assert served == [True]
    assert outcome_of(server.join, None, None).kind == "returned"
    with pytest.raises(
        ConfigError, match=r"ctx\.start_server\(\) on ps:0: TensorFlow could not serve at 127.* one server"
    ):
        start_server(cluster_spec, "ps", 0, lambda: None)


@pytest.mark.tensorflow
def test_an_evaluator_has_no_server(cluster_spec):
    with pytest.raises(ConfigError, match=r"on evaluator:0: TensorFlow's cluster has no such node; it works beside"):
        start_server(cluster_spec, "evaluator", 0, lambda: None)


def test_what_a_coordinator_raises_for_a_lost_parameter_server_is_a_consequence():
    message = "Failed to connect to remote target /job:ps/replica:0/task:0: connection refused"
    assert is_consequence("PSUnavailableError", message)
