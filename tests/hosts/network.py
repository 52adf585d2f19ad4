"""The network of a rig: bridges, addresses, and a wire to each host. Needs root, and takes what no other rig has."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.hosts.wire import Direction

_MAX_RIGS = 200
_WIRE = Path(__file__).with_name("wire.py")


def run(*command: str) -> str:
    """Run a command; return its output, or raise `RuntimeError` with what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Network:
    """One rig's bridges: the first reaches the driver, the second joins hosts only.

    Parameters
    ----------
    number : int
        Tells the rigs of a machine apart; part of each name and address.
    ipv6 : bool
        Whether hosts have IPv6 addresses only.
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


class Wire:
    """The cable from the first bridge to a host."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def set(self, *, to_host: dict[str, Any] | None = None, from_host: dict[str, Any] | None = None) -> None:
        """Say what happens to frames from now on: fields of `tests.hosts.wire.Direction` for each way."""
        ways = {"to_host": Direction(**(to_host or {})), "from_host": Direction(**(from_host or {}))}
        self._say(json.dumps({name: asdict(way) for name, way in ways.items()}))

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"

    @contextlib.contextmanager
    def both_ways(self, **fields: Any) -> Iterator[None]:
        """For the length of the block, do the same to both directions."""
        with self.one_way(to_host=fields, from_host=fields):
            yield

    @contextlib.contextmanager
    def one_way(self, **ways: dict[str, Any]) -> Iterator[None]:
        """For the length of the block, do something to one direction, or to each."""
        self.set(**ways)
        try:
            yield
        finally:
            self.set()


@contextlib.contextmanager
def wired_namespace(found: Network, host: int, *, second_interface: bool) -> Iterator[Wire]:
    """Make a host's network namespace and its wire; both go with the block."""
    namespace, tap = found.namespace(host), f"tfost{found.number}h{host}"
    with ExitStack() as stack:
        run("ip", "netns", "add", namespace)
        stack.callback(_quietly, "ip", "netns", "del", namespace)
        wire = stack.enter_context(_wire(tap, namespace))
        run("ip", "link", "set", tap, "master", found.bridge, "up")
        inside = ("-n", namespace)
        _add_address(found.address(host), found, "ip", "e0", *inside)
        for device in ("lo", "e0"):
            run("ip", *inside, "link", "set", device, "up")
        run("ip", *inside, *(("-6",) if found.ipv6 else ()), "route", "add", "default", "via", found.driver)
        if second_interface:
            _add_second_interface(found, host)
        yield wire


def _add_second_interface(found: Network, host: int) -> None:
    namespace, peer = found.namespace(host), f"tfosv{found.number}h{host}"
    run("ip", "link", "add", peer, "type", "veth", "peer", "name", "e1", "netns", namespace)
    run("ip", "link", "set", peer, "master", found.second_bridge, "up")
    run("ip", "-n", namespace, "addr", "add", f"{found.second_address(host)}/24", "dev", "e1")
    run("ip", "-n", namespace, "link", "set", "e1", "up")


@contextlib.contextmanager
def _wire(tap: str, namespace: str) -> Iterator[Wire]:
    # With pipes to this process: the wire ends when this process does.
    process = subprocess.Popen(
        [sys.executable, str(_WIRE), tap, namespace, "e0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the wire could not be made; it needs /dev/net/tun")
        yield Wire(process)
    finally:
        process.kill()
        process.communicate()


def problem() -> str:
    """Return why this machine can have no rig, or ""."""
    missing = [tool for tool in ("ip", "nft", "unshare", "nsenter", "mount") if shutil.which(tool) is None]
    if missing:
        return f"the hosts' rig needs {', '.join(missing)} (apt-get install iproute2 nftables util-linux)"
    if not Path("/dev/net/tun").exists():
        return "the hosts' rig needs /dev/net/tun"
    try:
        with network(ipv6=False) as found, wired_namespace(found, 1, second_interface=False):
            run("unshare", "--mount", "--uts", "--pid", "--fork", "--mount-proc", "true")
    except RuntimeError as error:
        return f"the hosts' rig needs root, and namespaces that can be made: {error}"
    return ""
