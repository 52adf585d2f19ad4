"""Supervises an agent's child: starts it, passes messages and output on, stops it, and reports once how it ended."""

from __future__ import annotations

import contextlib
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.frames import FrameSocket, frame_pair
from tfos_lab.core.poll_loop import PollLoop
from tfos_lab.core.processes import kill_below, signal_group
from tfos_lab.core.roles import role_of, tf_config
from tfos_lab.core.states import NodeState
from tfos_lab.node.forkserver.client import ForkServerConnection, ForkServerSpec
from tfos_lab.node.forkserver.requests import ExitedReply, FailedReply, SpawnedReply
from tfos_lab.node.gpus import VISIBLE
from tfos_lab.node.logs import LINE_PATIENCE_S, LogSpool, Pipe

# After the end of training, a child gets at most this long between SIGTERM and SIGKILL.
LAST_GRACE_S = 5.0
# A parameter server has nothing to finish; it gets this long to return by itself.
PS_PATIENCE_S = 1.0
# A grandchild may keep the pipes open forever; they are read for this long after the child has ended.
_PIPE_PATIENCE_S = 1.0


class ChildSupervisor:
    """The life of one child, inside the agent's poll loop.

    ``on_message`` takes its messages except for its `Ended`; ``on_ended`` takes, once, how the user's function ended.
    The child has ``ended`` when that has been reported, and ``exited`` while it has no process.
    """

    def __init__(
        self,
        spec: m.LaunchSpec,
        scratch: Path,
        loop: PollLoop,
        logs: LogSpool,
        *,
        on_progress: Callable[[m.Progressed], None],
        on_message: Callable[[m.FromAgent], None],
        on_ended: Callable[[m.Outcome], None],
    ) -> None:
        self._spec = spec
        self._scratch = scratch
        self._loop = loop
        self._logs = logs
        self._on_progress, self._on_message, self._on_ended = on_progress, on_message, on_ended
        self._fork_server = ForkServerSpec.tensorflow(spec.owner, spec.environ, spec.watched_pid, spec.extra_env)
        self._child: _Child | None = None
        self._start: m.Start | None = None
        self._folder = spec.cwd
        self._waiting: list[m.ToAgent] = []
        self._stop_at: float | None = None
        self._kill_at: float | None = None
        self.exited = False
        self._may_start_again = False
        self._starts_again = False
        self.ended = False

    # ---- start ------------------------------------------------------------------------------------------------------

    def fork(self, folder: str, port: socket.socket | None = None) -> None:
        """Ask the fork server for a child, which is forked as soon as that one is warm, and waits for its `start`.

        It begins in ``folder``, and gets the socket that holds its port.
        """
        try:
            control, child_control = frame_pair()
            pipes = [Pipe("stdout"), Pipe("stderr")]
        except OSError as error:  # too many open files
            self.end(m.Outcome(kind="raised", error="ForkServerUnavailable", message=str(error)))
            return
        fds = [child_control.fileno(), *(pipe.write_fd for pipe in pipes), *([port.fileno()] if port else [])]
        environ = _environ(self._spec, self._scratch, folder)
        try:
            fork_server = self._fork_server.spawn("child", fds=fds, environ=environ, cwd=folder)
        except OSError as error:
            control.close()
            for pipe in pipes:
                pipe.close()
            self.end(m.Outcome(kind="raised", error="ForkServerUnavailable", message=str(error)))
            return
        finally:
            child_control.close()
            for pipe in pipes:
                pipe.close_write_end()
        if port is not None:
            port.close()  # before the function can start
        self._child, self._folder = _Child(fork_server, control, pipes), folder
        self._loop.watch(fork_server, self._on_fork_server)
        self._loop.watch(control, self._on_control)
        for pipe in pipes:
            self._loop.watch(pipe.read_fd, self._pump_pipes)

    def start(self, start: m.Start) -> None:
        """Have the child run its function; messages that have waited for it are sent after ``start``."""
        self._start, child = start, self._child
        if child is None:
            return  # it could not be forked
        self._tell_progress(child)
        environ = _environ_of_start(self._spec, start)
        child.send(msgspec.structs.replace(start, sys_path=self._spec.sys_path, env=environ))
        for message in self._waiting:
            child.send(message)
        self._watch_unsent(child)

    def _tell_progress(self, child: _Child) -> None:
        state = NodeState.STARTING if child.pid else NodeState.IMPORTING
        self._on_progress(m.Progressed(state=state, pid=child.pid))

    @property
    def started(self) -> bool:
        """Whether the function has been asked for."""
        return self._start is not None

    @property
    def pid(self) -> int:
        """The child's process; 0 before it has been forked, and after its exit."""
        return self._child.pid if self._child is not None and not self.exited else 0

    def start_again(self) -> None:
        """Have another child forked, with the same start message, as soon as nothing is left of the last one."""
        if self._may_start_again:
            self._starts_again = True
            if self._child is not None and not self.exited:
                self._child.signal(signal.SIGKILL)

    def _drop_child(self) -> None:
        if self._child is None:
            return
        self._loop.unwatch(self._child.fork_server)
        self._loop.unwatch(self._child.control)
        for pipe in self._pipes:
            if pipe.open:
                self._loop.unwatch(pipe.read_fd)
        self._child.close()
        self._child = None

    @property
    def is_over(self) -> bool:
        """Whether there is no child process, and there will be none.

        The driver decides whether a child that served others is followed by another.
        """
        return self.exited and not self._may_start_again

    # ---- messages and output ----------------------------------------------------------------------------------------

    def send(self, message: m.ToAgent) -> None:
        """Send a message to the child, now or when it starts."""
        if self._child is not None and self._start is not None:
            self._child.send(message)
            self._watch_unsent(self._child)
        else:
            self._waiting.append(message)

    def _watch_unsent(self, child: _Child) -> None:
        """Continue when the child can take more; an agent that waited for a busy child could do nothing else."""
        self._loop.watch_writing(child.control, wanted=child.control.has_unsent)

    def _on_control(self) -> None:
        assert self._child is not None
        with contextlib.suppress(OSError):
            self._child.control.flush()
        self._watch_unsent(self._child)
        messages = self._child.receive()
        if messages is None:
            self._loop.unwatch(self._child.control)
            return
        for message in messages:
            if isinstance(message, m.Ended):
                self.end(message.outcome)
            else:
                self._may_start_again |= isinstance(message, m.Progressed) and message.state == NodeState.SERVING
                self._on_message(message)

    def _on_fork_server(self) -> None:
        child = self._child
        assert child is not None
        had_pid = bool(child.pid)
        outcome = child.receive_outcome()
        if child.pid and not had_pid and self._start is not None:
            self._tell_progress(child)
        if outcome is not None:
            self._loop.unwatch(child.fork_server)
            if not self.ended and self._loop.is_watched(child.control):
                self._on_control()  # its last message may still be in the socket
            self.end(outcome)
            self.exited = True

    @property
    def _pipes(self) -> list[Pipe]:
        return self._child.pipes if self._child is not None else []

    @property
    def holds_line(self) -> bool:
        """Whether an unfinished line of output waits for its end."""
        return any(pipe.holds for pipe in self._pipes)

    def _pump_pipes(self) -> None:
        for pipe in self._pipes:
            if pipe.open:
                fd = pipe.read_fd
                pipe.pump(self._logs, beside=[other for other in self._pipes if other is not pipe])
                if not pipe.open:
                    self._loop.unwatch(fd)

    # ---- end --------------------------------------------------------------------------------------------------------

    def end(self, outcome: m.Outcome) -> None:
        """Report how the function ended; only the first call counts."""
        if self.ended:
            return
        self.ended = True
        self._on_ended(outcome)
        if self._child is None:
            self.exited = True

    def refuse(self, outcome: m.Outcome) -> None:
        """Report why the function does not run here, and have no child for it."""
        self._drop_child()
        self.end(outcome)

    def stop(self, grace_s: float) -> None:
        """Send SIGTERM to the child, and SIGKILL after ``grace_s`` seconds."""
        child = None if self._starts_again else self._child
        self.ended = self.ended and not self._starts_again  # the end of the last child was reported, not this one
        self._may_start_again = self._starts_again = False
        if child is None:
            self.end(m.Outcome(kind="stopped"))
            return
        if not child.pid:
            self.refuse(m.Outcome(kind="stopped"))
            return
        child.stopping = True
        child.signal(signal.SIGTERM)
        self._kill_at = time.monotonic() + grace_s

    def kill_unreported(self) -> None:
        """Kill the child without a report: to the driver, this node is lost."""
        self.ended, self._starts_again = True, False
        self.stop(0.0)

    def finish(self, finish: m.Finish) -> None:
        """Tell the child that training has ended, and end it if it does not return within the grace period."""
        grace_s = finish.grace_s
        if self._child is None or self._starts_again or self._start is None:
            self.stop(grace_s)
            return
        self._may_start_again = False
        self.send(finish)
        if self.ended:
            self._kill_at = time.monotonic() + max(grace_s, 1.0)
        else:
            is_ps = role_of(self._spec.node).serves
            self._stop_at = time.monotonic() + (min(grace_s, PS_PATIENCE_S) if is_ps else grace_s)

    def tick(self, now: float) -> None:
        """Carry out what is due; called often."""
        if self._stop_at is not None and now >= self._stop_at and not self.exited:
            self._stop_at = None
            self.stop(LAST_GRACE_S)
        if self._kill_at is not None and now >= self._kill_at and self._child is not None:
            self._kill_at = None
            self._child.signal(signal.SIGKILL)
        for pipe in self._pipes:
            pipe.release(self._logs, LINE_PATIENCE_S)
        if self._child is not None and not self._child.pid and not self.exited:
            self._fork_server.replace_if_stuck(self._child.fork_server)  # it can neither fork nor answer
        if self._starts_again and self.exited and self.drain():
            assert self._start is not None
            self._drop_child()
            self._starts_again = self.ended = self.exited = False
            self.fork(self._folder)
            self.start(self._start)

    def drain(self) -> bool:
        """After the exit, kill what the child started and read the rest of its output; return whether that is done."""
        if self._child is not None and any(pipe.open for pipe in self._pipes):
            self._child.signal(signal.SIGKILL)
            self._pump_pipes()
            ended_at = self._child.ended_at
            if ended_at is None or time.monotonic() - ended_at <= _PIPE_PATIENCE_S:
                return False
        for pipe in self._pipes:
            pipe.release(self._logs)
        return True

    def close(self) -> None:
        """Kill the child and close everything."""
        if self._child is not None:
            self._child.close()


