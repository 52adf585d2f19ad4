"""The agent: the process that supervises one node. It reserves, starts the child, forwards its output, and ends it.

An agent is forked from the plain fork server of its host. It lives for as long as the driver, the watched process (the
kernel, or the executor's JVM) and, until the slot is freed, the Spark task. It outlives its child, and reports how the
child ended. The messages of a normal run, in order:

    Reserve -> (all nodes reserved) Start -> child runs -> Ended -> (all ended) Finish -> Drained -> Shutdown

The child is forked, and waits, while other nodes still reserve.

`DriverLink` is the connection to the driver, `ChildSupervisor` the life of the child; this module joins them with the
node's feeds, files and log in one poll loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time

import msgspec

from tfos_lab.core import messages as m
from tfos_lab.core.poll_loop import PollLoop
from tfos_lab.core.processes import WatchedProcess, set_process_name
from tfos_lab.node.activity.reporter import ActivityReporter
from tfos_lab.node.addresses import NodePlace
from tfos_lab.node.child_supervisor import ChildSupervisor
from tfos_lab.node.driver_link import GAVE_UP, NO_WAY, DriverLink
from tfos_lab.node.feed.store import FeedStore
from tfos_lab.node.files.output import NodeOutput
from tfos_lab.node.files.payload import PayloadFile
from tfos_lab.node.files.remote_log import RemoteLog
from tfos_lab.node.files.result import NodeResult
from tfos_lab.node.files.shared_folder import SavedPaths, SharedFolder
from tfos_lab.node.gpus import NodeGpus
from tfos_lab.node.logs import LogSender, LogSpool
from tfos_lab.node.profile import is_of_trace, trace_piece
from tfos_lab.node.scratch import Scratch
from tfos_lab.node.stacks import StackTaker

# An agent that has to leave sends the node's output first, for as long as the driver goes on taking it.
LAST_OUTPUT_S = 5.0
# The poll loop wakes at least this often: when something is to be sent soon, and otherwise.
_BUSY_POLL_MS = 20
_IDLE_POLL_MS = 200

_spec_decoder = msgspec.msgpack.Decoder(m.LaunchSpec)  # made once, by the fork server


def run(body: bytes, fds: list[int]) -> int:
    """Entry point in the forked process: ``body`` is a `LaunchSpec`, ``fds`` the Spark task's socket, if any."""
    spec = _spec_decoder.decode(body)
    set_process_name(f"tfos {spec.node}")
    try:
        driver = DriverLink(spec.driver)
    except OSError:
        return NO_WAY
    agent = Agent(spec, driver, socket.socket(fileno=fds[0]) if fds else None)
    signal.signal(signal.SIGTERM, lambda *_: agent.leave())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return agent.run()
    finally:
        agent.close()


