"""The fork server: a warm process that agents and children are forked from, since `import tensorflow` takes seconds.

Two kinds run on a host. The *plain* fork server has imported only tfos_lab; agents are forked from it. A *tensorflow*
fork server has also imported TensorFlow and Keras and initialised nothing (no devices, no gRPC, no threads); children
are forked from it. A fork takes some milliseconds.

A fork server serves one user, one owner (a notebook kernel, all kernels of the user, or a Spark application), one
Python and one environment to import TensorFlow with. It exits when it has been idle, and, unless it outlives its
kernels, together with the last of its watched processes (the kernel, or the executors' JVMs); then it ends what it has
forked.
`client` talks to it, `main` is its entry point, and `health` tells whether it works.
"""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from tfos_lab.core.frames import FrameSocket, close_all
from tfos_lab.core.processes import WatchedProcess, pack_memory, reset_signals
from tfos_lab.node.forkserver.endings import Endings
from tfos_lab.node.forkserver.health import lock_path
from tfos_lab.node.forkserver.requests import (
    EndRequest,
    ExitedReply,
    FailedReply,
    ForkServerReply,
    ForkServerRequest,
    KeepRequest,
    SpawnedReply,
    SpawnRequest,
    StatusReply,
    StatusRequest,
)

IDLE_S = 600.0
# A request has an environment and a few paths.
_MAX_REQUEST_BYTES = 1 << 24

_decoder = msgspec.msgpack.Decoder(ForkServerRequest)


class _Client:
    """One connection: asks for at most one process, which ends with the connection."""

    def __init__(self, frames: FrameSocket) -> None:
        self.frames = frames
        self.pid = 0
        self.kept = False


class Forked(Exception):
    """Raised in the forked process, to leave the parent's stack before the target runs."""

    def __init__(self, request: SpawnRequest, fds: list[int], fork_server: int) -> None:
        self.request = request
        self.fds = fds
        self.fork_server = fork_server


class Endpoint(NamedTuple):
    """The socket that a fork server listens on, its path, and the lock that keeps others from taking it."""

    listener: socket.socket
    path: Path
    lock: int


