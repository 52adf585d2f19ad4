"""The agent: supervises one node. Reserves, starts the child, carries its words and its log, and sees to its end.

An agent is forked from the plain fork server of its host. It lives as long as its rank holder (the kernel, or the Spark
task), the driver and its watched process do; it outlives its child, and tells how the child ended. The life of a node:

    reserve → (all reserved) start → child runs → ended → (all done) finish → drained → shutdown
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from pathlib import Path

import msgspec

from tfos_lab import messages as m
from tfos_lab.core.processes import open_pidfd, set_process_name
from tfos_lab.core.roles import role_of
from tfos_lab.core.runtime_files import scratch_root
from tfos_lab.core.states import NodeState
from tfos_lab.node.child_link import ChildLink
from tfos_lab.node.feed.store import FeedStore
from tfos_lab.node.files.output import OutputFiles
from tfos_lab.node.files.shared_folder import SharedFolder
from tfos_lab.node.forkserver import client as fork_server
from tfos_lab.node.logs.sender import LogSender
from tfos_lab.node.logs.spool import LINE_PATIENCE_S, LogSpool, Pipe
from tfos_lab.node.scratch import Scratch
from tfos_lab.node.tensorboard.event_files import EventFiles
from tfos_lab.node.tensorboard.tunnel import Tunnel
from tfos_lab.transport.link import Link, address_towards
from tfos_lab.transport.poll_loop import PollLoop

HEARTBEAT_S = 1.0
REPEAT_S = 2.0
# What a node that has been told of training's end has, at most, between SIGTERM and SIGKILL.
LAST_GRACE_S = 5.0
# A node that is to leave brings its output first, for as long as the driver goes on taking it.
FAREWELL_S = 5.0
# A parameter server has nothing to bring to an end; it gets this long to return by itself.
PS_PATIENCE_S = 1.0


def run(body: bytes, fds: list[int]) -> int:
    """Entry point in the forked process: ``body`` is a `LaunchSpec`, ``fds`` the rank holder's socket, if any."""
    spec = msgspec.msgpack.decode(body, type=m.LaunchSpec)
    set_process_name(f"tfos {spec.node}")
    agent = Agent(spec, socket.socket(fileno=fds[0]) if fds else None)
    signal.signal(signal.SIGTERM, lambda *_: agent.leave("asked to leave"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        agent.run()
    finally:
        agent.close()
    return 0


class Agent:
    """One poll loop over the driver, the child, its pipes and its fork server."""

    def __init__(self, spec: m.LaunchSpec, task_holder: socket.socket | None) -> None:
        self._spec = spec
        self._task_holder = task_holder
        self._rank = spec.rank
        self._scratch = Scratch(scratch_root(), spec.cluster_id, spec.rank)
        self._link = Link(spec.driver, f"{spec.node}/{os.getpid()}".encode())
        self._host = address_towards(spec.driver.endpoint)
        self._port = _reserve_port(self._host)
        self._logs = LogSpool(self._scratch.path / "log")
        self._log_sender = LogSender(spec.rank, self._logs, self._send)
        self._feeds = FeedStore(spec.rank, self._host, self._scratch.path, self._send, self._send_to_child)
        self._child: ChildLink | None = None
        self._unheard: list[m.ToAgent] = []
        self._watched_pid = open_pidfd(spec.watched_pid)
        self._loop = PollLoop()
        self._tunnel = Tunnel(spec.rank, self._send, self._loop)
        self._shared = SharedFolder(spec.shared_dir, spec.cluster_id, spec.node)
        self._saving: dict[str, SharedFolder] = {}
        self._event_files = EventFiles(spec.rank, self._send)
        self._output = OutputFiles(spec.rank, spec.node, self._scratch.path, self._send)
        self._leaving = False
        self._asked_to_leave = False
        self._farewell_until: float | None = None
        self._ended = False
        self._finished = False
        self._drained = False
        self._drained_at = 0.0
        self._stop_at: float | None = None
        self._kill_at: float | None = None
        self._last_heartbeat = 0.0
        self._driver_heard = time.monotonic()

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Reserve, then work until the driver says shutdown or is gone."""
        self._loop.watch(self._link.socket, self._on_driver)
        self._loop.watch(self._feeds.fileno(), self._feeds.pump)
        if self._watched_pid is not None:
            self._loop.watch(self._watched_pid, self._on_watched_exit)
        self._shared.mark()
        self._send(
            m.Reserve(
                rank=self._rank,
                host=socket.gethostname(),
                address=f"{self._host}:{self._port.getsockname()[1]}",
                pid=os.getpid(),
                executor=self._spec.executor,
                gpus=self._spec.gpus or [],
            )
        )
        self._warm()
        while not self._leaving:
            self._loop.turn(self._patience_ms())
            self._tick()

    def _patience_ms(self) -> int:
        holds = any(pipe.holds for pipe in self._pipes())
        return 20 if holds or self._log_sender.can_send or (self._ended and not self._drained) else 200

    def _tick(self) -> None:
        now = time.monotonic()
        if now - self._last_heartbeat >= HEARTBEAT_S:
            self._last_heartbeat = now
            self._send(m.Heartbeat(rank=self._rank, spooled_bytes=self._feeds.spooled_bytes))
        if now - self._driver_heard > self._spec.driver_timeout_s or self._watched_pid is None:
            self._leaving = True  # whom would it bring anything?
        if self._asked_to_leave:
            self._send_farewell(now)
        if self._stop_at is not None and now >= self._stop_at and not self._finished:
            self._stop_at = None
            self._stop_child(LAST_GRACE_S)
        if self._kill_at is not None and now >= self._kill_at and self._child is not None:
            self._kill_at = None
            self._child.signal(signal.SIGKILL)
        for pipe in self._pipes():
            pipe.release(self._logs, LINE_PATIENCE_S)
        self._log_sender.send_due()
        self._output.work()
        self._tunnel.flush()
        if self._finished:
            self._drain()

    # ---- the driver -------------------------------------------------------------------------------------------------

    def _send(self, message: m.FromAgent) -> None:
        self._link.send(m.encode(message))

    def _on_driver(self) -> None:
        for data in self._link.receive():
            self._driver_heard = time.monotonic()
            self._handle(m.decode_to_agent(data))

    def _handle(self, message: m.ToAgent) -> None:
        match message:
            case m.HeartbeatAck():
                pass
            case m.Start():
                self._on_start(message)
            case m.Stop(grace_s=grace_s, reason=reason):
                self._feeds.fail(reason)
                self._stop_child(grace_s)
            case m.Finish(grace_s=grace_s):
                self._finish_child(message, grace_s)
            case m.Shutdown():
                self._leaving = True
            case m.FreeSlot():
                self._free_slot()
            case m.LogCredit():
                self._log_sender.take_credit(message)
            case m.TunnelOpen() | m.TunnelData() | m.TunnelCredit() | m.TunnelClosed():
                self._tunnel.handle(message)
            case _:
                self._feeds.handle(message)
                self._event_files.handle(message)
                self._output.handle(message)

    # ---- the child --------------------------------------------------------------------------------------------------

    def _warm(self) -> None:
        """Start the fork server's imports now, while others still reserve."""
        try:
            fork_server.warm(*self._fork_server())
        except OSError as error:
            self._end(m.Outcome(kind="raised", error="ForkServerUnavailable", message=str(error)))

    def _fork_server(self) -> tuple[str, str, dict[str, str], dict[str, str], int]:
        spec = self._spec
        import_environ = fork_server.import_environ_of(spec.environ, spec.extra_env)
        return spec.owner, "tensorflow", import_environ, spec.environ, spec.watched_pid

    def _on_start(self, start: m.Start) -> None:
        if self._child is not None or self._ended:
            return
        nodes = [f"{job}:{index}" for job, tasks in start.cluster_spec.items() for index in range(len(tasks))]
        if problem := self._shared.problem(nodes):
            self._end(m.Outcome(kind="raised", error="ConfigError", message=problem))
            return
        start = self._output.prepare(start)
        if start.is_chief:
            self._event_files.look_in(start.log_dir, start.age_s)
        if start.tensorboard:
            spec = self._spec
            self._tunnel.start((spec.owner, "plain", {}, spec.environ, spec.watched_pid), start.log_dir, spec.cwd)
        try:
            self._child = ChildLink.spawn(self._spec, start, self._fork_server(), self._scratch.path)
        except OSError as error:
            self._end(m.Outcome(kind="raised", error="ForkServerUnavailable", message=str(error)))
            return
        child = self._child
        self._send(m.Progressed(rank=self._rank, state=NodeState.IMPORTING))
        self._loop.watch(child.fork_server, self._on_fork_server)
        self._loop.watch(child.control, self._on_child)
        for message in self._unheard:
            self._send_to_child(message)
        self._watch_unsent()
        for pipe in child.pipes:
            self._loop.watch(pipe.read_fd, self._pump_pipes)

    def _send_to_child(self, message: m.ToAgent) -> None:
        if self._child is not None:
            self._child.send(message)
            self._watch_unsent()
        else:
            self._unheard.append(message)

    def _watch_unsent(self) -> None:
        """Wake when the child takes more of what was said to it; an agent that waited for that would seem dead."""
        assert self._child is not None
        self._loop.watch_writing(self._child.control, wanted=self._child.control.has_unsent)

    def _on_child(self) -> None:
        assert self._child is not None
        self._child.flush()
        self._watch_unsent()
        said, open_ = self._child.heard()
        for data in said:
            try:
                message = m.decode_from_agent(data)
            except msgspec.DecodeError:
                continue  # the user's code has written to a descriptor that is not its own
            if isinstance(message, m.Ended):
                self._end(message.outcome)
            elif isinstance(message, m.SavesTo):
                self._send_saving(message.path)
            elif isinstance(message, m.OutputOpened):
                self._output.open()
            elif self._feeds.on_child_message(message):
                self._link.send(data)
        if not open_:
            self._loop.unwatch(self._child.control)

    def _send_saving(self, path: str) -> None:
        """Tell the driver, which may be on another host, where the child is going to save."""
        folder = str(Path(path).parent)
        if self._spec.executor and folder not in self._saving:
            self._saving[folder] = SharedFolder(folder, self._spec.cluster_id, self._spec.node)
            self._saving[folder].mark()
            # Executors have numbers, and a folder for the job; elsewhere the driver's own folder is meant.
            vanishes = self._spec.executor.isdigit() and Path(path).is_relative_to(self._spec.cwd)
            mark = self._saving[folder].own_mark
            self._send(m.SavesTo(rank=self._rank, path=path, mark=mark, vanishes=vanishes))

    def _on_fork_server(self) -> None:
        assert self._child is not None
        outcome = self._child.fork_server_reply()
        if self._child.pid and not self._child.announced:
            self._child.announced = True
            self._send(m.Progressed(rank=self._rank, state=NodeState.STARTING, pid=self._child.pid))
        if outcome is not None:
            self._loop.unwatch(self._child.fork_server)
            if not self._ended and self._loop.is_watched(self._child.control):
                self._on_child()  # its last word may still lie in the socket
            self._end(outcome)
            self._finished = True

    def _pipes(self) -> list[Pipe]:
        return self._child.pipes if self._child is not None else []

    def _pump_pipes(self) -> None:
        assert self._child is not None
        for pipe in self._child.pipes:
            if pipe.open:
                fd = pipe.read_fd
                pipe.pump(self._logs)
                if not pipe.open:
                    self._loop.unwatch(fd)

    def _end(self, outcome: m.Outcome) -> None:
        """Tell the driver once how the function ended."""
        if not self._ended:
            self._ended = True
            self._send(m.Ended(rank=self._rank, outcome=outcome))
            if outcome.kind == "raised" and not outcome.consequence:
                self._feeds.fail(f"{self._spec.node}: {outcome.error}: {outcome.message}")
            if self._child is None:
                self._finished = True

    def _stop_child(self, grace_s: float) -> None:
        if self._child is None:
            self._end(m.Outcome(kind="stopped"))
            return
        self._child.stopping = True
        self._child.signal(signal.SIGTERM)
        self._kill_at = time.monotonic() + grace_s

    def _finish_child(self, finish: m.Finish, grace_s: float) -> None:
        if self._child is None:
            self._stop_child(grace_s)
            return
        self._send_to_child(finish)
        if self._ended:
            self._kill_at = time.monotonic() + max(grace_s, 1.0)
        else:
            serves = role_of(self._spec.node).serves
            self._stop_at = time.monotonic() + (min(grace_s, PS_PATIENCE_S) if serves else grace_s)

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """The child is gone: end what it left behind, send what it wrote, and say so until the driver answers."""
        if self._child is not None and any(pipe.open for pipe in self._child.pipes):
            self._child.signal(signal.SIGKILL)
            self._pump_pipes()
            if not self._child.pipes_overdue():
                return
        for pipe in self._pipes():
            pipe.release(self._logs)
        self._log_sender.send_all()
        if not self._event_files.settle() or not self._output.settle():
            return
        if self._farewell_until is not None:
            return
        now = time.monotonic()
        if not self._logs.has_unread and (not self._drained or now - self._drained_at > REPEAT_S):
            self._drained = True
            self._drained_at = now
            self._send(m.Drained(rank=self._rank))

    def _free_slot(self) -> None:
        """Tell the Spark task to return; from now on the watched process and the driver alone keep this agent alive."""
        if self._task_holder is not None:
            with contextlib.suppress(OSError):
                self._task_holder.send(b"1")
            self._task_holder.close()
            self._task_holder = None

    def leave(self, _why: str) -> None:
        """End the loop, once the function's output has come home; `close` ends the child with it.

        Also called by a signal's handler, which may interrupt anything.
        """
        if self._output.is_coming:
            self._asked_to_leave = True
        else:
            self._leaving = True

    def _on_watched_exit(self) -> None:
        assert self._watched_pid is not None
        self._loop.unwatch(self._watched_pid)
        if self._spec.executor:
            self._send(m.ExecutorGone(rank=self._rank))
        self.leave("the executor or kernel has gone")

    def _send_farewell(self, now: float) -> None:
        """End the child and bring its output, for as long as that gets on."""
        if self._farewell_until is None:
            self._farewell_until = now + FAREWELL_S
            self._ended = True  # neither a stop nor an end of its own: to the driver, this node is lost
            self._stop_child(0.0)
        if not self._output.is_coming or now > max(self._farewell_until, self._output.moved_at + FAREWELL_S):
            self._leaving = True

    def close(self) -> None:
        """End the child at once and give everything back."""
        if self._child is not None:
            self._child.close()
        self._tunnel.close()
        for folder in (self._shared, *self._saving.values()):
            folder.clear()
        self._feeds.close()
        self._output.close()
        self._logs.close()
        self._port.close()
        self._link.close()
        if self._watched_pid is not None:
            os.close(self._watched_pid)
        self._scratch.remove()


def _reserve_port(host: str) -> socket.socket:
    """Return a bound socket that holds a free port; TensorFlow may bind it too, since both set SO_REUSEADDR."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with contextlib.suppress(OSError):
        sock.bind((host, 0))
        return sock
    sock.bind(("", 0))
    return sock
