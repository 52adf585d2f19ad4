"""One host of a rig: a network, mount, host-name and process namespace, in which everything of it runs."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.hosts.network import Network, Wire, run, wired_namespace
from tests.support.daemon import Daemon
from tests.support.spark_home import QUICK_JVM, spark_environment, spark_home

ROOT = Path(__file__).parents[2]
CORES = 2
_START_TIMEOUT_S = 300
# What a host has of its own, empty; all else is read-only and everybody's.
_OWN_FOLDERS = ("/tmp", "/var/tmp", "/dev/shm", "/run")
# The checkout may be in a folder that gets hidden: it is kept aside meanwhile.
_SET_UP = """
set -e
hostname {name}
mount --make-rprivate /
mount --bind {root} {root}
mount --bind {root} /mnt
mount --bind {shared} /media
for folder in {folders}; do mount -t tmpfs -o mode=1777,size={size} none $folder; done
mkdir -p {root}
mount --move /mnt {root}
mkdir -p {shared}
mount --move /media {shared}
mount -o remount,bind,ro {root}
mount -o remount,bind,ro / || true
ip link set lo up
mkdir /tmp/home
printf '%s' {hosts} >/tmp/hosts
mount --bind /tmp/hosts /etc/hosts
: >/tmp/resolv.conf
mount --bind /tmp/resolv.conf /etc/resolv.conf
echo ready
sleep infinity &
wait
"""


@dataclass(frozen=True, kw_only=True)
class HostPlan:
    """What is special about a host.

    With ``own_name_is_loopback``, its name resolves to 127.0.1.1 there, as Debian's installer has it; ``disk`` is the
    size of its temporary folders.
    """

    own_name_is_loopback: bool = False
    second_interface: bool = False
    disk: str = "2g"


@dataclass(frozen=True)
class Host:
    """A host that runs; ``address`` is that on the first network, ``pid`` its first process as seen from outside."""

    name: str
    address: str
    namespace: str
    pid: int
    wire: Wire

    def command(self, *command: str) -> list[str]:
        """Return the command that runs another one on this host."""
        return ["nsenter", "--target", str(self.pid), "--net", "--mount", "--uts", "--pid", "--wd=/tmp", *command]

    def run(self, *command: str) -> str:
        """Run a command on this host; return its output."""
        return run(*self.command(*command))

    def processes(self) -> list[str]:
        """Return the names of this host's processes, such as ``"tfos worker:0"``."""
        pids = run("ip", "netns", "pids", self.namespace).split()
        return sorted(name for pid in pids if (name := _name_of(pid)))

    def nodes(self) -> list[str]:
        """Return the names of processes of nodes: agents and children."""
        return [name for name in self.processes() if ":" in name and name.startswith("tfos ")]


def _name_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


@contextlib.contextmanager
def running_host(found: Network, number: int, plan: HostPlan, folder: Path) -> Iterator[Host]:
    """Make a host; it goes with the block, and everything that runs there.

    All hosts and the driver have the folder ``shared`` in ``folder``, as a file server would give it to them.
    """
    name, shared = f"h{number}", folder / "shared"
    shared.mkdir(exist_ok=True)
    with ExitStack() as stack:
        wire = stack.enter_context(wired_namespace(found, number, second_interface=plan.second_interface))
        namespace = found.namespace(number)
        script = _SET_UP.format(
            name=name,
            root=shlex.quote(str(ROOT)),
            shared=shlex.quote(str(shared)),
            folders=" ".join(_OWN_FOLDERS),
            size=plan.disk,
            hosts=shlex.quote(_hosts_file(found, number, plan)),
        )
        # The namespace's first process is killed when `unshare` ends, and all others with it. It ignores SIGTERM, by
        # which daemons end with a test run that is killed.
        apart = ("unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc")
        command = ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec", namespace, *apart, "bash", "-c", script]
        first = stack.enter_context(Daemon(f"host {name}", command, log=folder / f"{name}.log"))
        first.wait_for("^ready", timeout_s=_START_TIMEOUT_S)
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
        yield Host(name, found.address(number), namespace, int(children[0]), wire)


def _hosts_file(found: Network, number: int, plan: HostPlan) -> str:
    own = "127.0.1.1" if plan.own_name_is_loopback else found.address(number)
    local = "::1 localhost" if found.ipv6 else "127.0.0.1 localhost"
    return f"{local}\n{own} h{number}\n"


# ---- a firewall -----------------------------------------------------------------------------------------------------

#: Ports of Spark's worker and executors on hosts with a firewall.
WORKER_PORT = 7078
EXECUTOR_PORTS = "7100-7115"
_RULES = """
table inet hosts {{
  chain incoming {{
    type filter hook input priority 0; policy drop;
    iif lo accept
    iifname "e1" accept
    ct state established,related accept
    meta l4proto {{ icmp, icmpv6 }} accept
    tcp dport {{ {worker}, {executors}, {ports} }} accept
  }}
}}
"""


@contextlib.contextmanager
def firewall(*hosts: Host, ports: str) -> Iterator[None]:
    """For the length of the block, let only connections to some ports into hosts, such as 20000-20099, and Spark's.

    The second network has no firewall.
    """
    rules = _RULES.format(worker=WORKER_PORT, executors=EXECUTOR_PORTS, ports=ports)
    try:
        for host in hosts:
            subprocess.run(host.command("nft", "-f", "-"), input=rules, text=True, check=True, capture_output=True)
        yield
    finally:
        for host in hosts:
            with contextlib.suppress(RuntimeError):
                host.run("nft", "delete", "table", "inet", "hosts")


# ---- Spark's worker -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def spark_worker(
    host: Host, plan: HostPlan, master_url: str, folder: Path, *, ipv6: bool, options: Mapping[str, str]
) -> Iterator[Daemon]:
    """Run a worker of Spark on a host; yields before it has registered."""
    environment = host_environment(ipv6=ipv6) | {
        "SPARK_WORKER_OPTS": " ".join(f"-D{name}={value}" for name, value in options.items())
    }
    command = [
        *(str(spark_home() / "bin" / "spark-class"), "org.apache.spark.deploy.worker.Worker"),
        *(
            "--port",
            str(WORKER_PORT),
            "--webui-port",
            "0",
            "--cores",
            str(CORES),
            "--memory",
            "2g",
            "--work-dir",
            "/tmp/work",
        ),
        *(() if plan.own_name_is_loopback else ("--host", f"[{host.address}]" if ipv6 else host.address)),
        master_url,
    ]
    log = folder / f"{host.name}-worker.log"
    with Daemon(f"the worker on {host.name}", host.command(*command), log=log, env=environment) as worker:
        yield worker


def host_environment(*, ipv6: bool) -> dict[str, str]:
    """Return the environment of a host's processes."""
    found = spark_environment(Path("/tmp/local")) | {
        "HOME": "/tmp/home",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JVM} {ipv6_options(ipv6=ipv6)}".strip(),
    }
    # A host finds out by itself which address it has.
    for name in ("SPARK_LOCAL_IP", "TMPDIR", "XDG_RUNTIME_DIR"):
        found.pop(name, None)
    if ipv6:
        found["SPARK_PREFER_IPV6"] = "true"
    return found


def ipv6_options(*, ipv6: bool) -> str:
    """Return the options with which a JVM uses IPv6 addresses."""
    return "-Djava.net.preferIPv6Addresses=true" if ipv6 else ""
