"""What the driver's environment says about the nodes' addresses on clusters of several hosts: ports, and the network.

Values are checked on the driver before anything starts, and travel to the agents in their `LaunchSpec`.
"""

from __future__ import annotations

import ipaddress
import os
import re

from tfos_lab.errors import ConfigError

#: Environment variable of the driver: the ports on which nodes may listen, such as 20000-20099.
NODE_PORTS_VARIABLE = "TFOS_NODE_PORTS"
#: Environment variable of the driver: the network on which nodes reach one another, such as 10.2.0.0/16.
NODE_NETWORK_VARIABLE = "TFOS_NODE_NETWORK"
#: How many ports a node needs: one for TensorFlow, one for rows from other hosts.
PORTS_PER_NODE = 2

_PORTS = re.compile(r"(?:(\d+)(?:\s*-\s*(\d+))?)?")
_LAST_PORT = 65_535


def ports_in(variable: str, example: str) -> range:
    """Return the ports that an environment variable names: one, or a range; an empty range if it is not set.

    Raises ConfigError if its value is neither.
    """
    text = os.environ.get(variable, "").strip()
    match = _PORTS.fullmatch(text)
    if match is None:
        raise ConfigError([f"{variable}={text}: is neither a port such as 8888 nor a range such as {example}"])
    first = int(match[1] or 0)
    ports = range(first, int(match[2] or first) + 1) if first else range(0)
    if first and (not ports or ports[-1] > _LAST_PORT):
        raise ConfigError([f"{variable}={text}: ports go from 1 to {_LAST_PORT}, the smaller one first"])
    return ports


def node_addresses() -> tuple[tuple[int, int] | None, str]:
    """Return the first and the last port for nodes, or None for any; and their network, or "" for any.

    Raises ConfigError with everything that is wrong with the two variables.
    """
    ports, problems = ports_in(NODE_PORTS_VARIABLE, "20000-20099"), []
    if 0 < len(ports) < PORTS_PER_NODE:
        text = os.environ[NODE_PORTS_VARIABLE].strip()
        problems.append(f"{NODE_PORTS_VARIABLE}={text}: each node of a host takes {PORTS_PER_NODE} ports; give a range")
    network = os.environ.get(NODE_NETWORK_VARIABLE, "").strip()
    try:
        ipaddress.ip_network(network or "::/0")
    except ValueError:
        problems.append(f"{NODE_NETWORK_VARIABLE}={network}: is no network such as 10.2.0.0/16")
    if problems:
        raise ConfigError(problems)
    return (ports[0], ports[-1]) if ports else None, network
