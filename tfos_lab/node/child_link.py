"""The agent's handle on its child: the control socket, the output pipes, and the connection to the fork server."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.frames import FrameSocket, frame_pair
from tfos_lab.core.processes import kill_below, signal_group
from tfos_lab.core.roles import tf_config
from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerSpec
from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply, SpawnedReply
from tfos_lab.node.gpus import VISIBLE
from tfos_lab.node.logs import Pipe

# A grandchild may keep the pipes open forever; they are read for this long after the child has ended.
_PIPE_PATIENCE_S = 1.0


class ChildLink:
    """One child process, forked by a fork server on this agent's behalf."""

    def __init__(self, fork_server: ForkServerConnection, control: FrameSocket, pipes: list[Pipe]) -> None:
        self.fork_server = fork_server
        self.control = control
        self.pipes = pipes
        self.pid = 0
        self.stopping = False
        self._ended_at: float | None = None

    @classmethod
    def spawn(
        cls,
        spec: m.LaunchSpec,
        fork_server: ForkServerSpec,
        scratch: Path,
        port: socket.socket | None = None,
    ) -> ChildLink:
        """Ask the fork server for a child, which waits for its start message; it is forked as soon as that one is warm.

        The child gets ``port``, the socket that holds its port; it is closed here before the function can start.
        """
        control, child_control = frame_pair()
        pipes = [Pipe("stdout"), Pipe("stderr")]
        fds = [child_control.fileno(), *(pipe.write_fd for pipe in pipes), *([port.fileno()] if port else [])]
        try:
            connection = fork_server.spawn("child", fds=fds, environ=_environ(spec, scratch), cwd=spec.cwd)
        except BaseException:
            control.close()
            for pipe in pipes:
                pipe.close()
            raise
        finally:
            child_control.close()
            for pipe in pipes:
                pipe.close_write_end()
        if port is not None:
            port.close()
        return cls(connection, control, pipes)

    def start(self, spec: m.LaunchSpec, start: m.Start) -> None:
        """Have the child run its function."""
        self.send(msgspec.structs.replace(start, sys_path=spec.sys_path, env=_environ_of_start(spec, start)))

    def send(self, message: m.ToAgent) -> None:
        """Send a message without blocking; the child may be busy, stopped, or not forked yet."""
        with contextlib.suppress(OSError):  # it has ended
            self.control.post(m.encode(message))

    def flush(self) -> None:
        """Send more of what the child has not taken yet."""
        with contextlib.suppress(OSError):
            self.control.flush()

    def receive(self) -> list[m.FromAgent] | None:
        """Return the messages that have arrived, or None if the child has closed its end."""
        try:
            frames = self.control.available()
        except OSError:
            return None
        messages: list[m.FromAgent] = []
        for frame in frames:
            with contextlib.suppress(msgspec.DecodeError):  # user code wrote to a descriptor that is not its own
                messages.append(m.decode_from_agent(frame.data))
        return messages

    def receive_outcome(self) -> m.Outcome | None:
        """Handle the fork server's replies; return how the child ended, once it has."""
        try:
            replies = self.fork_server.replies()
        except OSError:
            self._ended_at = time.monotonic()
            if self.pid:  # nobody else is left who ends the child and what it has started
                kill_below(self.pid)
                self.signal(signal.SIGKILL)
            message = "the process it was forked from has ended"
            return m.Outcome(kind="exited", message=message, exit_code=-9, orphaned=True)
        for reply in replies:
            match reply:
                case SpawnedReply(pid=pid):
                    self.pid = pid
                case FailedReply(reason=reason):
                    self._ended_at = time.monotonic()
                    return m.Outcome(kind="raised", error="ImportError", message=reason)
                case ExitedReply(code=code):
                    self._ended_at = time.monotonic()
                    return m.Outcome(kind="stopped" if self.stopping else "exited", exit_code=code)
        return None

    def signal(self, sig: signal.Signals) -> None:
        """Signal the child's process group, if it has been forked."""
        if self.pid:
            signal_group(self.pid, sig)

    def pipes_overdue(self) -> bool:
        """Whether the pipes have been read for long enough after the child's end."""
        return self._ended_at is not None and time.monotonic() - self._ended_at > _PIPE_PATIENCE_S

    def close(self) -> None:
        """Kill the child's process group and close everything."""
        self.signal(signal.SIGKILL)
        self.fork_server.close()
        self.control.close()
        for pipe in self.pipes:
            pipe.close()


def _environ(spec: m.LaunchSpec, scratch: Path) -> dict[str, str]:
    """Return the environment that a child is forked with."""
    environ = {**spec.environ, **spec.extra_env, "TFOS_LAB_SCRATCH": str(scratch), "PYTHONUNBUFFERED": "1"}
    environ.pop("TF_CONFIG", None)
    if "PWD" in environ:
        environ["PWD"] = spec.cwd
    if spec.gpus is not None:
        if VISIBLE not in environ:
            # CUDA would number the fastest GPU first, nvidia-smi and Spark number them by their place.
            environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        environ[VISIBLE] = ",".join(spec.gpus) or "-1"
    # Several nodes may share a device, and a node may leave memory to other programs: none allocates all of it at once.
    environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    return environ


def _environ_of_start(spec: m.LaunchSpec, start: m.Start) -> dict[str, str]:
    """Return what the child adds to its environment when all nodes are known."""
    environ = {**spec.environ, **start.env, **spec.extra_env}
    added = {name: environ[name] for name in start.env}
    # gRPC must reach the nodes directly: through a proxy, they would wait for each other forever.
    hosts = {address.rpartition(":")[0].strip("[]") for tasks in start.cluster_spec.values() for address in tasks}
    already = environ.get("no_grpc_proxy") or environ.get("no_proxy") or ""
    added["no_grpc_proxy"] = ",".join([*sorted(hosts), *([already] if already else [])])
    if sum(len(tasks) for tasks in start.cluster_spec.values()) > 1:
        added["TF_CONFIG"] = tf_config(start.cluster_spec, start.job_name, start.task_index)
    return added
