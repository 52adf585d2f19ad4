"""The `local` launcher: one process per node on this machine, with the same agents, messages and feeds as on Spark."""

from __future__ import annotations

import logging
import os
import selectors
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tfos_lab.core.gpu_shares import EQUAL
from tfos_lab.core.launchers import THIS_MACHINE
from tfos_lab.core.roles import NodeSpec, chief_of
from tfos_lab.errors import LaunchFailed
from tfos_lab.launchers.base import Launcher
from tfos_lab.launchers.gpus import require_gpus, wanted_of
from tfos_lab.launchers.this_machine import kernel_environ, kernel_owner
from tfos_lab.node.driver_link import how_ended
from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerSpec
from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply
from tfos_lab.texts import format_count

# To close the connections takes milliseconds.
_RELEASE_S = 2.0

if TYPE_CHECKING:
    from tfos_lab.driver.head import Head

logger = logging.getLogger(__name__)


class LocalLauncher(Launcher):
    """Forks an agent per rank from this machine's plain fork server; an agent ends when its connection is closed."""

    def __init__(self, head: Head, node_specs: list[NodeSpec] | None = None) -> None:
        super().__init__(head, node_specs)
        self._connections: dict[int, ForkServerConnection] = {}
        _, self._fork_server = local_fork_servers(kernel_environ(), {}, self._cluster.history.add_note)
        self._selector = selectors.DefaultSelector()
        self._closing = threading.Event()
        self._cancelled = False
        self._thread = threading.Thread(target=self._watch, name=f"tfos-ranks-{self._cluster.id}", daemon=True)

    def launch(self) -> None:
        """Fork the agents; TensorFlow's fork server is warmed beside them."""
        wanted = [wanted_of(self._cluster.config, spec) for spec in self._node_specs]
        require_gpus(wanted)
        among = wanted.count(EQUAL)
        environ = kernel_environ()
        try:
            warm_local(environ, dict(self._cluster.config.env), self._cluster.history.add_note)
            for spec, gpus_wanted in zip(self._node_specs, wanted, strict=True):
                if self._cancelled:
                    break
                self._fork_agent(spec, environ, gpus_wanted, among)
        except OSError as error:
            begun = f"{len(self._connections)} of {format_count(len(self._node_specs), 'node')} were on the way"
            raise LaunchFailed(reason=f"this machine could not start a node, when {begun}: {error}") from error
        finally:
            self._thread.start()  # it also closes the connections of those that were forked

    def _fork_agent(self, spec: NodeSpec, environ: dict[str, str], gpus_wanted: int | None, gpus_among: int) -> None:
        """Fork the agent of a node, which ends when this process does."""
        cluster = self._cluster
        # There is no chief here where parameter servers run on this machine, and no others.
        is_chief = spec.role.trains and spec == chief_of(cluster.node_specs)
        launch = self._launch_spec(
            rank=spec.rank,
            node=spec.node,
            owner=kernel_owner(),
            watched_pid=os.getpid(),
            executor=THIS_MACHINE,
            gpus_wanted=gpus_wanted,
            gpus_among=gpus_among,
            environ=environ,
            cwd=str(Path.cwd()),
            sys_path=[path or str(Path.cwd()) for path in sys.path],
            stays=cluster.chief_stays_here and is_chief,
            # Nodes elsewhere may not reach the address that this machine has for itself.
            host=self._head.address.host if cluster.launcher.spans_hosts else "",
        )
        frames = self._fork_server.spawn("agent", msgspec.msgpack.encode(launch))
        self._connections[spec.rank] = frames
        self._selector.register(frames, selectors.EVENT_READ, spec.rank)

    def _watch(self) -> None:
        """Report agents that end before they have sent all they had."""
        while not self._closing.is_set() and self._selector.get_map():
            for key, _ in self._selector.select(timeout=0.2):
                self._receive(key.data, self._connections[key.data])
            # All of them wait for the same fork server.
            unanswered = (key.data for key in self._selector.get_map().values() if self._connections[key.data].asked_s)
            for rank in islice(unanswered, 1):
                self._fork_server.replace_if_stuck(self._connections[rank])
        for frames in self._connections.values():
            frames.close()
        self._selector.close()

    def _receive(self, rank: int, frames: ForkServerConnection) -> None:
        try:
            replies = frames.replies()
        except OSError:
            self._selector.unregister(frames)
            self._head.lose(rank, "the process that its agent was forked from has ended")
            return
        for reply in replies:
            match reply:
                case FailedReply(reason=reason):
                    self._head.fail_launch(None, f"no agent could be started on this machine: {reason}")
                case ExitedReply(code=code):
                    self._selector.unregister(frames)
                    self._head.lose(rank, how_ended(code))
                case _:
                    pass

    def cancel(self) -> None:
        """Fork no more agents."""
        self._cancelled = True

    def hint(self) -> str:
        """Name the file with the agents' own errors."""
        return f"The log of the nodes' parent process is {self._fork_server.log_path}"

    def close(self) -> None:
        """Close the connections; agents that are still there end with them."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_RELEASE_S)


def warm_local(
    environ: dict[str, str], extra_env: dict[str, str], tell: Callable[[str], None] = logger.warning
) -> None:
    """Start this machine's two fork servers, without waiting for their imports; see `local_fork_servers`."""
    for fork_server in local_fork_servers(environ, extra_env, tell):
        fork_server.warm()


def local_fork_servers(
    environ: dict[str, str], extra_env: dict[str, str], tell: Callable[[str], None] = logger.warning
) -> tuple[ForkServerSpec, ForkServerSpec]:
    """Return TensorFlow's fork server, for nodes with additional variables, and the plain one, of this kernel or user.

    ``tell`` is called with a sentence where one has to be replaced.
    """
    owner, pid = kernel_owner(), os.getpid()
    tensorflow = ForkServerSpec.tensorflow(owner, environ, pid, extra_env)
    return replace(tensorflow, tell=tell), replace(ForkServerSpec.plain(owner, environ, pid), tell=tell)
