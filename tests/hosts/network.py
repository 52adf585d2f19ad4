"""The network of a rig: bridges, addresses, and a wire to each host. Needs root, and takes what no other rig has."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MAX_RIGS = 200


def run(*command: str) -> str:
    """Run a command; return its output, or raise `RuntimeError` with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Network:
    """One rig's bridges: the first reaches the driver, the second joins hosts only.

    ``number`` tells the rigs of a machine apart: it is part of each name and address.
    """

    number: int
    ipv6: bool

    @property
    def bridge(self) -> str:
        """The bridge on which the driver has an address."""
        return f"tfosb{self.number}"

    @property
    def second_bridge(self) -> str:
        """The bridge that the driver is not on."""
        return f"tfosc{self.number}"

    @property
    def driver(self) -> str:
        """The driver's address."""
        return self.address(0)

    @property
    def second_network(self) -> str:
        """The network of the second bridge, as options name it."""
        return f"10.78.{self.number}.0/24"

    @property
    def prefix(self) -> int:
        """The length of the first network's prefix."""
        return 64 if self.ipv6 else 24

    def address(self, host: int) -> str:
        """Return a host's address on the first network; the driver is host 0."""
        return f"fd77:0:0:{self.number:x}::{host + 1:x}" if self.ipv6 else f"10.77.{self.number}.{host + 1}"

    def second_address(self, host: int) -> str:
        """Return a host's address on the second network."""
        return f"10.78.{self.number}.{host + 1}"

    def namespace(self, host: int) -> str:
        """Return the name of a host's network namespace, which says whose it is."""
        return f"tfos-{os.getpid()}-{self.number}-h{host}"


@contextlib.contextmanager
def network(*, ipv6: bool) -> Iterator[Network]:
    """Make the bridges of a rig; they go with the block."""
    _remove_what_killed_processes_left()
    with ExitStack() as stack:
        found = _take_number(stack, ipv6=ipv6)
        run("ip", "link", "add", found.second_bridge, "type", "bridge")
        stack.callback(_quietly, "ip", "link", "del", found.second_bridge)
        for bridge in (found.bridge, found.second_bridge):
            run("ip", "link", "set", bridge, "up", "alias", f"tfos {os.getpid()}")
        _add_address(found.driver, found, "ip", found.bridge)
        yield found


def left(pid: int) -> list[str]:
    """Return the bridges and namespaces of a process's rigs."""
    bridges = [link["ifname"] for link in _links() if link.get("ifalias") == f"tfos {pid}"]
    return bridges + [name for name in _namespaces() if name.startswith(f"tfos-{pid}-")]


def _links() -> list[dict[str, Any]]:
    return list(json.loads(run("ip", "-json", "link", "show", "type", "bridge") or "[]"))


def _namespaces() -> list[str]:
    return [entry["name"] for entry in json.loads(run("ip", "-json", "netns") or "[]")]


def _remove_what_killed_processes_left() -> None:
    owners = {alias.split()[1] for link in _links() if (alias := link.get("ifalias", "")).startswith("tfos ")}
    owners |= {name.split("-")[1] for name in _namespaces() if name.startswith("tfos-")}
    for pid in owners:
        for name in left(int(pid)) if not Path(f"/proc/{pid}").exists() else ():
            _quietly("ip", *(("netns",) if name.startswith("tfos-") else ("link",)), "del", name)


def _take_number(stack: ExitStack, *, ipv6: bool) -> Network:
    # Whoever makes the bridge has the number: this works between processes.
    for number in range(1, _MAX_RIGS):
        found = Network(number, ipv6)
        with contextlib.suppress(RuntimeError):
            run("ip", "link", "add", found.bridge, "type", "bridge")
            stack.callback(_quietly, "ip", "link", "del", found.bridge)
            return found
    raise RuntimeError(f"{_MAX_RIGS} rigs are there already (ip link shows bridges tfosb...)")


def _quietly(*command: str) -> None:
    with contextlib.suppress(RuntimeError):
        run(*command)


def _add_address(address: str, found: Network, command: str, device: str, *inside: str) -> None:
    options = ("nodad",) if found.ipv6 else ()
    run(command, *inside, "addr", "add", f"{address}/{found.prefix}", "dev", device, *options)


@dataclass(frozen=True)
class Wire:
    """The cable from the first bridge to a host."""

    device: str

    @contextlib.contextmanager
    def cut(self) -> Iterator[None]:
        """For the length of the block, lose what is sent in both directions: programs are not told, as of a cable."""
        run("ip", "link", "set", self.device, "down")
        try:
            yield
        finally:
            run("ip", "link", "set", self.device, "up")


@contextlib.contextmanager
def wired_namespace(found: Network, host: int, *, second_interface: bool) -> Iterator[Wire]:
    """Make a host's network namespace and its wire; both go with the block."""
    namespace, cable = found.namespace(host), f"tfost{found.number}h{host}"
    with ExitStack() as stack:
        run("ip", "netns", "add", namespace)
        stack.callback(_quietly, "ip", "netns", "del", namespace)
        run("ip", "link", "add", cable, "type", "veth", "peer", "name", "e0", "netns", namespace)
        run("ip", "link", "set", cable, "master", found.bridge, "up")
        inside = ("-n", namespace)
        _add_address(found.address(host), found, "ip", "e0", *inside)
        for device in ("lo", "e0"):
            run("ip", *inside, "link", "set", device, "up")
        run("ip", *inside, *(("-6",) if found.ipv6 else ()), "route", "add", "default", "via", found.driver)
        if second_interface:
            _add_second_interface(found, host)
        yield Wire(cable)


def _add_second_interface(found: Network, host: int) -> None:
    namespace, peer = found.namespace(host), f"tfosv{found.number}h{host}"
    run("ip", "link", "add", peer, "type", "veth", "peer", "name", "e1", "netns", namespace)
    run("ip", "link", "set", peer, "master", found.second_bridge, "up")
    run("ip", "-n", namespace, "addr", "add", f"{found.second_address(host)}/24", "dev", "e1")
    run("ip", "-n", namespace, "link", "set", "e1", "up")


def problem() -> str:
    """Return why this machine can have no rig, or ""."""
    missing = [tool for tool in ("ip", "nft", "unshare", "nsenter", "mount") if shutil.which(tool) is None]
    if missing:
        return f"the hosts' rig needs {', '.join(missing)} (apt-get install iproute2 nftables util-linux)"
    try:
        with network(ipv6=False) as found, wired_namespace(found, 1, second_interface=False):
            run("unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "true")
    except RuntimeError as error:
        return f"the hosts' rig needs root, and namespaces that can be made: {error}"
    return ""
