"""Nodes that are only played: a listener without a network and a launcher without processes; all between is real.

A test makes a cluster whose nodes it plays itself::

    nodes = FakeNodes()
    cluster = make_cluster(tmp_path, nodes, cluster_size=2)
    cluster.launch()  # every node reserves, is sent its start message, and runs
    nodes.end(0, value=21)  # what node 0 returned

Nodes answer `Stop` and `Finish` as agents do, unless they are ``deaf``.
"""

from __future__ import annotations

import itertools
import queue
import threading
from pathlib import Path
from typing import Any

from tests.support.eventually import PATIENCE_S
from tfos_lab import Cluster
from tfos_lab.core import messages as m
from tfos_lab.core.config import ClusterConfig, assign_roles
from tfos_lab.core.launchers import LAUNCHERS
from tfos_lab.core.values import encode_value
from tfos_lab.driver.head import Head
from tfos_lab.driver.run_dir import RunDir

ADDRESS = m.DriverAddress(endpoint="tcp://fake:1", certificate="", token=b"")


class FakeListener:
    """The driver's socket: `deliver` is an agent's message; ``sent`` is what agents were sent, decoded.

    ``error`` is raised instead of anything that arrives. Whoever reads hears of all that are ``alive``, too: however
    slow this machine is, none of them is silent.
    """

    def __init__(self, *_hosts: str) -> None:
        self.address = ADDRESS
        self.is_behind = False
        self.sent: list[tuple[bytes, Any]] = []
        self.closed = False
        self.error: Exception | None = None
        self.on_send = lambda _identity, _message: None
        self.alive: set[int] = set()
        self._items: queue.Queue[Any] = queue.Queue()

    def deliver(self, identity: bytes, message: Any) -> None:
        if isinstance(message, m.Drained):
            self.alive.discard(message.rank)
        self.post((identity, m.encode(message)))
        if isinstance(message, m.Reserve):
            self.post(message.rank)

    def deliver_at_once(self, *messages: Any) -> None:
        """Have several messages be read at once."""
        self.post([(identity_of(message.rank), m.encode(message)) for message in messages])

    def post(self, item: Any) -> None:
        self._items.put(item)

    def poll(self, timeout_s: float) -> list[Any]:
        if self.error is not None:
            raise self.error
        beats = [(identity_of(rank), m.encode(m.Heartbeat(rank=rank))) for rank in tuple(self.alive)]
        try:
            item = self._items.get(timeout=timeout_s)
        except queue.Empty:
            return beats
        if isinstance(item, int):
            self.alive.add(item)  # its reservation has been read
            return beats
        return [*beats, *item] if isinstance(item, list) else [*beats, item]

    def send(self, identity: bytes, data: bytes) -> None:
        message = m.decode_to_agent(data)
        self.sent.append((identity, message))
        self.on_send(identity, message)

    def send_to_all(self, identities: list[bytes], data: bytes) -> None:
        for identity in identities:
            self.send(identity, data)

    def close(self) -> None:
        self.closed = True

    def sent_to(self, identity: bytes) -> list[str]:
        """Return the kinds of messages that an agent was sent."""
        return [type(message).__name__ for to, message in self.sent if to == identity]


class FakeLauncher:
    """Starts nothing: all nodes reserve at once, except those that are to be ``missing``."""

    def __init__(self, head: Head, nodes: FakeNodes) -> None:
        self.head = head
        self._nodes = nodes

    def launch(self) -> None:
        errors = self._nodes.launch_errors
        if errors and (error := errors.pop(0)):
            raise error
        for spec in self.head.cluster.node_specs:
            if spec.rank not in self._nodes.missing:
                self._nodes.reserve(spec.rank)

    def hint(self) -> str:
        return "a hint"

    def _does_nothing(self, *_args: str) -> None: ...

    run_here = free_slots = on_executor_end = cancel = close = _does_nothing


class FakeNodes:
    """The nodes of one cluster; those of the latest start answer.

    The ranks ``missing`` never reserve, and those ``deaf`` do not answer. ``launch_errors`` are what the next launches
    raise, or None for one that succeeds.
    """

    def __init__(self) -> None:
        self.missing: set[int] = set()
        self.deaf: set[int] = set()
        self.launch_errors: list[Exception | None] = []
        self.listeners: list[FakeListener] = []
        self.launchers: list[FakeLauncher] = []

    @property
    def listener(self) -> FakeListener:
        return self.listeners[-1]

    def open_listener(self, *hosts: str) -> FakeListener:
        listener = FakeListener(*hosts)
        listener.on_send = lambda identity, message: self._answer(listener, identity, message)
        self.listeners.append(listener)
        return listener

    def make_launcher(self, head: Head) -> FakeLauncher:
        self.launchers.append(FakeLauncher(head, self))
        return self.launchers[-1]

    def _answer(self, listener: FakeListener, identity: bytes, message: Any) -> None:
        if not identity.startswith(b"agent/"):
            return  # an agent that only the test plays
        rank = int(identity.removeprefix(b"agent/"))
        if rank in self.deaf:
            return
        match message:
            case m.Start():
                listener.deliver(identity, m.Progressed(rank=rank, state="running", pid=1000 + rank))
            case m.Stop():
                listener.deliver(identity, m.Ended(rank=rank, outcome=m.Outcome(kind="stopped")))
                listener.deliver(identity, m.Drained(rank=rank))
            case m.Finish():
                listener.deliver(identity, m.Drained(rank=rank))

    def reserve(self, rank: int) -> None:
        self.send(m.Reserve(rank=rank, host="fake", address=f"fake:{rank}", pid=rank, executor=f"e{rank}", gpus=[]))

    def send(self, message: Any) -> None:
        """Send an agent's message to the driver."""
        self.listener.deliver(identity_of(message.rank), message)

    def settle(self) -> None:
        """Wait until all that nodes have sent has been handled."""
        handled = threading.Event()
        self.listener.post(lambda _now_s: handled.set() or [])
        assert handled.wait(PATIENCE_S)

    def end(self, rank: int, value: Any = None) -> None:
        """Let the function of a node return."""
        self.send(m.Ended(rank=rank, outcome=m.Outcome(kind="returned", value=encode_value(value))))

    def kill(self, rank: int) -> None:
        """Let the child of a node be killed, as by the host when memory is short."""
        self.send(m.Ended(rank=rank, outcome=m.Outcome(kind="exited", exit_code=-9)))


def identity_of(rank: int) -> bytes:
    return f"agent/{rank}".encode()


def map_fun(args: Any, ctx: Any) -> None:
    """Stand for the user's function, which no fake node runs."""


_numbers = itertools.count()


def make_cluster(folder: Path, nodes: FakeNodes, **options: Any) -> Cluster:
    """Return a cluster that is not launched yet; ``options`` are those of `ClusterConfig`."""
    config = ClusterConfig(**{"cluster_size": 2, "grace": 1.0, **options})
    run_dir = folder / f"{config.name}-{next(_numbers)}"
    run_dir.mkdir()
    return Cluster(
        config,
        (map_fun, None),
        launcher=LAUNCHERS["local"],
        node_specs=assign_roles(config),
        files=RunDir(run_dir, config.log_dir),
        make_listener=nodes.open_listener,  # type: ignore[arg-type]
        make_launcher=nodes.make_launcher,  # type: ignore[arg-type]
    )
