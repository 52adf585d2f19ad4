"""The driver's end of the control channel: ZeroMQ with CURVE keys, with a `tfos_lab.transport.link` for each agent.

Peers without the cluster's keys are rejected in the handshake, before any of their messages is read. Keys are made for
one cluster and discarded with it. The listener authenticates in its own poll loop (ZAP, https://rfc.zeromq.org/spec/27).
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import zmq
from zmq.utils import z85

from tfos_lab.core.node_addresses import ports_in
from tfos_lab.errors import ConfigError
from tfos_lab.messages import DriverAddress
from tfos_lab.transport.unproven import UnprovenConnections

#: Environment variable of the driver: the port to listen on, such as 8888, or a range such as 9990-9999.
PORT_VARIABLE = "TFOS_SERVER_PORT"
_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
# How many messages are received before the driver turns to what is due.
_AT_ONCE = 200


def listening_ports() -> list[int]:
    """Return the ports on which a driver may listen, according to `PORT_VARIABLE`; [] for any."""
    return list(ports_in(PORT_VARIABLE, "9990-9999"))


def _bind(router: zmq.Socket[bytes], host: str, ports: list[int]) -> int:
    """Bind to the first of ``ports`` that is free, or to any port; return it."""
    if not ports:
        return router.bind_to_random_port(f"tcp://{host}")
    for port in ports:
        try:
            router.bind(f"tcp://{host}:{port}")
        except zmq.ZMQError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return port
    advice = "each cluster that runs takes one. Give a wider range, or stop a cluster"
    raise ConfigError([f"{PORT_VARIABLE}={os.environ[PORT_VARIABLE]}: none of these ports is free; {advice}"])


@dataclass(frozen=True)
class KeyPair:
    """A CURVE key pair, encoded as Z85 text."""

    public: str
    secret: str

    @classmethod
    def make(cls) -> KeyPair:
        """Return a fresh pair."""
        public, secret = zmq.curve_keypair()
        return cls(public.decode(), secret.decode())


class AgentData(NamedTuple):
    """What one agent has sent: its identity, and the bytes of one message."""

    identity: bytes
    data: bytes


class Listener:
    """The driver's end: receives from all agents, sends to each by its identity.

    Only `post` may be called from other threads than the one that polls.

    Parameters
    ----------
    bind_host : str
        The one interface to listen on.
    public_host : str
        The host name or address that agents connect to.
    nodes : int
        How many agents will connect, perhaps all at once.

    Raises
    ------
    ConfigError
        If `PORT_VARIABLE` names no port, or none that is free.

    Attributes
    ----------
    is_behind : bool
        Whether more had come than the last `poll` has yielded.
    """

    def __init__(self, bind_host: str = "127.0.0.1", public_host: str | None = None, nodes: int = 0) -> None:
        ports = listening_ports()
        self._server = KeyPair.make()
        self._client = KeyPair.make()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind(_ZAP_ENDPOINT)
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 500)
        self._router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        self._router.setsockopt(zmq.SNDHWM, 10_000)
        self._router.setsockopt(zmq.BACKLOG, max(1024, nodes))
        self._router.setsockopt(zmq.IPV6, int(":" in bind_host))
        self._router.curve_server = True
        self._router.curve_secretkey = self._server.secret.encode()
        self._router.curve_publickey = self._server.public.encode()
        self._unproven = UnprovenConnections(self._router, nodes)
        try:
            self._port = _bind(self._router, _bracketed(bind_host), ports)
        except BaseException:
            self._context.destroy(linger=0)
            raise
        self.address = DriverAddress(
            endpoint=f"tcp://{_bracketed(public_host or bind_host)}:{self._port}",
            server_key=self._server.public,
            client_public_key=self._client.public,
            client_secret_key=self._client.secret,
        )
        self.is_behind = False
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._wake_lock = threading.Lock()
        self._posted: deque[object] = deque()
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(self._zap, zmq.POLLIN)
        self._poller.register(self._unproven.monitor, zmq.POLLIN)
        self._poller.register(self._wake, zmq.POLLIN)

    def post(self, item: object) -> None:
        """Pass ``item`` to the polling thread; safe from any thread."""
        self._posted.append(item)
        # Once closed, the descriptor's number may be reused, for instance by a socket of the notebook.
        with self._wake_lock:
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def poll(self, timeout_s: float) -> Iterator[AgentData | object]:
        """Yield what has arrived within the timeout: data from agents, and then items that were posted.

        Of an agent that has ended, its last words come before what others report of it.
        """
        ready = dict(self._poller.poll(int(timeout_s * 1000)))
        if self._zap in ready:
            self._authenticate()
        if self._unproven.monitor in ready:
            self._unproven.update(self._port)
        if self._wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._wake)
        self.is_behind = False
        if self._router in ready or self._posted:
            yield from self._receive()
        while self._posted:
            yield self._posted.popleft()

    def _receive(self) -> Iterator[AgentData]:
        for _ in range(_AT_ONCE):
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield AgentData(frames[0], frames[1] if len(frames) == 2 else b"".join(frames[1:]))
        self.is_behind = True

    def _authenticate(self) -> None:
        """Answer the ZAP requests that are there: only the cluster's own client key is accepted."""
        expected = z85.decode(self._client.public.encode())
        while self._zap.poll(0):
            version, request, _domain, _address, _identity, mechanism, *credentials = self._zap.recv_multipart()
            known = mechanism == b"CURVE" and credentials and secrets.compare_digest(credentials[0], expected)
            status = [b"200", b"OK", b"agent"] if known else [b"400", b"unknown key", b""]
            self._zap.send_multipart([version, request, *status, b""])

    def send(self, identity: bytes, data: bytes) -> None:
        """Send to one agent; drop what cannot be delivered, since missing heartbeats reveal a lost agent."""
        with contextlib.suppress(zmq.Again, zmq.ZMQError):
            self._router.send_multipart([identity, data], zmq.NOBLOCK)

    def send_to_all(self, identities: Iterable[bytes], data: bytes) -> None:
        """Send the same to many agents; it is held once, however many have not taken it yet."""
        frame = zmq.Frame(data, copy=False)
        for identity in identities:
            with contextlib.suppress(zmq.Again, zmq.ZMQError):
                self._router.send(identity, zmq.NOBLOCK | zmq.SNDMORE)
                self._router.send(frame, zmq.NOBLOCK, copy=False)

    def close(self) -> None:
        """Close sockets and context; messages under way have half a second to leave."""
        self._unproven.close()
        self._router.close()
        self._zap.close(linger=0)
        self._context.term()
        with self._wake_lock:
            os.close(self._wake)
            self._wake = -1


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
