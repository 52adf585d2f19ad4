"""The agent's link to its child: the control socket, the output pipes, and the fork server that forked it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tfos_lab import messages as m
from tfos_lab.core.processes import signal_group
from tfos_lab.core.roles import tf_cluster_spec
from tfos_lab.node.forkserver import client
from tfos_lab.node.forkserver.requests import ChildSpec, ExitedReply, FailedReply, SpawnedReply, SpawnRequest
from tfos_lab.node.logs.spool import Pipe
from tfos_lab.transport.frames import ConnectionClosed, FrameSocket, frame_pair

# A grandchild may hold the pipes open for ever; after the child's end they are read this long.
_PIPE_PATIENCE_S = 1.0


class ChildLink:
    """One child process, forked by a fork server on this agent's behalf."""

    def __init__(self, fork_server: FrameSocket, control: FrameSocket, pipes: list[Pipe]) -> None:
        self.fork_server = fork_server
        self.control = control
        self.pipes = pipes
        self.pid = 0
        self.announced = False
        self.stopping = False
        self._pending_signal: signal.Signals | None = None
        self._gone_at: float | None = None

    @classmethod
    def spawn(
        cls,
        spec: m.LaunchSpec,
        start: m.Start,
        fork_server: tuple[str, str, dict[str, str], dict[str, str], int],
        scratch: Path,
    ) -> ChildLink:
        """Ask the fork server for a child that runs ``start``; it starts as soon as the fork server is warm."""
        frames = client.connect(*fork_server[:4])
        control, theirs = frame_pair()
        pipes = [Pipe("stdout"), Pipe("stderr")]
        fds = [theirs.fileno(), *(pipe.write_fd for pipe in pipes)]
        body = msgspec.msgpack.encode(
            ChildSpec(
                node=spec.node,
                environ=_child_environ(spec, start, scratch),
                cwd=spec.cwd,
                sys_path=spec.sys_path,
            )
        )
        link = cls(frames, control, pipes)
        try:
            frames.send(msgspec.msgpack.encode(SpawnRequest("child", body, fork_server[4])), fds)
        finally:
            theirs.close()
            for pipe in pipes:
                pipe.close_write_end()
        link.send(start)
        return link

    def send(self, message: m.ToAgent) -> None:
        """Say something to the child, which may take it later: it may not have been forked, or be busy, or stopped."""
        with contextlib.suppress(ConnectionClosed, OSError):  # it has gone
            self.control.post(m.encode(message))

    def flush(self) -> None:
        """Say more of what the child has not taken yet."""
        with contextlib.suppress(ConnectionClosed, OSError):
            self.control.flush()

    def heard(self) -> tuple[list[bytes], bool]:
        """Return what the child said, and whether it can say more."""
        try:
            return [data for data, _ in self.control.available()], True
        except (ConnectionClosed, OSError):
            return [], False

    def fork_server_reply(self) -> m.Outcome | None:
        """Take in what the fork server said; return how the child ended, once it has."""
        try:
            replies = [client.reply_decoder.decode(data) for data, _ in self.fork_server.available()]
        except (ConnectionClosed, OSError):
            self._gone_at = time.monotonic()
            return m.Outcome(kind="exited", message="the process it was forked from has ended", exit_code=-9)
        for reply in replies:
            match reply:
                case SpawnedReply(pid=pid):
                    self.pid = pid
                    if self._pending_signal is not None:
                        self.signal(self._pending_signal)
                case FailedReply(reason=reason):
                    self._gone_at = time.monotonic()
                    return m.Outcome(kind="raised", error="ImportError", message=reason)
                case ExitedReply(code=code):
                    self._gone_at = time.monotonic()
                    return m.Outcome(kind="stopped" if self.stopping else "exited", exit_code=code)
        return None

    def signal(self, sig: signal.Signals) -> None:
        """Signal the child's whole process group, at once or as soon as it has been forked."""
        if self.pid:
            signal_group(self.pid, sig)
        else:
            self._pending_signal = sig

    def pipes_overdue(self) -> bool:
        """Whether the pipes have been read long enough after the child's end."""
        return self._gone_at is not None and time.monotonic() - self._gone_at > _PIPE_PATIENCE_S

    def close(self) -> None:
        """End the child's process group at once and close everything."""
        if self.pid:
            signal_group(self.pid, signal.SIGKILL)
        self.fork_server.close()
        self.control.close()
        for pipe in self.pipes:
            pipe.close()


def _child_environ(spec: m.LaunchSpec, start: m.Start, scratch: Path) -> dict[str, str]:
    environ = {**spec.environ, **start.env, **spec.extra_env}
    environ["TFOS_LAB_SCRATCH"] = str(scratch)
    environ["PYTHONUNBUFFERED"] = "1"
    environ["no_grpc_proxy"] = _without_proxy(environ, start.cluster_spec)
    if spec.gpus is not None:
        environ["CUDA_VISIBLE_DEVICES"] = ",".join(spec.gpus) or "-1"
    else:
        # Several nodes may share one device here: none may take all of its memory.
        environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    if sum(len(tasks) for tasks in start.cluster_spec.values()) > 1:
        environ["TF_CONFIG"] = _tf_config(start)
    else:
        environ.pop("TF_CONFIG", None)
    return environ


def _without_proxy(environ: Mapping[str, str], spec: Mapping[str, list[str]]) -> str:
    """Return the hosts that gRPC must reach without a proxy: through one, nodes would wait for one another for ever."""
    hosts = {address.rpartition(":")[0].strip("[]") for tasks in spec.values() for address in tasks}
    already = environ.get("no_grpc_proxy") or environ.get("no_proxy") or ""
    return ",".join([*sorted(hosts), *([already] if already else [])])


def _tf_config(start: m.Start) -> str:
    """Return TF_CONFIG as TensorFlow documents it; the evaluator is no part of the cluster that trains."""
    cluster = tf_cluster_spec(start.cluster_spec)
    task = {"type": start.job_name, "index": start.task_index}
    return msgspec.json.encode({"cluster": cluster, "task": task}).decode()


def inherited_socket(fd: int) -> FrameSocket:
    """Return the child's own end of the control socket."""
    return FrameSocket(socket.socket(fileno=os.dup(fd)))