class Agent:
    """One poll loop over the driver, the child, its pipes and its fork server.

    ``task_socket`` is connected to the Spark task that occupies the node's slot.
    """

    def __init__(self, spec: m.LaunchSpec, driver: DriverLink, task_socket: socket.socket | None) -> None:
        # Before the child can look for any, and for as long as it may hold memory on them.
        self._gpus = NodeGpus(spec, {**spec.environ, **spec.extra_env})
        self._spec = spec = msgspec.structs.replace(spec, gpus=self._gpus.own)
        self._task_socket = task_socket
        self._scratch = Scratch(spec.cluster_id, spec.rank)
        self._driver = driver
        send = driver.tell
        self._place = NodePlace(spec, self._driver.host)
        self._port = self._place.take_port(lambda port: _reserve_port(self._place.host, port))
        self._loop = PollLoop()
        self._logs = LogSpool(self._scratch.path / "log")
        self._log_sender = LogSender(self._logs, send)
        gpus, logs = self._gpus.own or (), self._logs
        self._activity = ActivityReporter(send, gpus=gpus, output_at=lambda: logs.appended_at)
        self._child = ChildSupervisor(
            spec,
            self._scratch.path,
            self._loop,
            self._logs,
            on_progress=send,
            on_message=self._on_child_message,
            on_ended=self._on_child_ended,
        )
        rows_host, take_port = self._place.rows_host, self._place.take_port
        self._feeds = FeedStore(rows_host, self._scratch.path, send, self._child.send, take_port=take_port)
        self._stacks = StackTaker(self._scratch.path, self._child, send)
        self._shared = SharedFolder(spec.shared_dir, spec.cluster_id, spec.node)
        self._remote_log = RemoteLog(self._scratch.path, send)
        self._result = NodeResult(self._scratch.path, send)
        self._output = NodeOutput(spec.node, self._scratch.path, send)
        self._payload = PayloadFile(self._scratch.path, send, on_ready=self._start, on_problem=self._refuse)
        self._saved_paths = SavedPaths(spec, self._output.working_folder.path.resolve(), send)
        self._watched = WatchedProcess(spec.watched_pid)
        self._is_alone = False
        self._leaving = False
        self._given_up = False
        self._asked_to_leave = False
        self._output_until: float | None = None
        self._has_drained = False

    # ---- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Reserve, then work until the driver sends `Shutdown` or is gone; return the exit code."""
        self._loop.watch(self._driver, self._on_driver)
        self._loop.watch(self._feeds.fileno(), self._feeds.pump)
        self._shared.mark()
        folder = self._output.working_folder.make(self._spec)
        self._driver.reserve(
            m.Reserve(
                rank=self._spec.rank,
                host=socket.gethostname(),
                address=self._place.at(self._port),
                pid=os.getpid(),
                executor=self._spec.executor,
                gpus=self._spec.gpus or [],
                gpu_count=self._gpus.count,
            )
        )
        self._child.fork(folder, self._port)  # while other nodes still reserve
        while not self._leaving:
            self._loop.watch_writing(self._driver, wanted=self._driver.has_unsent)
            is_leaving = self._asked_to_leave or (self._child.ended and not self._has_drained)
            has_work = self._child.holds_line or self._log_sender.can_send or self._stacks.waits
            is_busy = is_leaving or has_work or self._payload.is_awaited
            self._loop.turn(_BUSY_POLL_MS if is_busy else _IDLE_POLL_MS)
            self._tick()
        return GAVE_UP if self._given_up else 0

    def _tick(self) -> None:
        now = time.monotonic()
        self._driver.spooled_bytes = self._feeds.spooled_bytes
        self._driver.go_on()
        self._log_sender.send_due()
        self._activity.tick()
        self._given_up = self._driver.silent_s > self._spec.driver_timeout_s
        if self._given_up or self._driver.is_over:
            self._leaving = True  # nobody is left to send the output to
        if self._watched.has_ended and not self._is_alone:
            self._on_watched_end()
        if self._asked_to_leave:
            self._send_output_and_leave(now)
        self._child.tick(now)
        self._stacks.tick(now)
        self._output.work()
        if self._child.is_over:
            self._drain()

    # ---- the driver's messages --------------------------------------------------------------------------------------

    def _on_driver(self) -> None:
        for message in self._driver.messages():
            match message:
                case m.DriverHeartbeat():
                    pass
                case m.Start() | m.PayloadPiece():
                    self._payload.handle(message)
                case m.StartAgain():
                    self._child.start_again()
                case m.Stop(grace_s=grace_s, reason=reason):
                    self._feeds.fail(reason)
                    self._result.stop()
                    self._child.stop(grace_s)
                case m.Finish():
                    self._child.finish(message)
                case m.Shutdown():
                    self._leaving = True
                case m.FreeSlot():
                    self._free_slot()
                case m.LogCredit():
                    self._log_sender.take_credit()
                case _:
                    self._pass_on(message)

    def _pass_on(self, message: m.ToAgent) -> None:
        if isinstance(message, m.RunCell | m.InterruptCell | m.ProfileWanted):
            self._child.send(message)
            return
        self._feeds.handle(message)
        self._stacks.handle(message)
        self._output.handle(message)
        self._result.handle(message)
        if isinstance(message, m.PieceWanted) and is_of_trace(message):
            self._driver.tell(trace_piece(message, self._scratch.path))

    def _start(self, start: m.Start) -> None:
        if self._child.started or self._child.ended:
            return
        nodes = [f"{job}:{index}" for job, tasks in start.cluster_spec.items() for index in range(len(tasks))]
        if problem := self._place.problem or self._shared.problem(nodes):
            self._refuse(problem)
            return
        self._result.prepare(start)
        spec = self._spec
        start = self._remote_log.prepare(start, {**spec.environ, **start.env, **spec.extra_env})
        self._child.start(self._output.prepare(start))

    def _refuse(self, problem: str) -> None:
        self._child.refuse(m.Outcome(kind="raised", error="ConfigError", message=problem))

    def _free_slot(self) -> None:
        """Let the Spark task return; from now on only the watched process and the driver keep this agent alive."""
        if self._task_socket is not None:
            with contextlib.suppress(OSError):
                self._task_socket.send(b"1")
            self._task_socket.close()
            self._task_socket = None

    # ---- the child's messages ---------------------------------------------------------------------------------------

    def _on_child_message(self, message: m.FromAgent) -> None:
        self._activity.take(message)
        match message:
            case m.SavesTo(path=path):
                self._saved_paths.report(path)
            case m.Stacks():
                self._stacks.answer(message)
            case m.Activity():
                pass  # the reporter sends it, with more figures
            case _:
                if self._feeds.on_child_message(message):
                    self._driver.tell(message)

    def _on_child_ended(self, outcome: m.Outcome) -> None:
        self._activity.end()
        self._result.report(outcome)
        if outcome.kind == "raised" and not outcome.consequence:
            self._feeds.fail(f"{self._spec.node}: {outcome.error}: {outcome.message}")
        elif outcome.kind == "returned":
            self._feeds.child_returned()

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """After the child's exit, send the rest of its output, then `Drained`."""
        if not self._child.drain() or self._result.is_busy:
            return
        self._logs.tell_lost()
        self._log_sender.send_all()
        is_settled = self._output.settle() and self._remote_log.settle()
        if is_settled and self._output_until is None and not self._has_drained and not self._logs.has_unread:
            self._has_drained = True
            self._driver.tell(m.Drained())

    def leave(self) -> None:
        """End the loop as soon as the function's output has been sent; `close` then kills the child.

        Also called by a signal handler, which may interrupt anything.
        """
        self._asked_to_leave = True

    def _on_watched_end(self) -> None:
        self._is_alone = True
        if self._spec.executor:
            self._driver.tell(m.ExecutorGone())
        self.leave()

    def _send_output_and_leave(self, now: float) -> None:
        """Kill the child and send its output, for as long as that makes progress."""
        if self._output_until is None:
            self._output_until = now + LAST_OUTPUT_S
            self._child.kill_unreported()
            self._output.look_for_work()
            return  # what the child has sent is read, and passed on, first
        if not self._output.has_more or now > max(self._output_until, self._output.last_taken_at + LAST_OUTPUT_S):
            self._leaving = True

    def close(self) -> None:
        """Kill the child and release everything."""
        self._child.close()
        self._shared.clear()
        self._saved_paths.clear()
        self._feeds.close()
        self._output.close()
        self._logs.close()
        self._port.close()
        self._place.close()
        self._driver.close()
        self._gpus.close()
        self._scratch.remove()


def _reserve_port(host: str, port: int) -> socket.socket:
    """Return a socket bound to a port, or any for 0; TensorFlow may bind it too, since both set SO_REUSEADDR.

    It holds the port at all addresses of this machine, since that is where TensorFlow's server binds it.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind(("", port))
    except OSError:
        sock.close()
        raise
    return sock
