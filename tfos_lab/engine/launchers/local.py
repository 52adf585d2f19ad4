"""The `local` launcher: one process per node on this machine, with the same agents, messages and feeds as on Spark."""

from __future__ import annotations

import os
import selectors
import sys
import threading
from pathlib import Path

import msgspec

from tfos_lab.core.node_addresses import node_addresses
from tfos_lab.core.roles import NodeSpec, chief_of
from tfos_lab.engine.launchers.base import Launcher, LaunchPlan
from tfos_lab.engine.launchers.gpus import local_shares
from tfos_lab.errors import LaunchFailed
from tfos_lab.messages import LaunchSpec
from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerSpec
from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply
from tfos_lab.transport.frames import ConnectionClosed

# Variables that belong to the kernel alone.
_KERNEL_ONLY = ("JPY_", "JUPYTER", "PYSPARK_GATEWAY", "TF_CONFIG", "CLASSPATH")


def kernel_owner() -> str:
    """Return the owner of this process' fork servers."""
    return f"kernel-{os.getpid()}"


def kernel_environ() -> dict[str, str]:
    """Return the environment that a node on this machine inherits from the notebook, as it is now."""
    return {key: value for key, value in os.environ.items() if not key.startswith(_KERNEL_ONLY)}


def local_spec(plan: LaunchPlan, spec: NodeSpec, gpus_wanted: int | None, environ: dict[str, str]) -> LaunchSpec:
    """Return what the agent of a node on this machine needs: it ends when this process does."""
    spans_hosts = plan.traits.spans_hosts
    ports, network = node_addresses() if spans_hosts else (None, "")
    return LaunchSpec(
        cluster_id=plan.cluster_id,
        rank=spec.rank,
        node=spec.node,
        driver=plan.driver,
        owner=kernel_owner(),
        watched_pid=os.getpid(),
        executor="this machine",
        gpus_wanted=gpus_wanted,
        extra_env=dict(plan.config.env),
        environ=environ,
        cwd=str(Path.cwd()),
        sys_path=[path or str(Path.cwd()) for path in sys.path],
        stays=plan.chief_stays_here and _is_chief(spec, plan.node_specs),
        shared_dir=plan.shared_dir if spans_hosts else "",
        # Nodes elsewhere may not reach the address that this machine has for itself.
        host=plan.driver.host if spans_hosts else "",
        ports=ports,
        network=network,
    )


def _is_chief(spec: NodeSpec, node_specs: list[NodeSpec]) -> bool:
    """Whether a node is the chief; there is none here where parameter servers run on this machine, and no others."""
    return spec.role.trains and spec == chief_of(node_specs)


class LocalLauncher(Launcher):
    """Forks an agent per rank from this machine's plain fork server; an agent ends when its connection is closed."""

    def __init__(self, plan: LaunchPlan) -> None:
        super().__init__(plan)
        self._connections: dict[int, ForkServerConnection] = {}
        self._selector = selectors.DefaultSelector()
        self._closing = threading.Event()
        self._cancelled = False
        self._thread = threading.Thread(target=self._watch, name=f"tfos-ranks-{plan.cluster_id}", daemon=True)

    def launch(self) -> None:
        """Fork the agents; TensorFlow's fork server is warmed beside them."""
        shares = local_shares(self._plan.config, self._plan.node_specs)
        environ = kernel_environ()
        try:
            warm_local(environ, dict(self._plan.config.env))
            for spec, gpus_wanted in zip(self._plan.node_specs, shares, strict=True):
                if self._cancelled:
                    break
                self._fork_agent(spec, gpus_wanted, environ)
        except OSError as error:
            begun = f"{len(self._connections)} of {len(self._plan.node_specs)} nodes were on their way"
            raise LaunchFailed(reason=f"this machine could not start a node, when {begun}: {error}") from error
        finally:
            self._thread.start()  # it also closes the connections of those that were forked

    def _fork_agent(self, spec: NodeSpec, gpus_wanted: int | None, environ: dict[str, str]) -> None:
        launch = local_spec(self._plan, spec, gpus_wanted, environ)
        fork_server = ForkServerSpec.plain(kernel_owner(), environ, os.getpid())
        frames = fork_server.spawn("agent", msgspec.msgpack.encode(launch))
        self._connections[spec.rank] = frames
        self._selector.register(frames, selectors.EVENT_READ, spec.rank)

    def _watch(self) -> None:
        """Report agents that end before they have sent all they had."""
        while not self._closing.is_set() and self._selector.get_map():
            for key, _ in self._selector.select(timeout=0.2):
                self._receive(key.data, self._connections[key.data])
        for frames in self._connections.values():
            frames.close()
        self._selector.close()

    def _receive(self, rank: int, frames: ForkServerConnection) -> None:
        try:
            replies = frames.replies()
        except (ConnectionClosed, OSError):
            self._selector.unregister(frames)
            self._plan.lose(rank, "the process that its agent was forked from has ended")
            return
        for reply in replies:
            match reply:
                case FailedReply(reason=reason):
                    self._plan.fail(None, f"no agent could be started on this machine: {reason}")
                case ExitedReply(code=code):
                    self._selector.unregister(frames)
                    self._plan.lose(rank, f"its agent ended with code {code}")
                case _:
                    pass

    def cancel(self) -> None:
        """Fork no more agents."""
        self._cancelled = True

    def hint(self) -> str:
        """Name the file with the agents' own errors."""
        path = ForkServerSpec.plain(kernel_owner(), {}, os.getpid()).log_path
        return f"The log of the nodes' parent process is {path}"

    def close(self) -> None:
        """Close the connections; agents that are still there end with them."""
        self._closing.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(2.0)


def warm_local(environ: dict[str, str], extra_env: dict[str, str]) -> None:
    """Start this machine's two fork servers, without waiting for their imports."""
    ForkServerSpec.tensorflow(kernel_owner(), environ, os.getpid(), extra_env).warm()
    ForkServerSpec.plain(kernel_owner(), environ, os.getpid()).warm()