class ForkServer:
    """Forks processes on request and reports when they end; single-threaded, so that forking is safe.

    It lives until it has been idle for so long, and unless it outlives them, with those that use it. ``failure`` says
    why it can fork nothing.
    """

    def __init__(self, endpoint: Endpoint, *, idle_s: float, outlives: bool, failure: str) -> None:
        self._listener, self._path, self._lock = endpoint
        self._idle_s, self._outlives = idle_s, outlives
        self._failure = failure
        self._clients: set[_Client] = set()
        self._endings = Endings()
        self._packing = pack_memory()
        self._watched: dict[int, WatchedProcess] = {}
        self._was_watching = False
        self._last_use = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._reap)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Serve until idle for too long, or until the last watched process has exited; raises `Forked` in forks."""
        try:
            while not (self._is_over() and self._withdraw()):
                events = self._selector.select(timeout=self._endings.timeout_s)
                for key, _ in events:
                    key.data(key.fileobj)
                if not events:
                    self._watched = {pid: one for pid, one in self._watched.items() if not one.has_ended}
                    if not self._busy:  # forked processes would keep the pages that they share
                        next(self._packing, None)
                self._endings.tick()
        except SystemExit:
            pass
        for client in self._clients:
            if client.pid and not client.kept:
                self._endings.end(client.pid)

    def _is_over(self) -> bool:
        if self._was_watching and not self._watched and not self._outlives:
            return True
        return time.monotonic() - self._last_use > self._idle_s and not self._busy

    def _withdraw(self) -> bool:
        """Take the socket away, so that nobody connects any more; put it back if somebody has just done so."""
        aside = self._path.with_suffix(".ended")
        with contextlib.suppress(FileNotFoundError):
            self._path.rename(aside)
            if select.select([self._listener], [], [], 0)[0]:
                aside.rename(self._path)
                return False
            aside.unlink()
        return True

    @property
    def _busy(self) -> list[_Client]:
        return [client for client in self._clients if client.pid]

    def finish(self) -> None:
        """End what is left; another fork server may take this one's place meanwhile."""
        self._listener.close()
        log = self._path.with_suffix(".log")
        with contextlib.suppress(OSError):
            lock_path(self._path).unlink()
            if log.exists() and not log.stat().st_size:
                log.unlink()
            self._path.parent.rmdir()  # which others may still use
        os.close(self._lock)
        with contextlib.suppress(SystemExit):
            self._endings.finish()

    def _accept(self, _listener: object) -> None:
        connection, _ = self._listener.accept()
        client = _Client(FrameSocket(connection, max_bytes=_MAX_REQUEST_BYTES))
        self._clients.add(client)
        self._last_use = time.monotonic()
        self._selector.register(client.frames, selectors.EVENT_READ, lambda _: self._read(client))

    def _read(self, client: _Client) -> None:
        if client not in self._clients:
            return  # dropped by an earlier event of the same round
        self._last_use = time.monotonic()
        try:
            for data, fds in client.frames.available():
                self._handle(client, _decoded(data, fds), fds)
        except (ConnectionError, msgspec.DecodeError):
            self._drop(client)

    def _handle(self, client: _Client, request: ForkServerRequest, fds: list[int]) -> None:
        match request:
            case KeepRequest():
                client.kept = True
            case StatusRequest():
                self._send(client, StatusReply(processes=len(self._busy), users=sorted(self._watched)))
            case EndRequest() if busy := len(self._busy):
                self._send(client, FailedReply(reason=f"{busy} processes run that were forked from it"))
            case EndRequest():
                sys.exit(0)
            case SpawnRequest():
                self._watch(request.watched_pid)
                if self._failure:
                    close_all(fds)
                    self._send(client, FailedReply(reason=self._failure))
                elif request.target:
                    self._fork(client, request, fds)
                else:
                    self._send(client, SpawnedReply(pid=0))

    def _fork(self, client: _Client, request: SpawnRequest, fds: list[int]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        # Hold signals back until the child has its own handlers: those of the fork server would swallow them.
        fork_server = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        # The child begins when this process has closed its copies: it may need the port among them to be its own. Its
        # client knows of it by then.
        held = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            close_all([*fds, *held])
            self._send(client, FailedReply(reason=f"no process could be forked: {error.strerror}"))
            return
        if pid == 0:
            os.close(held[1])
            os.read(held[0], 1)
            os.close(held[0])
            raise Forked(request, fds, fork_server)
        try:
            # Parent and child both set the process group, so that a signal to the group never comes too early.
            with contextlib.suppress(OSError):
                os.setpgid(pid, pid)
            close_all(fds)
            client.pid = pid
            self._endings.forked(pid, request.target)
            self._send(client, SpawnedReply(pid=pid))  # the client has it before any message of the child
        finally:
            close_all(list(held))
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _send(self, client: _Client, reply: ForkServerReply) -> None:
        try:
            client.frames.send(msgspec.msgpack.encode(reply))
        except OSError:
            self._drop(client)

    def _drop(self, client: _Client) -> None:
        """The client is gone: end its process, unless the client asked to keep it."""
        if client not in self._clients:
            return
        self._clients.discard(client)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(client.frames)
        client.frames.close()
        if client.pid and not client.kept:
            self._endings.end(client.pid)

    def _reap(self, _wake: object) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        for pid, status in self._endings.reap():
            self._last_use = time.monotonic()
            for client in [client for client in self._clients if client.pid == pid]:
                client.pid = 0
                self._send(client, ExitedReply(code=os.waitstatus_to_exitcode(status)))

    def _watch(self, watched_pid: int) -> None:
        if watched_pid and watched_pid not in self._watched:
            self._was_watching = True
            self._watched[watched_pid] = WatchedProcess(watched_pid)

    def close_in_child(self) -> None:
        """Close, in a forked process, whatever belongs to the parent."""
        self._selector.close()
        self._listener.close()
        # An inherited lock would keep another fork server from replacing this one while the forked process lives.
        os.close(self._lock)
        for client in self._clients:
            client.frames.close()
        reset_signals()
        os.close(self._wake_read)
        os.close(self._wake_write)


def _decoded(data: bytes, fds: list[int]) -> ForkServerRequest:
    """Return a request; raises ``msgspec.DecodeError`` for anything else, and closes what came with it."""
    try:
        request: ForkServerRequest = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        close_all(fds)
        raise msgspec.DecodeError(str(error)) from None
    return request
