"""Whether a node reaches its peers, before TensorFlow waits for them in silence: firewalls, and networks apart."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from tfos_lab.core.node_addresses import NODE_NETWORK_VARIABLE, NODE_PORTS_VARIABLE
from tfos_lab.core.roles import tf_cluster_spec
from tfos_lab.errors import ConfigError

# Longer than a link may be down, and longer than a lost peer goes untold.
_PATIENCE_S = 20.0
_AGAIN_S = 0.5
# In a large cluster a node asks those that follow it; all of them together ask everybody.
_MAX_ASKED = 16
_THIS_HOST = ("127.0.0.1", "localhost", "[::1]")


def require_peers(cluster_spec: Mapping[str, list[str]], job_name: str, task_index: int) -> None:
    """Raise `ConfigError` if a node of TensorFlow's cluster cannot be reached from here.

    Whoever refuses a connection is reached: its TensorFlow has not begun to listen.
    """
    at = {
        f"{job}:{index}": address
        for job, addresses in tf_cluster_spec(cluster_spec).items()
        for index, address in enumerate(addresses)
    }
    node, names = f"{job_name}:{task_index}", list(at)
    own = names.index(node) if node in at else 0
    others = [name for name in (*names[own + 1 :], *names[:own]) if name != node][:_MAX_ASKED]
    asked = [name for name in others if at[name].rpartition(":")[0] not in _THIS_HOST]
    if not asked:
        return
    deadline = time.monotonic() + _PATIENCE_S
    with ThreadPoolExecutor(len(asked), thread_name_prefix="tfos-peers") as pool:
        reasons = dict(zip(asked, pool.map(lambda name: _why_not(at[name], deadline), asked), strict=True))
    missed = [f"{name} at {at[name]} ({reason})" for name, reason in reasons.items() if reason]
    if missed:
        raise ConfigError([_problem(node, missed)])


def _why_not(address: str, deadline: float) -> str:
    """Return why an address cannot be reached until the deadline; "" if it can."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), max(0.1, deadline - time.monotonic())).close()
        except ConnectionRefusedError:
            return ""
        except OSError as error:
            if time.monotonic() + _AGAIN_S > deadline:
                return error.strerror or str(error)
            time.sleep(_AGAIN_S)
        else:
            return ""


def _problem(node: str, missed: list[str]) -> str:
    return (
        f"{node} on {socket.gethostname()} cannot connect to {', '.join(missed)}. Open the nodes' ports between all "
        f"hosts of the cluster ({NODE_PORTS_VARIABLE}=20000-20099 fixes a range), or name the network on which they "
        f"reach one another ({NODE_NETWORK_VARIABLE}=10.2.0.0/16)"
    )