class _Child:
    """One child process, which a fork server has forked, or is about to."""

    def __init__(self, fork_server: ForkServerConnection, control: FrameSocket, pipes: list[Pipe]) -> None:
        self.fork_server = fork_server
        self.control = control
        self.pipes = pipes
        self.pid = 0
        self.stopping = False
        self.ended_at: float | None = None

    def send(self, message: m.ToAgent) -> None:
        """Send a message without blocking; the child may be busy, stopped, or not forked yet."""
        with contextlib.suppress(OSError):  # it has ended
            self.control.post(m.encode(message))

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
            self.ended_at = time.monotonic()
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
                    self.ended_at = time.monotonic()
                    return m.Outcome(kind="raised", error="ImportError", message=reason)
                case ExitedReply(code=code):
                    self.ended_at = time.monotonic()
                    return m.Outcome(kind="stopped" if self.stopping else "exited", exit_code=code)
        return None

    def signal(self, sig: signal.Signals) -> None:
        """Signal the child's process group, if it has been forked."""
        if self.pid:
            signal_group(self.pid, sig)

    def close(self) -> None:
        """Kill the child's process group and close everything."""
        self.signal(signal.SIGKILL)
        self.fork_server.close()
        self.control.close()
        for pipe in self.pipes:
            pipe.close()


def _environ(spec: m.LaunchSpec, scratch: Path, cwd: str) -> dict[str, str]:
    """Return the environment that a child is forked with."""
    environ = {**spec.environ, **spec.extra_env, "TFOS_LAB_SCRATCH": str(scratch), "PYTHONUNBUFFERED": "1"}
    environ.pop("TF_CONFIG", None)
    if "PWD" in environ:
        environ["PWD"] = cwd
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
